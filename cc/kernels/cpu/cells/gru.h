// Implements a GRU, reset before the GEMM, over a sequence on the CPU, forward
// and backward, as cells of sequence_forward.h and sequence_backward.h. The
// equations are in cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/cells/other_activations.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

// The weights of a GRU, reset before the GEMM, in panels of elements P.
template <class T, class P>
struct GruPanels {
  using Args = GruSequenceForwardArgs<T>;

  GruPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : GruPanels(
            args.shape, GruColumnsOf(args.w_x, args.w_c_x, args.shape.units),
            GruColumnsOf(args.w_h, args.w_c_h, args.shape.units),
            GruColumnsOf(args.b, args.b_c, args.shape.units), memory, packing) {
  }

  PackedWeights<T, kGruGates, P> w_ru_h;
  PackedWeights<T, 1, P> w_c_h;
  InputPanels<T, kGruGates, false, P> x_ru;
  InputPanels<T, 1, false, P> x_c;

 private:
  using Columns = GruColumns<const T>;

  GruPanels(const SequenceShape& shape, const Columns& w_x, const Columns& w_h,
            const Columns& b, PanelMemory* memory, const Packing& packing)
      : w_ru_h(memory, WeightView<T>{w_h.ru, w_h.ld_ru}, shape.units,
               shape.units, packing.StateUses()),
        w_c_h(memory, WeightView<T>{w_h.c, w_h.ld_c}, shape.units, shape.units,
              packing.uses),
        x_ru(memory, shape, {{w_x.ru, w_x.ld_ru}, b.ru}, packing),
        x_c(memory, shape,
            {{w_x.c, w_x.ld_c}, b.c, nullptr, kGruGates * shape.units},
            packing) {}
};

// What the GRU does with the results of its GEMMs, whatever the elements of its
// weights were.
template <class T>
class GruEpilogue {
 public:
  using Args = GruSequenceForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, kGruGates>;

  GruEpilogue(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        has_others_(args.activations),
        u_(context.scratch->template Array<C>(args.shape.batch * units_)),
        h_r_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  template <class Activations>
  EIGEN_ALWAYS_INLINE void Gates(int64_t step, const GateTile<C>& tile) const {
    if constexpr (kMayHaveOthers<T, Activations>) {
      if (EIGEN_PREDICT_FALSE(has_others_)) {
        return GatesWith<OtherActivations<V>>(step, tile);
      }
    }
    GatesWith<Activations>(step, tile);
  }

  // The left operand of the candidate's GEMM.
  RowView<C> ResetState() const { return {h_r_, units_}; }

  // May write h in place: the first stage of this step has read it.
  template <class Activations>
  EIGEN_ALWAYS_INLINE void Candidate(int64_t step,
                                     const GateTile<C>& tile) const {
    if constexpr (kMayHaveOthers<T, Activations>) {
      if (EIGEN_PREDICT_FALSE(has_others_)) {
        return CandidateWith<OtherActivations<V>>(step, tile);
      }
    }
    CandidateWith<Activations>(step, tile);
  }

 private:
  static constexpr int kCandidate = kGruGates;  // its dropout factors

  template <class Activations>
  EIGEN_DONT_INLINE void GatesWith(int64_t step,
                                   const GateTile<C>& tile) const {
    const Activations activations = ActivationsOf<Activations>(args_);
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
            bar(args_.layout.r), bar(args_.layout.u), Load<C>(h + j, lanes),
            activations);
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

  template <class Activations>
  EIGEN_DONT_INLINE void CandidateWith(int64_t step,
                                       const GateTile<C>& tile) const {
    const Activations activations = ActivationsOf<Activations>(args_);
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
        GruState<V> out =
            GruForwardState<Activations>(c_bar, u, h_prev, activations);
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
  const bool has_others_;  // other activations than the engine's
  C* const u_;             // [B, H]
  C* const h_r_;  // [B, H], h ∘ r, times the candidate's dropout factors
};

// Stage 0:  the columns of r, u of x · w_x + b + h · w_h  →  r, u, h ∘ r
// Stage 1:  those of c of x · w_x + b + (h ∘ r) · w_h     →  c, h
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class GruForwardCell : public ForwardCell<StorageType> {
 public:
  using T = StorageType;
  using P = Element;
  using Args = GruSequenceForwardArgs<T>;
  using Panels = GruPanels<T, P>;
  using C = ComputeType<T>;
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
        gemm_scratch_(context.executor),
        packed_(args, context.panels, context.packing),
        x_ru_(context, packed_.x_ru, args.shape.units),
        x_c_(context, packed_.x_c, args.shape.units),
        epilogue_(args, context) {}

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
                       epilogue_.template Gates<Activations>(step, tile);
                     });
    } else {
      x_c_.Multiply(step, {epilogue_.ResetState()}, packed_.w_c_h, share, rows,
                    [&](const GateTile<C>& tile, const RowView<C>&) {
                      epilogue_.template Candidate<Activations>(step, tile);
                    });
    }
  }

  std::array<T*, 3> SavedForBackward() const {
    return {args_.r, args_.u, args_.c};
  }

 private:
  const Args& args_;
  const Context context_;
  GemmScratch<T> gemm_scratch_;
  const Panels packed_;
  InputGemm<T, kGruGates, false, P> x_ru_;
  InputGemm<T, 1, false, P> x_c_;
  const GruEpilogue<T> epilogue_;
};

