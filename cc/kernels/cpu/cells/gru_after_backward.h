// Implements the backward pass of a GRU, reset after the GEMM, over a sequence
// on the CPU, as a cell of sequence_backward.h. The equations are in
// cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/cells/sequence_functions.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"

namespace blockrnn::cpu {

// dz · w_hᵀ of the next step, dz = [d_r_bar d_u_bar d_hc]  →  d_h
//   →  dz and d_c_bar. The candidate's gate is the last in every layout.
template <class StorageType>
class GruAfterBackwardCell {
 public:
  using T = StorageType;
  using Args = GruAfterSequenceBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;

  static BackwardShape<T> Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units,
            1,
            static_cast<double>(kGruAfterGates * units),
            args.w_h,
            args.w_h_grad,
            args.b_h_grad};
  }

  GruAfterBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        ldz_(kGruAfterGates * units_),
        w_x_grad_(context.scratch,
                  args.shape.HasInputWeights() ? args.w_x_grad : nullptr,
                  args.shape.input, ldz_, args.shape.weights_by_unit),
        b_x_grad_(context.scratch, args.b_x_grad, 1, ldz_),
        d_c_(context.scratch->template Array<C>(context.rows.MaxRowsInBlock() *
                                                units_)) {}

  void Begin() const {}

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    WithFlag(static_cast<bool>(context_.zoneout),
             [&](auto zones) { StateGrad<zones()>(step, tile); });
  }

  void SecondStage(int64_t, Share, Range) const {}

  // r and u have the same gradients for x and for h, the candidate has d_c_bar
  // for x. The gradient of b_x is the same sum with and without a w_x.
  std::array<InputGradPart<T>, 2> InputParts() const {
    const int64_t ru = (kGruAfterGates - 1) * units_;
    const WeightView<T> w_x_t =
        TransposedWeights(args_.shape, args_.w_x, args_.shape.input, ldz_);
    const WeightView<T> w_xc_t =
        args_.shape.HasInputWeights() ? w_x_t.From(ru) : w_x_t;
    C* const w_x_grad = w_x_grad_.sums();
    C* const b_x_grad = b_x_grad_.sums();
    return {InputGradPart<T>{context_.dz.data(), ldz_, kGruAfterGates - 1,
                             w_x_t, w_x_grad, ldz_, b_x_grad},
            InputGradPart<T>{d_c_, units_, 1, w_xc_t,
                             w_x_grad == nullptr ? nullptr : w_x_grad + ru,
                             ldz_, b_x_grad + ru}};
  }
  RowSum<C> MoreWeights() const { return {}; }

  void Finish() const {}

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
    f(b_x_grad_);
  }

 private:
  template <bool kZoneout>
  EIGEN_ALWAYS_INLINE void StateGrad(int64_t step,
                                     const GateTile<C>& tile) const {
    const SequenceRows& rows = context_.rows;
    const int64_t first = context_.operands.FirstRow(step);
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = rows.IsMasked(step, run.row);
      const int64_t saved_at = rows.SavedRow(step, run.row) * units_ + run.unit;
      const int64_t at =
          rows.MemoryRow(step, run.row) * context_.ld_h + run.unit;
      const T* const h_prev =
          context_.operands.PreviousState(step, run.row) + run.unit;
      const uint8_t* const draws =
          kZoneout ? context_.zoneout.Draws(step, run.row) : nullptr;
      C* const carried = context_.d_h + run.row * units_ + run.unit;
      C* const dz = context_.dz.Step(step) + run.row * ldz_ + run.unit;
      C* const d_c = d_c_ + (first + run.row) * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        // 1. Load the gradient of h, and what the forward pass saved.
        const auto saved = [&](const T* p) {
          return Load<C>(p + saved_at + j, lanes);
        };
        V d_h = Load<C>(run.gates + j, lanes) + Load<C>(carried + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        V d_new = d_h;
        V d_kept(0);
        if constexpr (kZoneout) {
          const V kept = context_.zoneout.Kept(draws, run.unit + j, lanes);
          d_new = (V(1) - kept) * d_h;
          d_kept = kept * d_h;
        }
        const GruAfterStep<V> saved_step = {saved(args_.r), saved(args_.u),
                                            saved(args_.c), V(0)};
        // 2. Equations.
        GruAfterStepGrad<V> out = GruAfterBackward(
            saved_step, saved(args_.hc), Load<C>(h_prev + j, lanes), d_new);
        if constexpr (kZoneout) out.d_h_prev = out.d_h_prev + d_kept;
        if (masked) out = {V(0), V(0), V(0), V(0), d_h};
        // 3. Store.
        Store(dz + args_.layout.r * units_ + j, out.d_r_bar, lanes);
        Store(dz + args_.layout.u * units_ + j, out.d_u_bar, lanes);
        Store(dz + args_.layout.c * units_ + j, out.d_hc, lanes);
        Store(d_c + j, out.d_c_bar, lanes);
        Store(carried + j, out.d_h_prev, lanes);
      });
    });
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const int64_t ldz_;
  const WeightGrad<T> w_x_grad_;  // [I, 3H]
  const WeightGrad<T> b_x_grad_;  // [3H]
  C* const d_c_;                  // [block rows, H]
};

template <class T>
Status GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                                const Executor& executor) {
  return SequenceBackward<GruAfterBackwardCell<T>>(args, executor).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_
