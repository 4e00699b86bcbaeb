// Owns a simple RNN over a whole sequence on the CPU, forward and backward. The
// equations are in cc/core/simple_rnn_cell.h; here stand the order of the
// products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/recurrent_dropout.h"
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

namespace internal {

// Step after step, in the product's epilogue:
//   x · w_x + b + h · w_h  →  h
//
// A step reads the state as it is stored, which is what the backward reads. Of
// 16-bit types a state that is not rounded would be a little nearer to the
// exact one, but relu's slope jumps at 0: states that engines round differently
// would have other gradients.
template <class T, class Activations, bool kRelu>
class SimpleRnnForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  SimpleRnnForward(const SimpleRnnForwardArgs<T>& args,
                   const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : units_),
        scratch_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        state_(&scratch_, factors_, shape_.batch),
        loop_(Loop()),
        split_(ChooseSplit(loop_, host.num_threads)),
        w_h_(host, &scratch_,
             WeightView<T>{args.w_h, units_, shape_.weights_by_unit}, {0},
             units_, units_, rows_.FewUses() && !factors_),
        x_(host, &scratch_, shape_, rows_,
           {args.w_x, shape_.weights_by_unit ? shape_.input : units_,
            shape_.weights_by_unit, args.b, args.b_h},
           JoinsStep<T>(loop_, rows_, split_, host)) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    // Other workers still read the old state while the new one is written.
    for (C*& h : h_) h = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    for (int64_t b = 0; b < batch; ++b) {
      CopyRow(args_.h_prev + rows_.State(b) * units_, units_,
              h_[0] + b * units_);
      state_.Keep(0, b, 0, units_, h_[0] + b * units_);
    }
    ZeroUnused(host_, rows_, args_.h, units_, ld_h_);
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      Status status = x_.Enter(block, args_.x);
      if (status != Status::kOk) return status;
      loop_.steps = block.steps;
      status =
          RunSteps(host_, loop_, split_, rows_,
                   [&](int64_t k, int, Share share, Range rows) {
                     const int64_t step = block.first + k;
                     Step(step, share.Of(w_h_.panels()), rows_.At(step, rows));
                   });
      if (status != Status::kOk) return status;
    }
    const auto last = [&](int64_t b) {
      return h_[rows_.Length(b) % 2] + b * units_;
    };
    CarryOverSkippedEnds(host_, rows_, args_.h_prev, last, args_.h, units_,
                         ld_h_);
    if (args_.h_last != nullptr) {
      for (int64_t b = 0; b < batch; ++b) {
        CopyRow(last(b), units_, args_.h_last + rows_.State(b) * units_);
      }
    }
    return Status::kOk;
  }

 private:
  StepLoop Loop() const {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.rows = shape_.batch;
    loop.panels = CeilDiv(units_, kPanelUnits<C, 1>);
    loop.multiplies = static_cast<double>(shape_.batch) * units_ * units_;
    loop.input_weights = static_cast<double>(shape_.input) * units_;
    return loop;
  }

  void Step(int64_t step, Range panels, Range rows) {
    const C* h_in = h_[step % 2];
    C* h_out = h_[(step + 1) % 2];
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t at = rows_.InMemory(step, run.row) * ld_h_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V h = skip ? Load<C>(h_in + state + j, lanes)
                         : RoundedTo<T>(SimpleRnnStep<Activations, kRelu>(
                               Load<C>(run.gates + j, lanes)));
        if (args_.h != nullptr) Store(args_.h + at + j, h, lanes);
        Store(h_out + state + j, h, lanes);
      });
      state_.Keep(step + 1, run.row, run.unit, run.count, h_out + state);
    };
    x_.Multiply(step, state_.Of(step, h_in), w_h_, panels, rows,
                RowByRow{epilogue});
  }

  const SimpleRnnForwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t ld_h_;
  Scratch scratch_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateOperand<T, 1> state_;
  StepLoop loop_;
  const StepSplit split_;
  const PackedWeights<T, 1> w_h_;
  InputProduct<T, 1> x_;
  C* h_[2] = {};  // [B, H], before and after a step
};

