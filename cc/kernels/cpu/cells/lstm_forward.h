// Implements the forward pass of an LSTM over a sequence on the CPU, as a cell
// of sequence_forward.h. The equations are in cc/core/lstm_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_

#include <array>
#include <cstdint>
#include <limits>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/cells/lstm_peepholes.h"
#include "cc/kernels/cpu/cells/other_activations.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"

namespace blockrnn::cpu {

// The weights of an LSTM in panels of elements P.
template <class T, class P>
struct LstmPanels : GatePanels<T, kLstmGates, false, P> {
  using Args = LstmSequenceForwardArgs<T>;

  LstmPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : GatePanels<T, kLstmGates, false, P>(args, args.b, args.b_h, Width(args),
                                            memory, packing),
        w_p(memory, WeightView<T>{args.w_p, args.shape.units, true},
            args.proj > 0 ? args.shape.units : 0, args.proj, packing.uses) {}

  // Of h.
  static int64_t Width(const Args& args) {
    return args.proj > 0 ? args.proj : args.shape.units;
  }

  PackedWeights<T, 1, P> w_p;  // w_pᵀ
};

// What an LSTM does with the results of its GEMMs, whatever the elements of its
// weights were.
template <class T>
class LstmEpilogue {
 public:
  using Args = LstmSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kLstmGates>;

  LstmEpilogue(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        has_others_(args.activations),
        zoneout_(context.rows, args.zoneout_c, units_),
        cs_(context.scratch->template Array<C>(args.shape.batch * units_)),
        new_cs_(zoneout_ ? context.scratch->template Array<C>(args.shape.batch *
                                                              units_)
                         : cs_),
        m_(args.proj > 0
               ? context.scratch->template Array<C>(args.shape.batch * units_)
               : nullptr) {}

  // Of a tile: all of stage 0 that follows its GEMM.
  template <class Activations>
  EIGEN_ALWAYS_INLINE void Run(int64_t step, const GateTile<C>& tile) const {
    if constexpr (kMayHaveOthers<T, Activations>) {
      if (EIGEN_PREDICT_FALSE(has_others_)) {
        return Cells<OtherActivations<V>, true, true>(step, tile);
      }
    }
    WithFlag(args_.options.use_peephole, [&](auto peephole) {
      WithFlag(args_.options.cell_clip > 0, [&](auto clip) {
        Cells<Activations, peephole(), clip()>(step, tile);
      });
    });
  }

  // The left operand of the projection, where there is one.
  RowView<C> Projected() const { return {m_, units_}; }

  void Project(int64_t step, const GateTile<C>& tile) const {
    const int64_t width = args_.proj;
    tile.ForEachRow([&](const GateRun<C>& run) {
      if (context_.rows.IsMasked(step, run.row)) {
        context_.h.Carry(step, run);
        return;
      }
      CopyRow(run.gates, run.count,
              context_.h.Next(step) + run.row * width + run.unit);
      T* const h = context_.h.OutputRow(step, run.row);
      if (h != nullptr) CopyRow(run.gates, run.count, h + run.unit);
      context_.h.Finish(step, run);
    });
  }

  C* cs() const { return cs_; }

 private:
  // A function for each of the flags: all four in one would be too much to
  // inline the activations into. With others there is one function, which reads
  // the options itself.
  template <class Activations, bool kPeephole, bool kClip>
  EIGEN_DONT_INLINE void Cells(int64_t step, const GateTile<C>& tile) const {
    constexpr bool kOthers = kIsOthers<Activations>;
    const Activations activations = ActivationsOf<Activations>(args_);
    const bool peephole = kOthers ? args_.options.use_peephole : kPeephole;
    const bool clips = !kOthers || args_.options.cell_clip > 0;
    const V forget_bias(static_cast<C>(args_.options.forget_bias));
    const V cell_clip(clips ? static_cast<C>(args_.options.cell_clip)
                            : std::numeric_limits<C>::infinity());
    const bool projects = m_ != nullptr;
    C* const m = projects ? m_ : context_.h.Next(step);
    tile.ForEachRow([&](const GateRun<C>& run) {
      if (context_.rows.IsMasked(step, run.row)) {
        Masked(step, run);
        return;
      }
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved = SavedAt(step, run);
      T* const h = projects ? nullptr : context_.h.OutputRow(step, run.row);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto bar = [&](int gate) {
          return Load<C>(run.gates + gate * run.gate_stride + j, lanes);
        };
        const LstmPreActivations<V> bars = {
            bar(args_.layout.i), bar(args_.layout.ci), bar(args_.layout.f),
            bar(args_.layout.o)};
        const V cs_prev = Load<C>(cs_ + state + j, lanes);
        const LstmStep<V> out = LstmForward<Activations, kPeephole, kClip>(
            bars, cs_prev,
            LoadPeepholes<kPeephole, C>(args_, run.unit + j, lanes, peephole),
            forget_bias, cell_clip, peephole, activations);
        StoreIf(args_.i, saved + j, out.i, lanes);
        StoreIf(args_.cs, saved + j, out.cs, lanes);
        StoreIf(args_.f, saved + j, out.f, lanes);
        StoreIf(args_.o, saved + j, out.o, lanes);
        StoreIf(args_.ci, saved + j, out.ci, lanes);
        StoreIf(args_.co, saved + j, out.co, lanes);
        StoreIf(h, run.unit + j, out.h, lanes);
        Store(new_cs_ + state + j, out.cs, lanes);
        Store(m + state + j, out.h, lanes);
      });
      if (zoneout_) ZoneOut(step, run);
      if (!projects) context_.h.Finish(step, run);
    });
  }

