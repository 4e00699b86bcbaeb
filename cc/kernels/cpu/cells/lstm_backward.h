// Owns the backward pass of an LSTM over a whole sequence on the CPU. The
// equations are in cc/core/lstm_cell.h; here stand the order of the products
// and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/cells/lstm_block_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/recurrent_dropout.h"
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

namespace internal {

// For each block of steps, the last one first: step after step,
//   dZ · w_hᵀ of the step after it  →  d_h
//   d_h · w_p                       →  d_m    with a projection; else d_m is
//   d_h d_m  →  dZ = [di dci df do], in the layout's order
// then for all steps of the block
//   x_grad = dZ · w_xᵀ    w_x_grad += xᵀ · dZ    w_p_grad += d_hᵀ · m
//   [w_h_grad; b_grad] += [h before the step, 1]ᵀ · dZ
template <class T>
class LstmSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                       const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        projects_(args.proj > 0),
        units_(shape_.units),
        width_(projects_ ? args.proj : units_),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : width_),
        ldz_(kLstmGates * units_),
        scratch_(host),
        memory_(host),
        rows_(shape_, args.mask, &scratch_, width_),
        factors_(rows_, args.recurrent_dropout, width_),
        w_h_t_(host, &scratch_, rows_, Transposed(args.w_h, width_), units_,
               factors_),
        w_p_(host, &scratch_, WeightView<T>{args.w_p, units_}, {0}, args.proj,
             projects_ ? units_ : 0, rows_.FewUses()),
        operands_(host, &scratch_, shape_, rows_,
                  {args.h, ld_h_, args.h_prev, width_, !factors_}),
        dropped_(host, &scratch_, rows_, operands_, factors_),
        dz_(&scratch_, rows_, ldz_),
        cs_grad_(scratch_.Array<C>(shape_.batch * units_)),
        h_grad_(scratch_.Array<C>(shape_.batch * width_)),
        w_x_grad_(&scratch_, shape_.HasInputWeights() ? args.w_x_grad : nullptr,
                  shape_.input, ldz_, shape_.weights_by_unit),
        w_h_grad_(&scratch_, args.w_h_grad, width_, ldz_,
                  shape_.weights_by_unit),
        b_grad_(&scratch_, args.b_grad, 1, ldz_),
        w_p_grad_(&scratch_, projects_ ? args.w_p_grad : nullptr, width_,
                  units_) {
    if (args.use_peephole) {
      peephole_grads_ = scratch_.Array<C>(3 * shape_.batch * units_);
    }
    if (projects_) {
      const int64_t rows = rows_.MostRowsInBlock();
      d_h_ = scratch_.Array<C>(rows * width_);
      d_h_t_ = scratch_.Array<C>(operands_.TransposedSize(width_));
      m_ = scratch_.Array<C>(rows * units_);
    }
  }

  Status Run() {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    Begin();
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      dz_.Enter(block);
      operands_.Enter(block, args_.x);
      Status status = Steps(block);
      if (status == Status::kOk) status = Weights();
      if (status != Status::kOk) return status;
    }
    Finish();
    return Status::kOk;
  }

 private:
  WeightView<T> Transposed(const T* w, int64_t depth) const {
    return {w, shape_.weights_by_unit ? depth : ldz_, !shape_.weights_by_unit};
  }

  StateGrads<T> CsGrads() const { return {args_.cs_grad, units_, units_}; }
  StateGrads<T> HGrads() const { return {args_.h_grad, width_, ld_h_}; }

  void Begin() {
    BeginStates(host_, rows_, args_.cs_last_grad, CsGrads(), cs_grad_);
    BeginStates(host_, rows_, args_.h_last_grad, HGrads(), h_grad_);
    ZeroUnused(host_, rows_, args_.x_grad, shape_.input, shape_.input);
    if (args_.use_peephole) ZeroRow(3 * shape_.batch * units_, peephole_grads_);
    for (const auto* grad : {&w_x_grad_, &w_h_grad_, &b_grad_, &w_p_grad_}) {
      grad->Begin(rows_);
    }
  }

  Status Steps(const StepBlock& block) {
    StepLoop loop;
    loop.stages = projects_ ? 2 : 1;
    loop.rows = shape_.batch;
    loop.panels = w_h_t_.panels();
    loop.multiplies = static_cast<double>(shape_.batch) * width_ *
                      (ldz_ + (projects_ ? units_ : 0));
    loop.steps = rows_.steps();
    const StepSplit split = ChooseSplit(loop, host_.num_threads);
    loop.steps = block.steps;
    return RunSteps(
        host_, loop, split, rows_,
        [&](int64_t k, int stage, Share share, Range all) {
          const int64_t step = block.end() - 1 - k;
          const Range rows = rows_.At(step, all);
          if (stage == 1) {
            const auto epilogue = [&](const GateRun<C>& run) {
              Cell(step, run, [&](int64_t j, auto lanes) {
                return Load<C>(run.gates + j, lanes);
              });
            };
            MultiplyPacked({{DH(step), width_}}, w_p_, share.Of(w_p_.panels()),
                           rows, BeginAtZero(), RowByRow{epilogue});
            return;
          }
          const auto epilogue = [&](const GateRun<C>& run) {
            if (projects_) {
              Output(step, run);
            } else {
              Cell(step, run, [&](int64_t j, auto lanes) {
                return OutputGrad(step, run, j, lanes);
              });
            }
          };
          w_h_t_.MultiplyStepAfter(step, dz_.Of(step + 1),
                                   share.Of(w_h_t_.panels()), rows, epilogue);
        });
  }

  C* DH(int64_t step) const {
    return d_h_ + operands_.block().Of(step) * width_;
  }
  bool Skipped(int64_t step, int64_t b) const { return rows_.Skipped(step, b); }

  // d_h; what a skipped step has instead is handed on to the step before.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V OutputGrad(int64_t step, const GateRun<C>& run,
                                   int64_t j, Lanes lanes) {
    C* const carried = h_grad_ + run.row * width_ + run.unit + j;
    V h_grad = Load<C>(run.gates + j, lanes);
    if (args_.h_grad != nullptr) {
      const int64_t at = rows_.InMemory(step, run.row) * ld_h_ + run.unit;
      h_grad = h_grad + Load<C>(args_.h_grad + at + j, lanes);
    }
    h_grad = h_grad + Load<C>(carried, lanes);
    Store(carried, Skipped(step, run.row) ? h_grad : V(0), lanes);
    return h_grad;
  }

  void Output(int64_t step, const GateRun<C>& run) {
    const bool skip = Skipped(step, run.row);
    C* d_h = DH(step) + run.row * width_ + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V out = OutputGrad(step, run, j, lanes);
      Store(d_h + j, skip ? V(0) : out, lanes);
    });
  }

  template <class MGrad>
  void Cell(int64_t step, const GateRun<C>& run, const MGrad& m_grad) {
    WithFlag(args_.use_peephole,
             [&](auto peephole) { CellUnits<peephole()>(step, run, m_grad); });
  }

  template <bool kPeephole, class MGrad>
  EIGEN_ALWAYS_INLINE void CellUnits(int64_t step, const GateRun<C>& run,
                                     const MGrad& m_grad) {
    const int64_t saved_at = rows_.Saved(step, run.row) * units_;
    const int64_t cs_grad_at = rows_.InMemory(step, run.row) * units_;
    const bool skip = Skipped(step, run.row);
    C* dz = dz_.Of(step) + run.row * ldz_;
    const T* cs_prev = step == 0
                           ? args_.cs_prev + rows_.State(run.row) * units_
                           : args_.cs + rows_.Saved(step - 1, run.row) * units_;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const int64_t unit = run.unit + j;
      const auto saved_value = [&](const T* p) {
        return Load<C>(p + saved_at + unit, lanes);
      };
      C* const cs_grad_state = cs_grad_ + run.row * units_ + unit;
      const V h_grad = m_grad(j, lanes);
      V cs_grad = Load<C>(cs_grad_state, lanes);
      if (args_.cs_grad != nullptr) {
        cs_grad = cs_grad + Load<C>(args_.cs_grad + cs_grad_at + unit, lanes);
      }
      if (skip) {
        Store(cs_grad_state, cs_grad, lanes);
        for (int g = 0; g < kLstmGates; ++g) {
          Store(dz + g * units_ + unit, V(0), lanes);
        }
        KeepM(step, run.row, unit, V(0), lanes);
        return;
      }
      LstmStep<V> saved;
      saved.i = saved_value(args_.i);
      saved.cs = saved_value(args_.cs);
      saved.f = saved_value(args_.f);
      saved.o = saved_value(args_.o);
      saved.ci = saved_value(args_.ci);
      saved.co = args_.co == nullptr ? Tanh(saved.cs) : saved_value(args_.co);
      const V before = Load<C>(cs_prev + unit, lanes);
      const LstmStepGrad<V> out = LstmBackward<kPeephole>(
          saved, before, cs_grad, h_grad,
          LoadPeepholes<kPeephole, C>(args_.wci, args_.wcf, args_.wco, unit,
                                      lanes));
      Store(dz + args_.layout.i * units_ + unit, out.di, lanes);
      Store(dz + args_.layout.ci * units_ + unit, out.dci, lanes);
      Store(dz + args_.layout.f * units_ + unit, out.df, lanes);
      Store(dz + args_.layout.o * units_ + unit, out.d_o, lanes);
      Store(cs_grad_state, out.cs_prev_grad, lanes);
      KeepM(step, run.row, unit, saved.o * saved.co, lanes);
      if constexpr (kPeephole) {
        // A sum for each row of the batch, so that rows are independent.
        const auto add = [&](int which, const V& v) {
          C* sum = peephole_grads_ + (which * shape_.batch + run.row) * units_ +
                   unit;
          Store(sum, Load<C>(sum, lanes) + v, lanes);
        };
        add(0, out.di * before);
        add(1, out.df * before);
        add(2, out.d_o * saved.cs);
      }
    });
  }

  // What was projected.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE void KeepM(int64_t step, int64_t b, int64_t unit,
                                 const V& m, Lanes lanes) {
    if (m_ == nullptr) return;
    const int64_t row = operands_.block().Of(step) + b;
    Store(m_ + row * units_ + unit, m, lanes);
  }

  Status Weights() {
    const int64_t rows = operands_.rows();
    const SummedRows summed = operands_.summed();
    const int64_t input = operands_.input();
    const WeightView<C> dz = {dz_.data(), ldz_};
    Product<T, 1> to_x;
    to_x.rows = shape_.HasInputWeights() ? rows : 0;
    to_x.units = input;
    to_x.num_parts = 1;
    to_x.parts[0] = {{dz_.data(), ldz_}, ldz_, Transposed(args_.w_x, input)};
    StoreGates<T>(host_, shape_, operands_.block(),
                  {{dz_.data(), ldz_},
                   {dz_.data() + units_, ldz_},
                   {dz_.data() + 2 * units_, ldz_},
                   {dz_.data() + 3 * units_, ldz_}},
                  args_.x_grad);
    const Status status = dropped_.AddGradients(
        dz_.data(), units_, w_h_grad_.sums(), b_grad_.sums(), &memory_);
    if (status != Status::kOk) return status;
    if (projects_) {
      operands_.Transpose([&](int64_t m) { return d_h_ + m * width_; }, width_,
                          d_h_t_);
    }
    const StoreBlockRows<T> store_x = {operands_.block(), args_.x_grad, input};
    return RunProducts(
        host_, &memory_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<T>({operands_.x_t(), input, summed, dz, ldz_,
                        w_x_grad_.sums(), ldz_, nullptr}),
        SumOverRows<T>({operands_.h_t(), width_, summed, dz, ldz_,
                        factors_ ? nullptr : w_h_grad_.sums(), ldz_,
                        factors_ ? nullptr : b_grad_.sums()}),
        SumOverRows<T>({d_h_t_, width_, summed, WeightView<C>{m_, units_},
                        units_, w_p_grad_.sums(), units_, nullptr}));
  }

  void Finish() {
    FinishStates(host_, rows_, CsGrads(), cs_grad_);
    FinishStates(host_, rows_, HGrads(), h_grad_);
    w_h_t_.MultiplyFirstStep(
        host_, dz_.data(),
        StoreStateGrad<T>{rows_, h_grad_, width_, args_.h_prev_grad});
    for (int64_t b = 0; b < shape_.batch; ++b) {
      CopyRow(cs_grad_ + b * units_, units_,
              args_.cs_prev_grad + rows_.State(b) * units_);
    }
    for (const auto* grad : {&w_x_grad_, &w_h_grad_, &b_grad_, &w_p_grad_}) {
      grad->Finish(host_);
    }
    if (args_.use_peephole) {
      T* const grads[3] = {args_.wci_grad, args_.wcf_grad, args_.wco_grad};
      for (int which = 0; which < 3; ++which) {
        SumRows(peephole_grads_ + which * shape_.batch * units_, shape_.batch,
                units_, grads[which]);
      }
    }
  }

  const LstmSequenceBackwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const bool projects_;
  const int64_t units_;
  const int64_t width_;  // P
  const int64_t ld_h_;
  const int64_t ldz_;
  Scratch scratch_;
  ProductMemory<T> memory_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateGradWeights<T, kLstmGates> w_h_t_;
  const PackedWeights<T, 1> w_p_;
  BlockOperands<T> operands_;
  const DroppedStates<T, kLstmGates> dropped_;
  BlockGradients<C> dz_;          // [block rows + B, 4H]
  C* cs_grad_;                    // [B, H], from the step after
  C* h_grad_;                     // [B, P], what skipped steps hand on
  const WeightGrad<T> w_x_grad_;  // [I, 4H]
  const WeightGrad<T> w_h_grad_;  // [P, 4H]
  const WeightGrad<T> b_grad_;    // [4H]
  const WeightGrad<T> w_p_grad_;  // [P, H]
  C* peephole_grads_ = nullptr;   // [3, B, H]
  C* d_h_ = nullptr;              // [block rows, P], with a projection
  C* d_h_t_ = nullptr;  // [P + 1, block rows], the last row ones, with one
  C* m_ = nullptr;      // [block rows, H], o ∘ tanh(cs), with one
};

}  // namespace internal

template <class T>
Status LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                            const HostInterface& host) {
  return internal::LstmSequenceBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BACKWARD_H_