// Of w_h there are the columns of r, u in stage 0, those of c in stage 1.
//
// Stage 0:  dz · w_hᵀ of the next step, dz = [d_r_bar d_u_bar]
//             →  d_h, d_c_bar, d_u_bar
// Stage 1:  d_c_bar · w_hᵀ  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
// and for a block:  [w_h_grad; b_grad], columns of c, += [h ∘ r, 1]ᵀ · d_c_bar
template <class StorageType>
class GruBackwardCell : public BackwardCell<StorageType> {
 public:
  using T = StorageType;
  using Args = GruSequenceBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, kGruGates>;
  static constexpr int kGates = kGruGates;

  static BackwardShape<T> Shape(const Args& args) {
    const int64_t units = args.shape.units;
    const auto w_h = GruColumnsOf(args.w_h, args.w_c_h, units);
    return {units,
            2,
            static_cast<double>(units) * (kGruGates + 1),
            w_h.ru,
            args.w_h_grad,
            args.b_grad,
            w_h.ld_ru};
  }

  GruBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        w_x_(GruColumnsOf(args.w_x, args.w_c_x, units_)),
        w_h_(GruColumnsOf(args.w_h, args.w_c_h, units_)),
        w_c_h_t_(PanelMemory(context.executor, context.scratch),
                 WeightView<T>{w_h_.c, w_h_.ld_c, true}, units_, units_,
                 context.weight_uses),
        w_ru_x_grad_(context.scratch, args.shape, args.w_x_grad,
                     kGruGates * units_, w_x_.ld_ru),
        w_c_x_grad_(context.scratch, args.shape,
                    GruColumnsOf(args.w_x_grad, args.w_c_x_grad, units_).c,
                    units_, w_x_.ld_c),
        w_c_h_grad_(context.scratch,
                    GruColumnsOf(args.w_h_grad, args.w_c_h_grad, units_).c,
                    units_, units_, w_h_.ld_c),
        b_c_grad_(context.scratch,
                  GruColumnsOf(args.b_grad, args.b_c_grad, units_).c, 1,
                  units_),
        d_c_(BlockArray()),
        h_r_(BlockArray()),
        h_r_t_(context.scratch->template Array<C>(
            context.operands.TransposedSize(units_))),
        d_h_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    WithFlag(static_cast<bool>(context_.zoneout),
             [&](auto zones) { StateGrad<zones()>(step, tile); });
  }

  void SecondStage(int64_t step, Share share, Range rows) const {
    const C* const d_c = d_c_ + context_.operands.FirstRow(step) * units_;
    MultiplyPacked({{d_c, units_}}, w_c_h_t_, share.RangeOf(w_c_h_t_.panels()),
                   rows, share.piece, BeginAtZero(),
                   [&](const GateTile<C>& tile) { ResetGrad(step, tile); });
  }

  std::array<InputGradPart<T>, 2> InputParts() const {
    return {InputGradPart<T>{context_.dz.data(), kGruGates * units_, kGruGates,
                             WeightView<T>{w_x_.ru, w_x_.ld_ru, true},
                             w_ru_x_grad_.sums(), w_ru_x_grad_.ld()},
            InputGradPart<T>{d_c_, units_, 1,
                             WeightView<T>{w_x_.c, w_x_.ld_c, true},
                             w_c_x_grad_.sums(), w_c_x_grad_.ld()}};
  }

  RowSum<C> MoreWeights() const {
    context_.operands.Transpose(
        [&](int64_t m) {
          return context_.operands.IsMasked(m) ? nullptr : h_r_ + m * units_;
        },
        units_, h_r_t_);
    return {h_r_t_,
            units_,
            {d_c_, units_},
            units_,
            w_c_h_grad_.sums(),
            w_c_h_grad_.ld(),
            b_c_grad_.sums()};
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    for (const auto* grad :
         {&w_ru_x_grad_, &w_c_x_grad_, &w_c_h_grad_, &b_c_grad_}) {
      f(*grad);
    }
  }

 private:
  static constexpr int kCandidate = kGruGates;  // its dropout factors

  // Where the units of a run are.
  struct Places {
    Places(const GruBackwardCell& cell, int64_t step, const GateRun<C>& run)
        : masked(cell.context_.rows.IsMasked(step, run.row)),
          saved(cell.context_.rows.SavedRow(step, run.row) * cell.units_ +
                run.unit),
          state(run.row * cell.units_ + run.unit),
          block((cell.context_.operands.FirstRow(step) + run.row) *
                    cell.units_ +
                run.unit),
          h_prev(cell.context_.operands.PreviousState(step, run.row) +
                 run.unit),
          dz(cell.context_.dz.Step(step) + run.row * kGruGates * cell.units_ +
             run.unit) {}

    bool masked;
    int64_t saved;    // in what the forward pass saved
    int64_t state;    // in [B, H]
    int64_t block;    // in [block rows, H]
    const T* h_prev;  // the state before the step
    C* dz;            // of the first gate
  };

  template <bool kZoneout>
  EIGEN_ALWAYS_INLINE void StateGrad(int64_t step,
                                     const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const Places at(*this, step, run);
      const int64_t memory =
          context_.rows.MemoryRow(step, run.row) * units_ + run.unit;
      const uint8_t* const draws =
          kZoneout ? context_.zoneout.Draws(step, run.row) : nullptr;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V d_h = Load<C>(run.gates + j, lanes) +
                Load<C>(context_.d_h + at.state + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + memory + j, lanes);
        }
        if constexpr (kZoneout) {
          // What is kept of a masked step is all in d_h_.
          const V kept =
              at.masked ? V(0)
                        : context_.zoneout.Kept(draws, run.unit + j, lanes);
          Store(context_.d_h + at.state + j, kept * d_h, lanes);
          d_h = (V(1) - kept) * d_h;
        }
        const V h_prev = Load<C>(at.h_prev + j, lanes);
        const V r = Load<C>(args_.r + at.saved + j, lanes);
        GruStateGrad<V> out =
            GruBackwardState(d_h, Load<C>(args_.u + at.saved + j, lanes),
                             Load<C>(args_.c + at.saved + j, lanes), h_prev);
        if (at.masked) out = {V(0), V(0)};
        Store(d_h_ + at.state + j, d_h, lanes);
        Store(d_c_ + at.block + j, out.d_c_bar, lanes);
        Store(at.dz + args_.layout.u * units_ + j, out.d_u_bar, lanes);
        Store(h_r_ + at.block + j, h_prev * r * CandidateFactors(run, j, lanes),
              lanes);
      });
    });
  }

  void ResetGrad(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const Places at(*this, step, run);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V d_hr =
            Load<C>(run.gates + j, lanes) * CandidateFactors(run, j, lanes);
        const V d_h = Load<C>(d_h_ + at.state + j, lanes);
        const V r = Load<C>(args_.r + at.saved + j, lanes);
        const V u = Load<C>(args_.u + at.saved + j, lanes);
        const V d_r_bar =
            GruBackwardReset(d_hr, Load<C>(at.h_prev + j, lanes), r);
        const V d_kept = context_.zoneout
                             ? Load<C>(context_.d_h + at.state + j, lanes)
                             : V(0);
        const V d_h_prev = GruBackwardPrevious(d_kept, d_hr, r, d_h, u);
        Store(at.dz + args_.layout.r * units_ + j, at.masked ? V(0) : d_r_bar,
              lanes);
        Store(context_.d_h + at.state + j, at.masked ? d_h : d_h_prev, lanes);
      });
    });
  }

  C* BlockArray() const {
    return context_.scratch->template Array<C>(context_.rows.MaxRowsInBlock() *
                                               units_);
  }
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V CandidateFactors(const GateRun<C>& run, int64_t j,
                                         Lanes lanes) const {
    return context_.factors.Factors(kCandidate, run.row, run.unit + j, lanes);
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const GruColumns<const T> w_x_;
  const GruColumns<const T> w_h_;
  const PackedWeights<T, 1> w_c_h_t_;  // w_hᵀ, columns of c
  const WeightGrad<T> w_ru_x_grad_;    // [I, 2H]
  const WeightGrad<T> w_c_x_grad_;     // [I, H]
  const WeightGrad<T> w_c_h_grad_;     // [H, H]
  const WeightGrad<T> b_c_grad_;       // [H]
  C* const d_c_;    // [block rows, H], of the candidate's pre-activation
  C* const h_r_;    // [block rows, H], h_prev ∘ r ∘ the candidate's factors
  C* const h_r_t_;  // [H + 1, block rows], the last row ones
  C* const d_h_;    // [B, H]
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_H_
