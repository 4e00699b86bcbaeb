// Owns the backward pass of a GRU, reset before the product, over a whole
// sequence on the CPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_BACKWARD_H_

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
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

// For each block of steps, the last one first; for each step two stages:
//   [d_r_bar d_u_bar] · w_ru_hᵀ of the step after it  →  d_h, d_c_bar, d_u_bar
//   d_c_bar · w_c_hᵀ  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
// then for all steps of the block
//   x_grad = [d_r_bar d_u_bar] · w_ru_xᵀ + d_c_bar · w_c_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruSequenceBackward(const GruSequenceBackwardArgs<T>& args,
                      const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(shape_.units),
        ld_ru_(kGruGates * units_),
        scratch_(host),
        memory_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        w_ru_h_t_(host, &scratch_, rows_,
                  WeightView<T>{args.w_ru_h, ld_ru_, true}, units_, factors_),
        w_c_h_t_(host, &scratch_, WeightView<T>{args.w_c_h, units_, true}, {0},
                 units_, units_, rows_.FewUses()),
        operands_(host, &scratch_, shape_, rows_,
                  {args.h, units_, args.h_prev, units_, !factors_}),
        dropped_(host, &scratch_, rows_, operands_, factors_),
        d_ru_(&scratch_, rows_, ld_ru_),
        d_c_(scratch_.Array<C>(rows_.MostRowsInBlock() * units_)),
        h_r_(scratch_.Array<C>(rows_.MostRowsInBlock() * units_)),
        h_r_t_(scratch_.Array<C>(operands_.TransposedSize(units_))),
        d_h_(scratch_.Array<C>(shape_.batch * units_)),
        d_h_before_(scratch_.Array<C>(shape_.batch * units_)),
        w_ru_x_grad_(&scratch_, XGrad(args.w_ru_x_grad), shape_.input, ld_ru_),
        w_ru_h_grad_(&scratch_, args.w_ru_h_grad, units_, ld_ru_),
        w_c_x_grad_(&scratch_, XGrad(args.w_c_x_grad), shape_.input, units_),
        w_c_h_grad_(&scratch_, args.w_c_h_grad, units_, units_),
        b_ru_grad_(&scratch_, args.b_ru_grad, 1, ld_ru_),
        b_c_grad_(&scratch_, args.b_c_grad, 1, units_) {}

  Status Run() {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    Begin();
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      d_ru_.Enter(block);
      operands_.Enter(block, args_.x);
      Status status = Steps(block);
      if (status == Status::kOk) status = Weights();
      if (status != Status::kOk) return status;
    }
    Finish();
    return Status::kOk;
  }

 private:
  static constexpr int kCandidate = kGruGates;  // its factors

  T* XGrad(T* grad) const { return shape_.HasInputWeights() ? grad : nullptr; }

  template <class F>
  void ForEachGrad(const F& f) const {
    for (const auto* grad : {&w_ru_x_grad_, &w_ru_h_grad_, &w_c_x_grad_,
                             &w_c_h_grad_, &b_ru_grad_, &b_c_grad_}) {
      f(*grad);
    }
  }

  StateGrads<T> HGrads() const { return {args_.h_grad, units_, units_}; }

  void Begin() {
    BeginStates(host_, rows_, args_.h_last_grad, HGrads(), d_h_before_);
    ZeroUnused(host_, rows_, args_.x_grad, shape_.input, shape_.input);
    ForEachGrad([&](const auto& grad) { grad.Begin(rows_); });
  }

  Status Steps(const StepBlock& block) {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.stages = 2;
    loop.rows = shape_.batch;
    loop.panels = w_c_h_t_.panels();
    loop.multiplies =
        static_cast<double>(shape_.batch) * units_ * units_ * (kGruGates + 1);
    const StepSplit split = ChooseSplit(loop, host_.num_threads);
    loop.steps = block.steps;
    return RunSteps(host_, loop, split, rows_,
                    [&](int64_t k, int stage, Share share, Range all) {
                      const int64_t step = block.end() - 1 - k;
                      const Range panels = share.Of(w_c_h_t_.panels());
                      if (stage == 0) {
                        State(step, panels, rows_.At(step, all));
                      } else {
                        Reset(step, panels, rows_.At(step, all));
                      }
                    });
  }

  bool Skipped(int64_t step, int64_t b) const { return rows_.Skipped(step, b); }
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V Factor(int64_t b, int64_t unit, Lanes lanes) const {
    return factors_.At(kCandidate, b, unit, lanes);
  }
  // The first row of a step, among the block's.
  int64_t First(int64_t step) const { return operands_.block().Of(step); }

  void State(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = Skipped(step, run.row);
      const int64_t at = rows_.InMemory(step, run.row) * units_ + run.unit;
      const int64_t saved = rows_.Saved(step, run.row) * units_ + run.unit;
      const int64_t state = run.row * units_ + run.unit;
      const int64_t block = (First(step) + run.row) * units_ + run.unit;
      const T* h_prev = operands_.Before(step, run.row) + run.unit;
      C* d_u = d_ru_.Of(step) + run.row * ld_ru_ + kGruRu.u * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V d_h = Load<C>(run.gates + j, lanes) +
                Load<C>(d_h_before_ + state + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        const V before = Load<C>(h_prev + j, lanes);
        GruStateGrad<V> out =
            GruBackwardState(d_h, Load<C>(args_.u + saved + j, lanes),
                             Load<C>(args_.c + saved + j, lanes), before);
        if (skip) out = {V(0), V(0)};
        Store(d_h_ + state + j, d_h, lanes);
        Store(d_c_ + block + j, out.d_c_bar, lanes);
        Store(d_u + j, out.d_u_bar, lanes);
        const V r = Load<C>(args_.r + saved + j, lanes);
        Store(h_r_ + block + j,
              before * r * Factor(run.row, run.unit + j, lanes), lanes);
      });
    };
    w_ru_h_t_.MultiplyStepAfter(step, d_ru_.Of(step + 1), panels, rows,
                                epilogue);
  }

  void Reset(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = Skipped(step, run.row);
      const int64_t saved = rows_.Saved(step, run.row) * units_ + run.unit;
      const int64_t state = run.row * units_ + run.unit;
      const T* h_prev = operands_.Before(step, run.row) + run.unit;
      C* d_r = d_ru_.Of(step) + run.row * ld_ru_ + kGruRu.r * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V d_hr = Load<C>(run.gates + j, lanes) *
                       Factor(run.row, run.unit + j, lanes);
        const V r = Load<C>(args_.r + saved + j, lanes);
        const V d_h = Load<C>(d_h_ + state + j, lanes);
        const V d_r_bar = GruBackwardReset(d_hr, Load<C>(h_prev + j, lanes), r);
        const V d_h_before = GruBackwardPrevious(
            V(0), d_hr, r, d_h, Load<C>(args_.u + saved + j, lanes));
        Store(d_r + j, skip ? V(0) : d_r_bar, lanes);
        Store(d_h_before_ + state + j, skip ? d_h : d_h_before, lanes);
      });
    };
    MultiplyPacked({{d_c_ + First(step) * units_, units_}}, w_c_h_t_, panels,
                   rows, BeginAtZero(), RowByRow{epilogue});
  }

  Status Weights() {
    const int64_t rows = operands_.rows();
    const SummedRows summed = operands_.summed();
    const int64_t input = operands_.input();
    operands_.Transpose(
        [&](int64_t m) {
          return operands_.Kept(m) ? h_r_ + m * units_ : nullptr;
        },
        units_, h_r_t_);
    Product<T, 1> to_x;
    to_x.rows = shape_.HasInputWeights() ? rows : 0;
    to_x.units = input;
    to_x.num_parts = 2;
    to_x.parts[0] = {
        {d_ru_.data(), ld_ru_}, ld_ru_, {args_.w_ru_x, ld_ru_, true}};
    to_x.parts[1] = {{d_c_, units_}, units_, {args_.w_c_x, units_, true}};
    StoreGates<T>(host_, shape_, operands_.block(),
                  {{d_ru_.data(), ld_ru_},
                   {d_ru_.data() + units_, ld_ru_},
                   {d_c_, units_}},
                  args_.x_grad);
    const Status status = dropped_.AddGradients(
        d_ru_.data(), units_, w_ru_h_grad_.sums(), b_ru_grad_.sums(), &memory_);
    if (status != Status::kOk) return status;
    const StoreBlockRows<T> store_x = {operands_.block(), args_.x_grad, input};
    const WeightView<C> d_ru = {d_ru_.data(), ld_ru_};
    const WeightView<C> d_c = {d_c_, units_};
    return RunProducts(
        host_, &memory_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<T>({operands_.x_t(), input, summed, d_ru, ld_ru_,
                        w_ru_x_grad_.sums(), ld_ru_, nullptr}),
        SumOverRows<T>({operands_.x_t(), input, summed, d_c, units_,
                        w_c_x_grad_.sums(), units_, nullptr}),
        SumOverRows<T>({operands_.h_t(), units_, summed, d_ru, ld_ru_,
                        factors_ ? nullptr : w_ru_h_grad_.sums(), ld_ru_,
                        factors_ ? nullptr : b_ru_grad_.sums()}),
        SumOverRows<T>({h_r_t_, units_, summed, d_c, units_, w_c_h_grad_.sums(),
                        units_, b_c_grad_.sums()}));
  }

  void Finish() {
    FinishStates(host_, rows_, HGrads(), d_h_before_);
    w_ru_h_t_.MultiplyFirstStep(
        host_, d_ru_.data(),
        StoreStateGrad<T>{rows_, d_h_before_, units_, args_.h_prev_grad});
    ForEachGrad([&](const auto& grad) { grad.Finish(host_); });
  }

  const GruSequenceBackwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t ld_ru_;
  Scratch scratch_;
  ProductMemory<T> memory_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;  // of gates r, u, c
  const StateGradWeights<T, kGruGates> w_ru_h_t_;
  const PackedWeights<T, 1> w_c_h_t_;  // w_c_hᵀ
  BlockOperands<T> operands_;
  const DroppedStates<T, kGruGates> dropped_;
  BlockGradients<C> d_ru_;  // [block rows + B, 2H], pre-activations
  C* d_c_;                  // [block rows, H], pre-activations
  C* h_r_;         // [block rows, H], h before the step ∘ r ∘ factors of c
  C* h_r_t_;       // [H + 1, block rows], the last row ones
  C* d_h_;         // [B, H]
  C* d_h_before_;  // [B, H], less what comes through r̄ and ū
  const WeightGrad<T> w_ru_x_grad_;
  const WeightGrad<T> w_ru_h_grad_;
  const WeightGrad<T> w_c_x_grad_;
  const WeightGrad<T> w_c_h_grad_;
  const WeightGrad<T> b_ru_grad_;
  const WeightGrad<T> b_c_grad_;
};

}  // namespace internal

template <class T>
Status GruSequenceBackward(const GruSequenceBackwardArgs<T>& args,
                           const HostInterface& host) {
  return internal::GruSequenceBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_BACKWARD_H_
