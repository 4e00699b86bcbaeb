// Implements the backward pass of an LSTM over a sequence on the CPU, as a cell
// of sequence_backward.h. The equations are in cc/core/lstm_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/cells/lstm_peepholes.h"
#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

// Stage 0:  dz · w_hᵀ of the next step  →  d_h
// Stage 1:  d_h · w_p  →  d_m              with a projection; else d_m is d_h
// then      d_m  →  dz = [di dci df do], in the layout's order
// and for a block:  w_p_grad += d_hᵀ · m
template <class StorageType>
class LstmBackwardCell : public BackwardCell<StorageType> {
 public:
  using T = StorageType;
  using Args = LstmSequenceBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, kLstmGates>;
  static constexpr int kGates = kLstmGates;

  static BackwardShape<T> Shape(const Args& args) {
    const bool projects = args.proj > 0;
    const int64_t units = args.shape.units;
    return {projects ? args.proj : units,
            projects ? 2 : 1,
            static_cast<double>(kLstmGates * units + (projects ? units : 0)),
            args.w_h,
            args.w_h_grad,
            args.b_grad};
  }

  LstmBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        projects_(args.proj > 0),
        units_(args.shape.units),
        width_(context.factors.width()),
        cell_clip_(static_cast<C>(args.options.cell_clip)),
        w_p_(PanelMemory(context.executor, context.scratch),
             WeightView<T>{args.w_p, units_}, args.proj, projects_ ? units_ : 0,
             context.weight_uses),
        w_x_grad_(context.scratch, args.shape, args.w_x_grad,
                  kLstmGates * units_),
        w_p_grad_(context.scratch, projects_ ? args.w_p_grad : nullptr, width_,
                  units_),
        zoneout_(context.rows, args.zoneout_c, units_),
        zones_(zoneout_ || context.zoneout),
        cs_grad_(
            context.scratch->template Array<C>(args.shape.batch * units_)) {
    Scratch* const scratch = context.scratch;
    if (args.options.use_peephole) {
      peephole_grads_ = scratch->Array<C>(3 * args.shape.batch * units_);
    }
    if (projects_) {
      const int64_t rows = context.rows.MaxRowsInBlock();
      d_h_ = scratch->Array<C>(rows * width_);
      d_h_t_ = scratch->Array<C>(context.operands.TransposedSize(width_));
      m_ = scratch->Array<C>(rows * units_);
    }
  }

  StateGradient<T> CellGrad() const {
    return {cs_grad_,           units_,
            args_.cs_grad,      units_,
            args_.cs_last_grad, args_.cs_prev_grad};
  }

