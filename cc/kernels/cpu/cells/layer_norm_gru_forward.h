// Implements the forward pass of a GRU with layer normalisation over a sequence
// on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_FORWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/sequence/normalized_sums.h"
#include "cc/kernels/cpu/sequence/precision.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// What is added to gamma_x ∘ x_hat. The reset gate multiplies the candidate's
// share of h, with what is added to it; r and u have all that is added here.
// The candidate's gate is the last in every layout.
template <class Args>
class LayerNormGruOffsets {
 public:
  explicit LayerNormGruOffsets(const Args& args) : args_(args) {}

  template <class C>
  C OfInput(int64_t column) const {
    const C of_x = static_cast<C>(args_.beta_x[column]) +
                   static_cast<C>(args_.b_x[column]);
    return column < Candidate(0) ? of_x + OfState<C>(column) : of_x;
  }
  // Of a unit's candidate.
  template <class C>
  C OfCandidate(int64_t unit) const {
    return OfState<C>(Candidate(unit));
  }

 private:
  int64_t Candidate(int64_t unit) const {
    return (kGruAfterGates - 1) * args_.shape.units + unit;
  }
  template <class C>
  C OfState(int64_t column) const {
    return static_cast<C>(args_.beta_h[column]) +
           static_cast<C>(args_.b_h[column]);
  }

  const Args& args_;
};

template <class T, class P>
struct LayerNormGruPanels
    : LayerNormPanels<T, LayerNormGruForwardArgs<T>, kGruAfterGates, P> {
  using Args = LayerNormGruForwardArgs<T>;
  using C = ComputeType<T>;
  using Base = LayerNormPanels<T, Args, kGruAfterGates, P>;

  LayerNormGruPanels(const Args& args, PanelMemory* memory,
                     const Packing& packing)
      : Base(args, memory, packing, [&](int64_t column) {
          return LayerNormGruOffsets(args).template OfInput<C>(column);
        }) {
    C* const packed = memory->Take<C>(args.shape.units);
    bias_hc = packed;
    if (packed == nullptr || memory->frozen()) return;
    for (int64_t unit = 0; unit < args.shape.units; ++unit) {
      packed[unit] = LayerNormGruOffsets(args).template OfCandidate<C>(unit);
    }
  }

  const C* bias_hc;  // [H], the candidate's beta_h + b_h
};

// Before the steps of a block:  x · w_x
// Stage 0:  h · w_h, a tile at a time
// Stage 1:  the norms of both, the gates, h, a row at a time
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LayerNormGruForwardCell {
 public:
  using T = StorageType;
  using P = Element;
  using Args = LayerNormGruForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Panels = LayerNormGruPanels<T, P>;
  using Sums = NormalizedSums<Panels>;
  using Context = ForwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;
  static constexpr bool kInPlace = true;
  static constexpr bool kOneGemm = false;

  static ForwardShape Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units, 2, static_cast<double>(kGates * units), kGates};
  }

  LayerNormGruForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        packed_(args, context.panels, context.packing),
        sums_(args, context, packed_) {}

  void Begin() const {}
  Status Enter(const StepBlock& block) { return sums_.Enter(block); }

  void Step(int64_t step, int stage, Share share, Range rows) const {
    if (stage == 0) {
      sums_.Multiply(step, share, rows);
      return;
    }
    const Range own = share.RangeOf(rows.end - rows.begin);
    for (int64_t b = rows.begin + own.begin; b < rows.begin + own.end; ++b) {
      if (context_.rows.IsMasked(step, b)) {
        sums_.Masked(step, b);
        context_.h.Carry(step, {b, 0, units_});
      } else {
        Gates(step, b, sums_.Normalize(step, b));
        context_.h.Finish(step, {b, 0, units_});
      }
    }
  }

  void Finish() const { sums_.Finish(); }

  // Of width H: there are none. NormalizedSums does what there is to do.
  std::array<T*, 0> SavedForBackward() const { return {}; }

  CellState<T> State() const { return {}; }

 private:
  EIGEN_DONT_INLINE void Gates(int64_t step, int64_t b,
                               const typename Sums::Row& row) const {
    const GruAfterGateLayout& layout = args_.layout;
    const C* const previous = context_.h.Previous(step) + b * units_;
    C* const next = context_.h.Next(step) + b * units_;
    T* const h = context_.h.OutputRow(step, b);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      // 1. The norms, with the biases.
      const auto of_x = [&](int gate) {
        return sums_.OfInput(row, gate, unit, at, lanes);
      };
      const auto of_h = [&](int gate, const V& more) {
        return sums_.OfState(row, gate, unit, at, more, lanes);
      };
      // 2. Equations.
      const GruAfterStep<V> out = GruAfterForward<Activations>(
          of_h(layout.r, of_x(layout.r)), of_h(layout.u, of_x(layout.u)),
          of_x(layout.c),
          of_h(layout.c, Load<C>(packed_.bias_hc + unit, lanes)),
          Load<C>(previous + unit, lanes));
      // 3. Store.
      StoreIf(h, unit, out.h, lanes);
      Store(next + unit, out.h, lanes);
    });
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const Panels packed_;
  Sums sums_;
};

template <class T, class Activations>
Status LayerNormGruForward(const LayerNormGruForwardArgs<T>& args,
                           const Executor& executor) {
  return ForwardInPrecision<LayerNormGruForwardCell, T, Activations>(args,
                                                                     executor);
}

template <class T>
Status FreezeLayerNormGru(const LayerNormGruFreezeArgs<T>& args,
                          const Executor& executor) {
  return FreezeInPrecision<LayerNormGruPanels, T>(args, executor);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_FORWARD_H_
