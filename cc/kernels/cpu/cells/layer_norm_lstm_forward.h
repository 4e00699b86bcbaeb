// Implements the forward pass of an LSTM with layer normalisation over a
// sequence on the CPU, as a cell of sequence_forward.h. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_FORWARD_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/frozen_weights.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/padding.h"
#include "cc/kernels/cpu/sequence/precision.h"
#include "cc/kernels/cpu/sequence/row_norm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"
#include "cc/kernels/cpu/sequence/step_rows.h"

namespace blockrnn::cpu {

// The weights of the cell: matrices in panels of elements P, vectors of the
// gates in the form of a row of sums (PanelRows).
template <class T, class P>
struct LayerNormLstmPanels {
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using Rows = PanelRows<C, kLstmGates>;

  LayerNormLstmPanels(const Args& args, PanelMemory* memory,
                      const Packing& packing)
      : rows(args.shape.units),
        w_h(memory,
            WeightView<T>{args.w_h, LeadingDim(args, args.shape.units),
                          args.shape.weights_by_unit},
            GateOffsets<kLstmGates>(args.shape.units).at, args.shape.units,
            args.shape.units, packing.StateSums()),
        x(memory, args.shape, Input(args), packing.packs_input) {
    const int64_t units = args.shape.units;
    C* const gammas = memory->Take<C>(3 * rows.width());
    C* const of_state = memory->Take<C>(2 * units);
    if (gammas == nullptr || of_state == nullptr) return;
    gamma_x = gammas;
    gamma_h = gammas + rows.width();
    bias = gammas + 2 * rows.width();
    gamma_c = of_state;
    beta_c = of_state + units;
    if (memory->frozen()) return;
    std::fill(gammas, gammas + 3 * rows.width(), C(0));
    for (int gate = 0; gate < kLstmGates; ++gate) {
      for (int64_t unit = 0; unit < units; ++unit) {
        const int64_t from = gate * units + unit;
        C* const to = gammas + unit / Rows::kUnits * Rows::kWidth +
                      gate * Rows::kUnits + unit % Rows::kUnits;
        to[0] = static_cast<C>(args.gamma_x[from]);
        to[rows.width()] = static_cast<C>(args.gamma_h[from]);
        to[2 * rows.width()] = (static_cast<C>(args.beta_x[from]) +
                                static_cast<C>(args.beta_h[from])) +
                               static_cast<C>(args.b[from]);
      }
    }
    CopyRow(args.gamma_c, units, of_state);
    CopyRow(args.beta_c, units, of_state + units);
  }

  // The biases are added behind the norm.
  static InputWeights<T, kLstmGates> Input(const Args& args) {
    return {args.w_x, LeadingDim(args, args.shape.input),
            args.shape.weights_by_unit};
  }

  const Rows rows;
  PackedWeights<T, kLstmGates, P> w_h;
  InputPanels<T, kLstmGates, false, P> x;
  const C* gamma_x = nullptr;  // [rows.width()]
  const C* gamma_h = nullptr;  // [rows.width()]
  const C* bias = nullptr;     // [rows.width()], beta_x + beta_h + b
  const C* gamma_c = nullptr;  // [H]
  const C* beta_c = nullptr;   // [H]

