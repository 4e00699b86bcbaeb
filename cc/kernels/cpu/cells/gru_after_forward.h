// Implements the forward pass of a GRU, reset after the GEMM, over a sequence
// on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/cells/sequence_functions.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// [x · w_x + b_x for r, u] + b_h + h · w_h, and x · w_x + b_x of the candidate
// apart  →  r, u, hc, c, h
// The candidate's gate is the last in every layout.
template <class StorageType, class Activations>
class GruAfterForwardCell {
 public:
  using T = StorageType;
  using Args = GruAfterSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;
  static constexpr bool kInPlace = false;

  static ForwardShape Shape(const Args& args) {
    return {args.shape.units, 1,
            kGruAfterGates * static_cast<double>(args.shape.units),
            kGruAfterGates};
  }

  GruAfterForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        w_h_(context.executor, context.scratch,
             WeightView<T>{args.w_h, LeadingDim(units_),
                           args.shape.weights_by_unit},
             GateOffsets<kGruAfterGates>(units_).at, units_, units_,
             context.streams_weights && !context.factors),
        x_(context.executor, context.scratch, args.shape, context.rows,
           {args.w_x, LeadingDim(args.shape.input), args.shape.weights_by_unit,
            args.b_x, args.b_h},
           context.fuses_input) {}

  void Begin() const {}
  Status Enter(const StepBlock& block) { return x_.Enter(block, args_.x); }

  void Step(int64_t step, int, Share share, Range rows) const {
    x_.Multiply(step, context_.h.Operand(step), w_h_,
                share.RangeOf(w_h_.panels()), rows,
                [&](const GateTile<C>& tile, const RowView<C>& xc) {
                  Cells(step, tile, xc);
                });
  }

  void Finish() const {}

  std::array<T*, 4> SavedForBackward() const {
    return {args_.r, args_.u, args_.c, args_.hc};
  }

 private:
  int64_t LeadingDim(int64_t depth) const {
    return args_.shape.weights_by_unit ? depth
                                       : kGruAfterGates * args_.shape.units;
  }

  // xc: the candidate's x · w_x + b_x for the rows of the tile.
  void Cells(int64_t step, const GateTile<C>& tile,
             const RowView<C>& xc) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = context_.rows.IsMasked(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved =
          context_.rows.SavedRow(step, run.row) * units_ + run.unit;
      T* const h = context_.h.OutputRow(step, run.row);
      const C* const xc_row = xc.Row(run.row - tile.first.row);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        // 1. Load the pre-activations and the previous state.
        const auto bar = [&](int gate) {
          return Load<C>(run.gates + gate * run.gate_stride + j, lanes);
        };
        const V h_prev = Load<C>(context_.h.Previous(step) + state + j, lanes);
        V hc = bar(args_.layout.c);
        // 2. Equations.
        GruAfterStep<V> out = GruAfterForward<Activations>(
            bar(args_.layout.r), bar(args_.layout.u),
            Load<C>(xc_row + j, lanes), hc, h_prev);
        if (masked) {
          hc = V(0);
          out = {V(0), V(0), V(0), h_prev};
        }
        // 3. Store.
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
  const PackedWeights<T, kGruAfterGates> w_h_;
  InputGemm<T, kGruAfterGates, true> x_;
};

template <class T, class Activations>
Status GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                               const Executor& executor) {
  return SequenceForward<GruAfterForwardCell<T, Activations>>(args, executor)
      .Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
