// Implements the forward pass of an LSTM with layer normalisation over a
// sequence on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_FORWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/sequence/normalized_sums.h"
#include "cc/kernels/cpu/sequence/precision.h"
#include "cc/kernels/cpu/sequence/row_norm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

template <class T, class P>
struct LayerNormLstmPanels
    : LayerNormPanels<T, LayerNormLstmForwardArgs<T>, kLstmGates, P> {
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using Base = LayerNormPanels<T, Args, kLstmGates, P>;

  LayerNormLstmPanels(const Args& args, PanelMemory* memory,
                      const Packing& packing)
      : Base(args, memory, packing, [&](int64_t column) {
          return (static_cast<C>(args.beta_x[column]) +
                  static_cast<C>(args.beta_h[column])) +
                 static_cast<C>(args.b[column]);
        }) {
    const int64_t units = args.shape.units;
    C* const of_state = memory->Take<C>(2 * units);
    if (of_state == nullptr) return;
    gamma_c = of_state;
    beta_c = of_state + units;
    if (memory->frozen()) return;
    CopyRow(args.gamma_c, units, of_state);
    CopyRow(args.beta_c, units, of_state + units);
  }

  const C* gamma_c = nullptr;  // [H]
  const C* beta_c = nullptr;   // [H]
};

// Before the steps of a block:  x · w_x
// Stage 0:  h · w_h, a tile at a time
// Stage 1:  the norms of both, the gates, the norm of the cell state, a row at
//           a time
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LayerNormLstmForwardCell {
 public:
  using T = StorageType;
  using P = Element;
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Panels = LayerNormLstmPanels<T, P>;
  using Sums = NormalizedSums<Panels>;
  using Context = ForwardContext<T, kLstmGates>;
  static constexpr int kGates = kLstmGates;
  static constexpr bool kInPlace = true;
  static constexpr bool kOneGemm = false;

  static ForwardShape Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units, 2, static_cast<double>(kLstmGates * units), kLstmGates};
  }

  LayerNormLstmForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        epsilon_(static_cast<C>(args.epsilon)),
        packed_(args, context.panels, context.packing),
        sums_(args, context, packed_),
        o_(context.scratch->template Array<C>(args.shape.batch * units_)),
        c_(context.scratch->template Array<C>(args.shape.batch * units_)),
        cs_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  void Begin() const {
    for (int64_t b = 0; b < args_.shape.batch; ++b) {
      CopyRow(args_.cs_prev + context_.rows.StateRow(b) * units_, units_,
              cs_ + b * units_);
    }
  }

  Status Enter(const StepBlock& block) { return sums_.Enter(block); }

  void Step(int64_t step, int stage, Share share, Range rows) const {
    if (stage == 0) {
      sums_.Multiply(step, share, rows);
      return;
    }
    const Range own = share.RangeOf(rows.end - rows.begin);
    for (int64_t b = rows.begin + own.begin; b < rows.begin + own.end; ++b) {
      StepRow(step, b);
    }
  }

  void Finish() const {
    const auto last = [&](int64_t b) { return cs_ + b * units_; };
    const SequenceRows& rows = context_.rows;
    sums_.Finish();
    // What is saved in steps has no padding: there is no mask then.
    if (!args_.shape.saved_in_steps) {
      CarryStatesOverPadding(context_.executor, rows, args_.cs_prev, last,
                             args_.cs, units_, units_);
    }
    if (args_.cs_last == nullptr) return;
    for (int64_t b = 0; b < args_.shape.batch; ++b) {
      CopyRow(last(b), units_, args_.cs_last + rows.StateRow(b) * units_);
    }
  }

  // Of width H; NormalizedSums does what there is to do for the others.
  std::array<T*, 1> SavedForBackward() const { return {args_.cs}; }

  CellState<T> State() const { return {cs_, args_.cs}; }

 private:
  void StepRow(int64_t step, int64_t b) const {
    if (context_.rows.IsMasked(step, b)) {
      Masked(step, b);
      return;
    }
    const int64_t state = b * units_;
    // 1. The norms; 2. the gates and the new cell state.
    const V sum = Gates(sums_.Normalize(step, b), state);
    // 3. Its norm, and the output.
    Output(step, b, CentreRow(c_ + state, units_, sum, epsilon_));
    context_.h.Finish(step, {b, 0, units_});
  }

  // Writes o and c, and c as the state where the output alone reads its norm.
  // Returns the lanes' sums of c.
  EIGEN_DONT_INLINE V Gates(const typename Sums::Row& row,
                            int64_t state) const {
    const LstmGateLayout& layout = args_.layout;
    V sum(0);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      const auto bar = [&](int gate) {
        return sums_.OfState(row, gate, unit, at,
                             sums_.OfInput(row, gate, unit, at, lanes), lanes);
      };
      const LayerNormLstmGates<V> out = LayerNormLstmForward<Activations>(
          LstmPreActivations<V>{bar(layout.i), bar(layout.ci), bar(layout.f),
                                bar(layout.o)},
          Load<C>(cs_ + state + unit, lanes));
      Store(o_ + state + unit, out.o, lanes);
      Store(c_ + state + unit, out.c, lanes);
      if (args_.norm_output_only) Store(cs_ + state + unit, out.c, lanes);
      sum = sum + ZeroOtherLanes(out.c, lanes);
    });
    return sum;
  }

  EIGEN_DONT_INLINE void Output(int64_t step, int64_t b, C rstd) const {
    const int64_t state = b * units_;
    const V rstd_v(rstd);
    C* const next = context_.h.Next(step) + state;
    T* const h = context_.h.OutputRow(step, b);
    T* const cs = sums_.SavedRow(args_.cs, step, b, units_);
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const V normalized = MulAdd(Load<C>(c_ + state + j, lanes) * rstd_v,
                                  Load<C>(packed_.gamma_c + j, lanes),
                                  Load<C>(packed_.beta_c + j, lanes));
      const V new_h =
          Load<C>(o_ + state + j, lanes) * Activations::Candidate(normalized);
      V new_cs = normalized;
      if (args_.norm_output_only) {
        new_cs = Load<C>(cs_ + state + j, lanes);
      } else {
        Store(cs_ + state + j, new_cs, lanes);
      }
      StoreIf(cs, j, new_cs, lanes);
      StoreIf(h, j, new_h, lanes);
      Store(next + j, new_h, lanes);
    });
  }

  // A masked step has no gates, and carries the states.
  void Masked(int64_t step, int64_t b) const {
    sums_.Masked(step, b);
    if (args_.cs != nullptr) {
      CopyRow(cs_ + b * units_, units_,
              sums_.SavedRow(args_.cs, step, b, units_));
    }
    context_.h.Carry(step, {b, 0, units_});
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const C epsilon_;
  const Panels packed_;
  Sums sums_;
  C* const o_;   // [B, H]
  C* const c_;   // [B, H], before its norm, then its deviations
  C* const cs_;  // [B, H]
};

template <class T, class Activations>
Status LayerNormLstmForward(const LayerNormLstmForwardArgs<T>& args,
                            const Executor& executor) {
  return ForwardInPrecision<LayerNormLstmForwardCell, T, Activations>(args,
                                                                      executor);
}

template <class T>
Status FreezeLayerNormLstm(const LayerNormLstmFreezeArgs<T>& args,
                           const Executor& executor) {
  return FreezeInPrecision<LayerNormLstmPanels, T>(args, executor);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_FORWARD_H_
