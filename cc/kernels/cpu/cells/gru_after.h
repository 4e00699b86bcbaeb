// Implements a GRU, reset after the GEMM, over a sequence on the CPU, forward
// and backward, as cells of sequence_forward.h and sequence_backward.h. The
// equations are in cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/cells/other_activations.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

// The weights of a GRU, reset after the GEMM, in panels of elements P.
template <class T, class P>
struct GruAfterPanels : GatePanels<T, kGruAfterGates, true, P> {
  using Args = GruAfterSequenceForwardArgs<T>;

  GruAfterPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : GatePanels<T, kGruAfterGates, true, P>(
            args, args.b_x, args.b_h, args.shape.units, memory, packing) {}
};

// What the GRU does with the results of its GEMM, whatever the elements of its
// weights were.
// The candidate's gate is the last in every layout.
template <class T>
class GruAfterEpilogue {
 public:
  using Args = GruAfterSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kGruAfterGates>;

  GruAfterEpilogue(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        has_others_(args.activations) {}

  // xc: the candidate's x · w_x + b_x for the rows of the tile.
  template <class Activations>
  EIGEN_ALWAYS_INLINE void Run(int64_t step, const GateTile<C>& tile,
                               const RowView<C>& xc) const {
    if constexpr (kMayHaveOthers<T, Activations>) {
      if (EIGEN_PREDICT_FALSE(has_others_)) return OtherCells(step, tile, xc);
    }
    Cells<Activations>(step, tile, xc);
  }

 private:
  EIGEN_DONT_INLINE void OtherCells(int64_t step, const GateTile<C>& tile,
                                    const RowView<C>& xc) const {
    Cells<OtherActivations<V>>(step, tile, xc);
  }

  template <class Activations>
  EIGEN_ALWAYS_INLINE void Cells(int64_t step, const GateTile<C>& tile,
                                 const RowView<C>& xc) const {
    const Activations activations = ActivationsOf<Activations>(args_);
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = context_.rows.IsMasked(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved =
          context_.rows.SavedRow(step, run.row) * units_ + run.unit;
      T* const h = context_.h.OutputRow(step, run.row);
      const C* const xc_row = xc.Row(run.row - tile.first.row);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto bar = [&](int gate) {
          return Load<C>(run.gates + gate * run.gate_stride + j, lanes);
        };
        const V h_prev = Load<C>(context_.h.Previous(step) + state + j, lanes);
        V hc = bar(args_.layout.c);
        GruAfterStep<V> out = GruAfterForward<Activations>(
            bar(args_.layout.r), bar(args_.layout.u),
            Load<C>(xc_row + j, lanes), hc, h_prev, activations);
        if (masked) {
          hc = V(0);
          out = {V(0), V(0), V(0), h_prev};
        }
        StoreIf(args_.r, saved + j, out.r, lanes);
        StoreIf(args_.u, saved + j, out.u, lanes);
        StoreIf(args_.c, saved + j, out.c, lanes);
        StoreIf(args_.hc, saved + j, hc, lanes);
        StoreIf(h, run.unit + j, out.h, lanes);
        Store(context_.h.Next(step) + state + j, out.h, lanes);
      });
      context_.h.Finish(step, run);
    });
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const bool has_others_;  // other activations than the engine's
};

// [x · w_x + b_x for r, u] + b_h + h · w_h, and x · w_x + b_x of the candidate
// apart  →  r, u, hc, c, h
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class GruAfterForwardCell : public ForwardCell<StorageType> {
 public:
  using T = StorageType;
  using P = Element;
  using Args = GruAfterSequenceForwardArgs<T>;
  using Panels = GruAfterPanels<T, P>;
  using C = ComputeType<T>;
  using Context = ForwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;
  static constexpr bool kOneGemm = true;

  static ForwardShape Shape(const Args& args) {
    return {args.shape.units, 1,
            kGruAfterGates * static_cast<double>(args.shape.units),
            kGruAfterGates};
  }

  GruAfterForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        packed_(args, context.panels, context.packing),
        x_(context, packed_.x, args.shape.units),
        epilogue_(args, context) {}

  Status BeginBlock(const StepBlock& block) {
    return x_.BeginBlock(block, args_.x);
  }

  void Step(int64_t step, int, Share share, Range rows) const {
    x_.Multiply(step, context_.h.Operand(step), packed_.w_h, share, rows,
                [&](const GateTile<C>& tile, const RowView<C>& xc) {
                  epilogue_.template Run<Activations>(step, tile, xc);
                });
  }

  void Block(const StepBlock& block, const RowView<C>& states,
             Share share) const {
    StepCursor step(context_.rows, block);
    x_.Multiply(block.first, {states}, packed_.w_h, share, {0, block.rows},
                [&](const GateTile<C>& tile, RowView<C> xc) {
                  step.ForEachStep(tile, [&](const GateTile<C>& part) {
                    epilogue_.template Run<Activations>(step.step(), part, xc);
                    xc = xc.FromRow(part.rows);
                  });
                });
  }

  std::array<T*, 4> SavedForBackward() const {
    return {args_.r, args_.u, args_.c, args_.hc};
  }

 private:
  const Args& args_;
  const Context context_;
  const Panels packed_;
  InputGemm<T, kGruAfterGates, true, P> x_;
  const GruAfterEpilogue<T> epilogue_;
};

// dz · w_hᵀ of the next step, dz = [d_r_bar d_u_bar d_hc]  →  d_h
//   →  dz and d_c_bar. The candidate's gate is the last in every layout.
template <class StorageType>
class GruAfterBackwardCell : public BackwardCell<StorageType> {
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
        w_x_grad_(context.scratch, args.shape, args.w_x_grad, ldz_),
        b_x_grad_(context.scratch, args.b_x_grad, 1, ldz_),
        d_c_(context.scratch->template Array<C>(context.rows.MaxRowsInBlock() *
                                                units_)) {}

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    WithFlag(static_cast<bool>(context_.zoneout),
             [&](auto zones) { StateGrad<zones()>(step, tile); });
  }

  // r and u have the same gradients for x and for h, the candidate has d_c_bar
  // for x. The gradient of b_x is the same sum with and without a w_x.
  std::array<InputGradPart<T>, 2> InputParts() const {
    const int64_t ru = (kGruAfterGates - 1) * units_;
    const WeightView<T> w_x_t =
        WeightsOf(args_.shape, args_.w_x, args_.shape.input, ldz_).Transpose();
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
        GruAfterStepGrad<V> out = GruAfterBackward(
            saved_step, saved(args_.hc), Load<C>(h_prev + j, lanes), d_new);
        if constexpr (kZoneout) out.d_h_prev = out.d_h_prev + d_kept;
        if (masked) out = {V(0), V(0), V(0), V(0), d_h};
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

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_H_