 private:
  static int64_t LeadingDim(const Args& args, int64_t depth) {
    return args.shape.weights_by_unit ? depth : kLstmGates * args.shape.units;
  }
};

// Before the steps of a block:  norm(x · w_x) + the biases
// Stage 0:  h · w_h, a tile at a time
// Stage 1:  its norm, the gates, the norm of the cell state, a row at a time
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LayerNormLstmForwardCell {
 public:
  using T = StorageType;
  using P = Element;
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
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
        x_(context.executor, context.scratch, context.rows,
           LayerNormLstmPanels<T, P>::Input(args), packed_.x, /*fused=*/false,
           context.panels->frozen(), units_),
        state_rows_(context.scratch, MostStepWorkers(context.executor),
                    args.shape.batch, units_),
        sums_(context.scratch->template Array<C>(args.shape.batch *
                                                 packed_.rows.width())),
        x_rstd_(
            context.scratch->template Array<C>(context.rows.MaxRowsInBlock())),
        o_(context.scratch->template Array<C>(args.shape.batch * units_)),
        c_(context.scratch->template Array<C>(args.shape.batch * units_)),
        cs_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  void Begin() const {
    for (int64_t b = 0; b < args_.shape.batch; ++b) {
      CopyRow(args_.cs_prev + context_.rows.StateRow(b) * units_, units_,
              cs_ + b * units_);
    }
  }

  Status Enter(const StepBlock& block) {
    const Status status = x_.Enter(block, args_.x);
    if (status != Status::kOk) return status;
    const int64_t before = context_.rows.RowsBefore(block.first);
    ParallelForRows(context_.executor, block.rows, packed_.rows.width(),
                    [&](int64_t begin, int64_t end) {
                      int64_t step = block.first;
                      for (int64_t m = begin; m < end; ++m) {
                        while (context_.rows.RowsBefore(step + 1) - before <= m)
                          ++step;
                        NormalizeInput(
                            step, m - (context_.rows.RowsBefore(step) - before),
                            m);
                      }
                    });
    return Status::kOk;
  }

  void Step(int64_t step, int stage, Share share, Range rows) const {
    if (stage == 0) {
      MultiplyPacked(state_rows_(context_.h.Operand(step), rows, share.piece),
                     packed_.w_h, share.RangeOf(packed_.w_h.panels()), rows,
                     BeginAtZero(),
                     [&](const GateTile<C>& tile) { StoreSums(tile); });
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
    // What is saved in steps has no padding: there is no mask then.
    if (!args_.shape.saved_in_steps) {
      CarryStatesOverPadding(context_.executor, rows, args_.cs_prev, last,
                             args_.cs, units_, units_);
      const int64_t width = kGates * units_;
      ZeroUnused(context_.executor, rows, args_.x_hat, width, width);
      ZeroUnused(context_.executor, rows, args_.h_hat, width, width);
      ZeroUnused(context_.executor, rows, args_.rstd, 2, 2);
    }
    if (args_.cs_last == nullptr) return;
    for (int64_t b = 0; b < args_.shape.batch; ++b) {
      CopyRow(last(b), units_, args_.cs_last + rows.StateRow(b) * units_);
    }
  }

  // Of width H; Finish does what there is to do for the others.
  std::array<T*, 1> SavedForBackward() const { return {args_.cs}; }

  CellState<T> State() const { return {cs_, args_.cs}; }

 private:
  static constexpr int64_t kUnits = PanelRows<C, kGates>::kUnits;
  static constexpr int64_t kWidth = PanelRows<C, kGates>::kWidth;

  // Replaces a row's sums of the input GEMM by their norm, plus the biases.
  EIGEN_DONT_INLINE void NormalizeInput(int64_t step, int64_t b,
                                        int64_t m) const {
    if (context_.rows.IsMasked(step, b)) return;
    C* const row = x_.StartRow(m);
    const C rstd = packed_.rows.Centre(row, epsilon_);
    x_rstd_[m] = rstd;
    T* const x_hat = SavedRow(args_.x_hat, step, b, kGates * units_);
    const V rstd_v(rstd);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      BLOCKRNN_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t n = at + gate * kUnits;
        const V hat = Load<C>(row + n, lanes) * rstd_v;
        StoreIf(x_hat, gate * units_ + unit, hat, lanes);
        Store(row + n,
              MulAdd(hat, Load<C>(packed_.gamma_x + n, lanes),
                     Load<C>(packed_.bias + n, lanes)),
              lanes);
      }
    });
  }

  void StoreSums(const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      C* const to = SumsRow(run.row) + run.unit / kUnits * kWidth;
      for (int gate = 0; gate < kGates; ++gate) {
        CopyRow(run.gates + gate * run.gate_stride, run.count,
                to + gate * kUnits);
      }
    });
  }

  void StepRow(int64_t step, int64_t b) const {
    if (context_.rows.IsMasked(step, b)) {
      Masked(step, b);
      return;
    }
    const int64_t state = b * units_;
    // 1. The norm of h · w_h.
    C* const sums = SumsRow(b);
    const C rstd = packed_.rows.Centre(sums, epsilon_);
    const int64_t m = x_.FirstRow(step) + b;
    if (T* const saved = SavedRow(args_.rstd, step, b, 2)) {
      saved[0] = static_cast<T>(x_rstd_[m]);
      saved[1] = static_cast<T>(rstd);
    }
    // 2. The gates and the new cell state.
    const V sum = Gates(x_.StartRow(m), sums, rstd,
                        SavedRow(args_.h_hat, step, b, kGates * units_), state);
    // 3. Its norm, and the output.
    Output(step, b, CentreRow(c_ + state, units_, sum, epsilon_));
    context_.h.Finish(step, {b, 0, units_});
  }

  // Writes o and c, and c as the state where the output alone reads its norm.
  // Returns the lanes' sums of c.
  EIGEN_DONT_INLINE V Gates(const C* x, const C* sums, C rstd, T* h_hat,
                            int64_t state) const {
    const V rstd_v(rstd);
    V sum(0);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      V bars[kGates];
      BLOCKRNN_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t n = at + gate * kUnits;
        const V hat = Load<C>(sums + n, lanes) * rstd_v;
        StoreIf(h_hat, gate * units_ + unit, hat, lanes);
        bars[gate] = MulAdd(hat, Load<C>(packed_.gamma_h + n, lanes),
                            Load<C>(x + n, lanes));
      }
      const LayerNormLstmGates<V> out = LayerNormLstmForward<Activations>(
          LstmPreActivations<V>{bars[args_.layout.i], bars[args_.layout.ci],
                                bars[args_.layout.f], bars[args_.layout.o]},
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
    T* const cs = SavedRow(args_.cs, step, b, units_);
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
    const int64_t width = kGates * units_;
    for (T* hat : {args_.x_hat, args_.h_hat}) {
      if (hat != nullptr) ZeroRow(width, SavedRow(hat, step, b, width));
    }
    if (args_.rstd != nullptr) ZeroRow(2, SavedRow(args_.rstd, step, b, 2));
    if (args_.cs != nullptr) {
      CopyRow(cs_ + b * units_, units_, SavedRow(args_.cs, step, b, units_));
    }
    context_.h.Carry(step, {b, 0, units_});
  }

  C* SumsRow(int64_t b) const { return sums_ + b * packed_.rows.width(); }

  // nullptr where the array is not wanted.
  T* SavedRow(T* p, int64_t step, int64_t b, int64_t width) const {
    return RowPointer(p, context_.rows.SavedRow(step, b), width);
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const C epsilon_;
  const LayerNormLstmPanels<T, P> packed_;
  InputGemm<T, kGates, false, P> x_;
  const StepRows<T, P> state_rows_;
  C* const sums_;    // [B, panels, 4 · kUnits], h · w_h, then its deviations
  C* const x_rstd_;  // [block rows]
  C* const o_;       // [B, H]
  C* const c_;       // [B, H], before its norm, then its deviations
  C* const cs_;      // [B, H]
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