  void ZoneOut(int64_t step, const GateRun<C>& run) const {
    C* const cs = cs_ + run.row * units_ + run.unit;
    zoneout_.Apply(
        zoneout_.Draws(step, run.row), run.unit, run.count, cs,
        new_cs_ + (cs - cs_), cs,
        args_.cs == nullptr ? nullptr : args_.cs + SavedAt(step, run));
  }

  // A masked step has no gates, and carries the states.
  void Masked(int64_t step, const GateRun<C>& run) const {
    const int64_t saved = SavedAt(step, run);
    for (T* out : {args_.i, args_.f, args_.o, args_.ci, args_.co}) {
      if (out != nullptr) ZeroRow(run.count, out + saved);
    }
    if (args_.cs != nullptr) {
      CopyRow(cs_ + run.row * units_ + run.unit, run.count, args_.cs + saved);
    }
    if (m_ == nullptr) context_.h.Carry(step, run);
  }

  int64_t SavedAt(int64_t step, const GateRun<C>& run) const {
    return context_.rows.SavedRow(step, run.row) * units_ + run.unit;
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const bool has_others_;          // other activations than the engine's
  const StateZoneout<C> zoneout_;  // of cs
  C* const cs_;                    // [B, H]
  C* const new_cs_;  // [B, H], before its zoneout; cs_ without one
  C* const m_;       // [B, H], what is projected; nullptr without a projection
};

// Stage 0:  x · w_x + b + h · w_h  →  the gates, cs, m = o ∘ tanh(cs), and then
//           the zoneout of cs
// Stage 1:  m · w_pᵀ  →  h         with a projection; else h is m
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LstmForwardCell : public ForwardCell<StorageType> {
 public:
  using T = StorageType;
  using P = Element;
  using Args = LstmSequenceForwardArgs<T>;
  using Panels = LstmPanels<T, P>;
  using C = ComputeType<T>;
  using Context = ForwardContext<T, kLstmGates>;
  static constexpr int kGates = kLstmGates;
  static constexpr bool kOneGemm = true;

  static ForwardShape Shape(const Args& args) {
    const int64_t width = Panels::Width(args);
    return {width, args.proj > 0 ? 2 : 1,
            static_cast<double>(kLstmGates * width + args.proj), kLstmGates};
  }

  LstmForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        packed_(args, context.panels, context.packing),
        x_(context, packed_.x, context.factors.width()),
        m_rows_(context.scratch, MostStepWorkers(context.executor),
                args.shape.batch, packed_.w_p.depth()),
        epilogue_(args, context) {}

  Status BeginBlock(const StepBlock& block) {
    return x_.BeginBlock(block, args_.x);
  }

  void Step(int64_t step, int stage, Share share, Range rows) const {
    if (stage == 0) {
      x_.Multiply(step, context_.h.Operand(step), packed_.w_h, share, rows,
                  [&](const GateTile<C>& tile, const RowView<C>&) {
                    Cells(step, tile);
                  });
    } else {
      MultiplyPacked(
          m_rows_({epilogue_.Projected()}, rows, share.piece), packed_.w_p,
          share.RangeOf(packed_.w_p.panels()), rows, share.piece, BeginAtZero(),
          [&](const GateTile<C>& tile) { epilogue_.Project(step, tile); });
    }
  }

  void Block(const StepBlock& block, const RowView<C>& states,
             Share share) const {
    StepCursor step(context_.rows, block);
    x_.Multiply(block.first, {states}, packed_.w_h, share, {0, block.rows},
                [&](const GateTile<C>& tile, const RowView<C>&) {
                  step.ForEachStep(tile, [&](const GateTile<C>& part) {
                    Cells(step.step(), part);
                  });
                });
  }

  std::array<T*, 6> SavedForBackward() const {
    return {args_.i, args_.cs, args_.f, args_.o, args_.ci, args_.co};
  }

  CellState<T> State() const {
    return {epilogue_.cs(), args_.cs_prev, args_.cs, args_.cs_last};
  }

 private:
  void Cells(int64_t step, const GateTile<C>& tile) const {
    epilogue_.template Run<Activations>(step, tile);
  }

  const Args& args_;
  const Context context_;
  const Panels packed_;
  InputGemm<T, kLstmGates, false, P> x_;
  const StepRows<T, P> m_rows_;
  const LstmEpilogue<T> epilogue_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_
