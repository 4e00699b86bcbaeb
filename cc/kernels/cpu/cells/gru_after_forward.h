// Implements the forward pass of a GRU, reset after the GEMM, over a sequence
// on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/cells/sequence_functions.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/precision.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// The weights of a GRU, reset after the GEMM, in panels of elements P.
template <class T, class P>
struct GruAfterPanels {
  using Args = GruAfterSequenceForwardArgs<T>;

  GruAfterPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : w_h(memory,
            WeightView<T>{args.w_h, LeadingDim(args, args.shape.units),
                          args.shape.weights_by_unit},
            GateOffsets<kGruAfterGates>(args.shape.units).at, args.shape.units,
            args.shape.units, packing.StateSums()),
        x(memory, args.shape, Input(args), packing.packs_input) {}

  static InputWeights<T, kGruAfterGates> Input(const Args& args) {
    return {args.w_x, LeadingDim(args, args.shape.input),
            args.shape.weights_by_unit, args.b_x, args.b_h};
  }

  PackedWeights<T, kGruAfterGates, P> w_h;
  InputPanels<T, kGruAfterGates, true, P> x;

 private:
  static int64_t LeadingDim(const Args& args, int64_t depth) {
    return args.shape.weights_by_unit ? depth
                                      : kGruAfterGates * args.shape.units;
  }
};

// [x · w_x + b_x for r, u] + b_h + h · w_h, and x · w_x + b_x of the candidate
// apart  →  r, u, hc, c, h
// The candidate's gate is the last in every layout.
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class GruAfterForwardCell {
 public:
  using T = StorageType;
  using P = Element;
  using Args = GruAfterSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;
  static constexpr bool kInPlace = false;
  static constexpr bool kOneGemm = true;

  static ForwardShape Shape(const Args& args) {
    return {args.shape.units, 1,
            kGruAfterGates * static_cast<double>(args.shape.units),
            kGruAfterGates};
  }

  GruAfterForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        packed_(args, context.panels, context.packing),
        x_(context.executor, context.scratch, context.rows,
           GruAfterPanels<T, P>::Input(args), packed_.x, context.fuses_input,
           context.panels->frozen(), units_) {}

  void Begin() const {}
  Status Enter(const StepBlock& block) { return x_.Enter(block, args_.x); }

  void Step(int64_t step, int, Share share, Range rows) const {
    x_.Multiply(step, context_.h.Operand(step), packed_.w_h, share, rows,
                [&](const GateTile<C>& tile, const RowView<C>& xc) {
                  Cells(step, tile, xc);
                });
  }

  void Block(const StepBlock& block, const RowView<C>& states,
             Share share) const {
    StepCursor step(context_.rows, block);
    x_.Multiply(block.first, {states}, packed_.w_h, share, {0, block.rows},
                [&](const GateTile<C>& tile, RowView<C> xc) {
                  step.ForEachStep(tile, [&](const GateTile<C>& part) {
                    Cells(step.step(), part, xc);
                    xc = xc.FromRow(part.rows);
                  });
                });
  }

  void Finish() const {}

  std::array<T*, 4> SavedForBackward() const {
    return {args_.r, args_.u, args_.c, args_.hc};
  }

  CellState<T> State() const { return {}; }

 private:
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
  const GruAfterPanels<T, P> packed_;
  InputGemm<T, kGruAfterGates, true, P> x_;
};

template <class T, class Activations>
Status GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                               const Executor& executor) {
  return ForwardInPrecision<GruAfterForwardCell, T, Activations>(args,
                                                                 executor);
}

template <class T>
Status FreezeGruAfter(const GruAfterFreezeArgs<T>& args,
                      const Executor& executor) {
  return FreezeInPrecision<GruAfterPanels, T>(args, executor);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
