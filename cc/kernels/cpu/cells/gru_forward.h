// Implements the forward pass of a GRU, reset before the GEMM, over a sequence
// on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/cells/sequence_functions.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/precision.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// The weights of a GRU, reset before the GEMM, in panels of elements P.
template <class T, class P>
struct GruPanels {
  using Args = GruSequenceForwardArgs<T>;

  GruPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : w_ru_h(memory, WeightView<T>{args.w_ru_h, kGruGates * args.shape.units},
               GateOffsets<kGruGates>(args.shape.units).at, args.shape.units,
               args.shape.units, packing.StateSums()),
        w_c_h(memory, WeightView<T>{args.w_c_h, args.shape.units}, {0},
              args.shape.units, args.shape.units, packing.sums),
        x_ru(memory, args.shape,
             {{args.w_ru_x, kGruGates * args.shape.units}, args.b_ru},
             packing.packs_input),
        x_c(memory, args.shape,
            {{args.w_c_x, args.shape.units},
             args.b_c,
             nullptr,
             kGruGates * args.shape.units},
            packing.packs_input) {}

  PackedWeights<T, kGruGates, P> w_ru_h;
  PackedWeights<T, 1, P> w_c_h;
  InputPanels<T, kGruGates, false, P> x_ru;
  InputPanels<T, 1, false, P> x_c;
};

// Stage 0:  x · w_ru_x + b_ru + h · w_ru_h     →  r, u, h ∘ r
// Stage 1:  x · w_c_x + b_c + (h ∘ r) · w_c_h  →  c, h
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class GruForwardCell : public ForwardCell<StorageType> {
 public:
  using T = StorageType;
  using P = Element;
  using Args = GruSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kGruGates>;
  static constexpr int kGates = kGruGates;
  static constexpr bool kInPlace = true;

  static ForwardShape Shape(const Args& args) {
    return {args.shape.units, 2,
            (kGruGates + 1) * static_cast<double>(args.shape.units),
            kGruGates + 1};
  }

  GruForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        gemm_scratch_(context.executor),
        packed_(args, context.panels, context.packing),
        x_ru_(context, packed_.x_ru, context.fuses_input, units_),
        x_c_(context, packed_.x_c, context.fuses_input, units_),
        u_(context.scratch->template Array<C>(args.shape.batch * units_)),
        h_r_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  Status BeginBlock(const StepBlock& block) {
    x_ru_.SetRows(block, args_.x);
    x_c_.SetRows(block, args_.x);
    Status status = x_ru_.MultiplyFrozen();
    if (status == Status::kOk) status = x_c_.MultiplyFrozen();
    if (status != Status::kOk) return status;
    return RunGemms(context_.executor, &gemm_scratch_, x_ru_.Hoisted(),
                    x_c_.Hoisted());
  }

  void Step(int64_t step, int stage, Share share, Range rows) const {
    if (stage == 0) {
      x_ru_.Multiply(step, context_.h.Operand(step), packed_.w_ru_h, share,
                     rows, [&](const GateTile<C>& tile, const RowView<C>&) {
                       Gates(step, tile);
                     });
    } else {
      x_c_.Multiply(step, {{h_r_, units_}}, packed_.w_c_h, share, rows,
                    [&](const GateTile<C>& tile, const RowView<C>&) {
                      Candidate(step, tile);
                    });
    }
  }

  std::array<T*, 3> SavedForBackward() const {
    return {args_.r, args_.u, args_.c};
  }

 private:
  static constexpr int kCandidate = kGruGates;  // its dropout factors

  void Gates(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = context_.rows.IsMasked(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved = SavedAt(step, run);
      const C* const h = context_.h.Previous(step) + state;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto bar = [&](int gate) {
          return Load<C>(run.gates + gate * run.gate_stride + j, lanes);
        };
        GruGates<V> out = GruForwardGates<Activations>(
            bar(kGruRu.r), bar(kGruRu.u), Load<C>(h + j, lanes));
        if (masked) out = {V(0), V(0), V(0)};
        StoreIf(args_.r, saved + j, out.r, lanes);
        StoreIf(args_.u, saved + j, out.u, lanes);
        Store(u_ + state + j, out.u, lanes);
        Store(h_r_ + state + j,
              out.h_prev_r * context_.factors.Factors(kCandidate, run.row,
                                                      run.unit + j, lanes),
              lanes);
      });
    });
  }

  // May write h in place: the first stage of this step has read it.
  void Candidate(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = context_.rows.IsMasked(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved = SavedAt(step, run);
      T* const h_out = context_.h.OutputRow(step, run.row);
      const C* const previous = context_.h.Previous(step) + state;
      C* const h = context_.h.Next(step) + state;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V c_bar = Load<C>(run.gates + j, lanes);
        const V u = Load<C>(u_ + state + j, lanes);
        const V h_prev = Load<C>(previous + j, lanes);
        GruState<V> out = GruForwardState<Activations>(c_bar, u, h_prev);
        if (masked) out = {V(0), h_prev};
        StoreIf(args_.c, saved + j, out.c, lanes);
        StoreIf(h_out, run.unit + j, out.h, lanes);
        Store(h + j, out.h, lanes);
      });
      context_.h.Finish(step, run);
    });
  }

  int64_t SavedAt(int64_t step, const GateRun<C>& run) const {
    return context_.rows.SavedRow(step, run.row) * units_ + run.unit;
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  GemmScratch<T> gemm_scratch_;
  const GruPanels<T, P> packed_;
  InputGemm<T, kGruGates, false, P> x_ru_;
  InputGemm<T, 1, false, P> x_c_;
  C* const u_;    // [B, H]
  C* const h_r_;  // [B, H], h ∘ r, times the candidate's dropout factors
};

template <class T, class Activations>
Status GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                          const Executor& executor) {
  return ForwardInPrecision<GruForwardCell, T, Activations>(args, executor);
}

template <class T>
Status FreezeGru(const GruFreezeArgs<T>& args, const Executor& executor) {
  return FreezeInPrecision<GruPanels, T>(args, executor);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_