  void Begin() const {
    if (args_.options.use_peephole) {
      ZeroRow(3 * args_.shape.batch * units_, peephole_grads_);
    }
  }

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    WithFlag(zones_, [&](auto zones) {
      constexpr bool kZoneout = zones();
      tile.ForEachRow([&](const GateRun<C>& run) {
        const uint8_t* const draws =
            kZoneout ? context_.zoneout.Draws(step, run.row) : nullptr;
        if (projects_) {
          StoreDH<kZoneout>(step, run, draws);
          return;
        }
        GateGrads<kZoneout>(step, run, [&](int64_t j, auto lanes) {
          return DH<kZoneout>(step, run, draws, j, lanes);
        });
      });
    });
  }

  void SecondStage(int64_t step, Share share, Range rows) const {
    const C* const d_h = d_h_ + context_.operands.FirstRow(step) * width_;
    MultiplyPacked({{d_h, width_}}, w_p_, share.RangeOf(w_p_.panels()), rows,
                   share.piece, BeginAtZero(), [&](const GateTile<C>& tile) {
                     WithFlag(zones_, [&](auto zones) {
                       tile.ForEachRow([&](const GateRun<C>& run) {
                         GateGrads<zones()>(
                             step, run, [&](int64_t j, auto lanes) {
                               return Load<C>(run.gates + j, lanes);
                             });
                       });
                     });
                   });
  }

  std::array<InputGradPart<T>, 1> InputParts() const {
    return {InputGradOf(args_.shape, args_.w_x, context_.dz.data(), kLstmGates,
                        w_x_grad_.sums())};
  }

  RowSum<C> MoreWeights() const {
    if (!projects_) return {};
    context_.operands.Transpose([&](int64_t m) { return d_h_ + m * width_; },
                                width_, d_h_t_);
    return {d_h_t_, width_, {m_, units_}, units_, w_p_grad_.sums(), units_};
  }

  void Finish() const {
    if (!args_.options.use_peephole) return;
    const int64_t batch = args_.shape.batch;
    T* const grads[3] = {args_.wci_grad, args_.wcf_grad, args_.wco_grad};
    for (int which = 0; which < 3; ++which) {
      SumRows(peephole_grads_ + which * batch * units_, batch, units_,
              grads[which]);
    }
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
    f(w_p_grad_);
  }

 private:
  // d_h of a step's new state; a masked step passes it on to the previous one,
  // and zoneout its share.
  template <bool kZoneout, class Lanes>
  EIGEN_ALWAYS_INLINE V DH(int64_t step, const GateRun<C>& run,
                           const uint8_t* draws, int64_t j, Lanes lanes) const {
    const SequenceRows& rows = context_.rows;
    C* const carried = context_.d_h + run.row * width_ + run.unit + j;
    V d_h = Load<C>(run.gates + j, lanes);
    if (args_.h_grad != nullptr) {
      const int64_t at =
          rows.MemoryRow(step, run.row) * context_.ld_h + run.unit;
      d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
    }
    d_h = d_h + Load<C>(carried, lanes);
    if constexpr (kZoneout) {
      if (!rows.IsMasked(step, run.row)) {
        const V kept = context_.zoneout.Kept(draws, run.unit + j, lanes);
        Store(carried, kept * d_h, lanes);
        return (V(1) - kept) * d_h;
      }
    }
    Store(carried, rows.IsMasked(step, run.row) ? d_h : V(0), lanes);
    return d_h;
  }

  template <bool kZoneout>
  void StoreDH(int64_t step, const GateRun<C>& run,
               const uint8_t* draws) const {
    const bool masked = context_.rows.IsMasked(step, run.row);
    C* const d_h = d_h_ + BlockRow(step, run.row) * width_ + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V out = DH<kZoneout>(step, run, draws, j, lanes);
      Store(d_h + j, masked ? V(0) : out, lanes);
    });
  }

  template <bool kZoneout, class DM>
  void GateGrads(int64_t step, const GateRun<C>& run, const DM& d_m) const {
    WithFlag(args_.options.use_peephole, [&](auto peephole) {
      GateGrads<peephole(), kZoneout>(step, run, d_m);
    });
  }

  template <bool kPeephole, bool kZoneout, class DM>
  EIGEN_ALWAYS_INLINE void GateGrads(int64_t step, const GateRun<C>& run,
                                     const DM& d_m) const {
    const SequenceRows& rows = context_.rows;
    const int64_t saved_at = rows.SavedRow(step, run.row) * units_ + run.unit;
    const int64_t cs_grad_at =
        rows.MemoryRow(step, run.row) * units_ + run.unit;
    const bool masked = rows.IsMasked(step, run.row);
    const T* const cs_prev =
        (step == 0 ? rows.FirstState(args_.cs_prev, units_, run.row)
                   : args_.cs + rows.SavedRow(step - 1, run.row) * units_) +
        run.unit;
    const uint8_t* const draws =
        kZoneout ? zoneout_.Draws(step, run.row) : nullptr;
    C* const cs_grads = cs_grad_ + run.row * units_ + run.unit;
    C* const dz =
        context_.dz.Step(step) + run.row * kLstmGates * units_ + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V h_grad = d_m(j, lanes);
      V cs_grad = Load<C>(cs_grads + j, lanes);
      if (args_.cs_grad != nullptr) {
        cs_grad = cs_grad + Load<C>(args_.cs_grad + cs_grad_at + j, lanes);
      }
      if (masked) {
        Store(cs_grads + j, cs_grad, lanes);
        StoreGates(dz + j, {V(0), V(0), V(0), V(0), V(0)}, lanes);
        StoreM(step, run, j, V(0), lanes);
        return;
      }
      const auto saved_value = [&](const T* p) {
        return Load<C>(p + saved_at + j, lanes);
      };
      LstmStep<V> saved;
      saved.i = saved_value(args_.i);
      saved.cs = saved_value(args_.cs);
      saved.f = saved_value(args_.f);
      saved.o = saved_value(args_.o);
      saved.ci = saved_value(args_.ci);
      const V previous = Load<C>(cs_prev + j, lanes);
      V kept_grad(0);
      if constexpr (kZoneout) {
        if (zoneout_) {
          // What is saved is the state after it.
          saved.cs = NewCs(saved, previous);
          const V kept = zoneout_.Kept(draws, run.unit + j, lanes);
          kept_grad = kept * cs_grad;
          cs_grad = (V(1) - kept) * cs_grad;
        }
      }
      saved.co = args_.co == nullptr ? Tanh(saved.cs) : saved_value(args_.co);
      LstmStepGrad<V> out = LstmBackward<kPeephole>(
          saved, previous, cs_grad, h_grad,
          LoadPeepholes<kPeephole, C>(args_, run.unit + j, lanes));
      if constexpr (kZoneout) out.cs_prev_grad = out.cs_prev_grad + kept_grad;
      StoreGates(dz + j, out, lanes);
      Store(cs_grads + j, out.cs_prev_grad, lanes);
      StoreM(step, run, j, saved.o * saved.co, lanes);
      if constexpr (kPeephole) {
        // A sum for each row of the batch, so that rows are independent.
        const auto add = [&](int which, const V& v) {
          C* sum = peephole_grads_ +
                   (which * args_.shape.batch + run.row) * units_ + run.unit +
                   j;
          Store(sum, Load<C>(sum, lanes) + v, lanes);
        };
        add(0, out.di * previous);
        add(1, out.df * previous);
        add(2, out.d_o * saved.cs);
      }
    });
  }

  EIGEN_ALWAYS_INLINE V NewCs(const LstmStep<V>& saved,
                              const V& previous) const {
    return LstmNewCs(saved, previous, cell_clip_ > 0, V(cell_clip_));
  }

  template <class Lanes>
  EIGEN_ALWAYS_INLINE void StoreGates(C* dz, const LstmStepGrad<V>& grad,
                                      Lanes lanes) const {
    Store(dz + args_.layout.i * units_, grad.di, lanes);
    Store(dz + args_.layout.ci * units_, grad.dci, lanes);
    Store(dz + args_.layout.f * units_, grad.df, lanes);
    Store(dz + args_.layout.o * units_, grad.d_o, lanes);
  }

  // What was projected.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE void StoreM(int64_t step, const GateRun<C>& run,
                                  int64_t j, const V& m, Lanes lanes) const {
    if (m_ == nullptr) return;
    Store(m_ + BlockRow(step, run.row) * units_ + run.unit + j, m, lanes);
  }

  int64_t BlockRow(int64_t step, int64_t b) const {
    return context_.operands.FirstRow(step) + b;
  }

  const Args& args_;
  const Context context_;
  const bool projects_;
  const int64_t units_;
  const int64_t width_;  // P
  const C cell_clip_;
  const PackedWeights<T, 1> w_p_;
  const WeightGrad<T> w_x_grad_;   // [I, 4H]
  const WeightGrad<T> w_p_grad_;   // [P, H]
  const StateZoneout<C> zoneout_;  // of cs
  const bool zones_;               // of either state
  C* const cs_grad_;               // [B, H], from the next step
  C* peephole_grads_ = nullptr;    // [3, B, H]
  C* d_h_ = nullptr;               // [block rows, P], with a projection
  C* d_h_t_ = nullptr;  // [P + 1, block rows], the last row ones, with one
  C* m_ = nullptr;      // [block rows, H], o ∘ tanh(cs), with one
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_