// For each block of steps, the last one first; step after step
//   d_h_bar · w_hᵀ of the step after it  →  d_h  →  d_h_bar
// then for all steps of the block
//   x_grad = d_h_bar · w_xᵀ    w_x_grad += xᵀ · d_h_bar
//   [w_h_grad; b_grad] += [h before the step, 1]ᵀ · d_h_bar
template <class T, bool kRelu>
class SimpleRnnBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  SimpleRnnBackward(const SimpleRnnBackwardArgs<T>& args,
                    const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(shape_.units),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : units_),
        scratch_(host),
        memory_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        w_h_t_(host, &scratch_, rows_, Transposed(args.w_h, units_), units_,
               factors_),
        operands_(host, &scratch_, shape_, rows_,
                  {args.h, ld_h_, args.h_prev, units_, !factors_}),
        dropped_(host, &scratch_, rows_, operands_, factors_),
        dz_(&scratch_, rows_, units_),
        d_h_before_(scratch_.Array<C>(shape_.batch * units_)),
        w_x_grad_(&scratch_, shape_.HasInputWeights() ? args.w_x_grad : nullptr,
                  shape_.input, units_, shape_.weights_by_unit),
        w_h_grad_(&scratch_, args.w_h_grad, units_, units_,
                  shape_.weights_by_unit),
        b_grad_(&scratch_, args.b_grad, 1, units_) {}

  Status Run() {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    const StateGrads<T> h_grads = {args_.h_grad, units_, ld_h_};
    BeginStates(host_, rows_, args_.h_last_grad, h_grads, d_h_before_);
    ZeroUnused(host_, rows_, args_.x_grad, shape_.input, shape_.input);
    ForEachGrad([&](const auto& grad) { grad.Begin(rows_); });
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      dz_.Enter(block);
      operands_.Enter(block, args_.x);
      Status status = Steps(block);
      if (status == Status::kOk) status = Weights();
      if (status != Status::kOk) return status;
    }
    FinishStates(host_, rows_, h_grads, d_h_before_);
    w_h_t_.MultiplyFirstStep(
        host_, dz_.data(),
        StoreStateGrad<T>{rows_, d_h_before_, units_, args_.h_prev_grad});
    ForEachGrad([&](const auto& grad) { grad.Finish(host_); });
    return Status::kOk;
  }

 private:
  WeightView<T> Transposed(const T* w, int64_t depth) const {
    return {w, shape_.weights_by_unit ? depth : units_,
            !shape_.weights_by_unit};
  }

  template <class F>
  void ForEachGrad(const F& f) const {
    for (const auto* grad : {&w_x_grad_, &w_h_grad_, &b_grad_}) f(*grad);
  }

  Status Steps(const StepBlock& block) {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.rows = shape_.batch;
    loop.panels = w_h_t_.panels();
    loop.multiplies = static_cast<double>(shape_.batch) * units_ * units_;
    const StepSplit split = ChooseSplit(loop, host_.num_threads);
    loop.steps = block.steps;
    return RunSteps(host_, loop, split, rows_,
                    [&](int64_t k, int, Share share, Range rows) {
                      const int64_t step = block.end() - 1 - k;
                      Step(step, share.Of(w_h_t_.panels()),
                           rows_.At(step, rows));
                    });
  }

  void Step(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t at = rows_.InMemory(step, run.row) * ld_h_ + run.unit;
      C* d_h_before = d_h_before_ + run.row * units_ + run.unit;
      C* dz = dz_.Of(step) + run.row * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V d_h = Load<C>(run.gates + j, lanes) + Load<C>(d_h_before + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        const V d_h_bar =
            SimpleRnnStepGrad<kRelu>(Load<C>(args_.h + at + j, lanes), d_h);
        Store(dz + j, skip ? V(0) : d_h_bar, lanes);
        Store(d_h_before + j, skip ? d_h : V(0), lanes);
      });
    };
    w_h_t_.MultiplyStepAfter(step, dz_.Of(step + 1), panels, rows, epilogue);
  }

  Status Weights() {
    const int64_t rows = operands_.rows();
    const SummedRows summed = operands_.summed();
    const int64_t input = operands_.input();
    Product<T, 1> to_x;
    to_x.rows = shape_.HasInputWeights() ? rows : 0;
    to_x.units = input;
    to_x.num_parts = 1;
    to_x.parts[0] = {
        {dz_.data(), units_}, units_, Transposed(args_.w_x, input)};
    StoreGates<T>(host_, shape_, operands_.block(), {{dz_.data(), units_}},
                  args_.x_grad);
    const Status status = dropped_.AddGradients(
        dz_.data(), units_, w_h_grad_.sums(), b_grad_.sums(), &memory_);
    if (status != Status::kOk) return status;
    const StoreBlockRows<T> store_x = {operands_.block(), args_.x_grad, input};
    const WeightView<C> dz = {dz_.data(), units_};
    return RunProducts(
        host_, &memory_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<T>({operands_.x_t(), input, summed, dz, units_,
                        w_x_grad_.sums(), units_, nullptr}),
        SumOverRows<T>({operands_.h_t(), units_, summed, dz, units_,
                        factors_ ? nullptr : w_h_grad_.sums(), units_,
                        factors_ ? nullptr : b_grad_.sums()}));
  }

  const SimpleRnnBackwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t ld_h_;
  Scratch scratch_;
  ProductMemory<T> memory_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateGradWeights<T, 1> w_h_t_;
  BlockOperands<T> operands_;
  const DroppedStates<T, 1> dropped_;
  BlockGradients<C> dz_;          // [block rows + B, H]
  C* d_h_before_;                 // [B, H], what skipped steps hand on
  const WeightGrad<T> w_x_grad_;  // [I, H]
  const WeightGrad<T> w_h_grad_;  // [H, H]
  const WeightGrad<T> b_grad_;    // [H]
};

}  // namespace internal

template <class T, class Activations>
Status SimpleRnnForward(const SimpleRnnForwardArgs<T>& args,
                        const HostInterface& host) {
  if (args.relu) {
    return internal::SimpleRnnForward<T, Activations, true>(args, host).Run();
  }
  return internal::SimpleRnnForward<T, Activations, false>(args, host).Run();
}

template <class T>
Status SimpleRnnBackward(const SimpleRnnBackwardArgs<T>& args,
                         const HostInterface& host) {
  if (args.relu) {
    return internal::SimpleRnnBackward<T, true>(args, host).Run();
  }
  return internal::SimpleRnnBackward<T, false>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_
