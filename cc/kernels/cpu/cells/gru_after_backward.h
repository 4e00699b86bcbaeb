// Owns the backward pass of a GRU, reset after the product, over a whole
// sequence on the CPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_

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

// For each block of steps, the last one first; step after step
//   [d_r_bar d_u_bar d_hc] · w_hᵀ of the step after it  →  d_h  →
//   d_r_bar, d_u_bar, d_hc, d_c_bar
// then for all steps of the block
//   x_grad = [d_r_bar d_u_bar d_c_bar] · w_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruAfterSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                           const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(shape_.units),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : units_),
        ldz_(kGruAfterGates * units_),
        scratch_(host),
        memory_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        w_h_t_(host, &scratch_, rows_, Transposed(args.w_h, units_), units_,
               factors_),
        operands_(host, &scratch_, shape_, rows_,
                  {args.h, ld_h_, args.h_prev, units_, !factors_}),
        dropped_(host, &scratch_, rows_, operands_, factors_),
        dz_(&scratch_, rows_, ldz_),
        d_c_(scratch_.Array<C>(rows_.MostRowsInBlock() * units_)),
        d_h_before_(scratch_.Array<C>(shape_.batch * units_)),
        w_x_grad_(&scratch_, shape_.HasInputWeights() ? args.w_x_grad : nullptr,
                  shape_.input, ldz_, shape_.weights_by_unit),
        w_h_grad_(&scratch_, args.w_h_grad, units_, ldz_,
                  shape_.weights_by_unit),
        b_x_grad_(&scratch_, args.b_x_grad, 1, ldz_),
        b_h_grad_(&scratch_, args.b_h_grad, 1, ldz_) {}

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
  // The candidate's gate is the last in every layout.
  int64_t RuWidth() const { return 2 * units_; }

  WeightView<T> Transposed(const T* w, int64_t depth) const {
    return {w, shape_.weights_by_unit ? depth : ldz_, !shape_.weights_by_unit};
  }

  template <class F>
  void ForEachGrad(const F& f) const {
    for (const auto* grad : {&w_x_grad_, &w_h_grad_, &b_x_grad_, &b_h_grad_}) {
      f(*grad);
    }
  }

  StateGrads<T> HGrads() const { return {args_.h_grad, units_, ld_h_}; }

  void Begin() {
    BeginStates(host_, rows_, args_.h_last_grad, HGrads(), d_h_before_);
    ZeroUnused(host_, rows_, args_.x_grad, shape_.input, shape_.input);
    ForEachGrad([&](const auto& grad) { grad.Begin(rows_); });
  }

  Status Steps(const StepBlock& block) {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.rows = shape_.batch;
    loop.panels = w_h_t_.panels();
    loop.multiplies = static_cast<double>(shape_.batch) * units_ * ldz_;
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
    const int64_t first = operands_.block().Of(step);
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t saved_at = rows_.Saved(step, run.row) * units_ + run.unit;
      const int64_t at = rows_.InMemory(step, run.row) * ld_h_ + run.unit;
      const T* h_prev = operands_.Before(step, run.row) + run.unit;
      C* d_h_before = d_h_before_ + run.row * units_ + run.unit;
      C* dz = dz_.Of(step) + run.row * ldz_ + run.unit;
      C* d_c = d_c_ + (first + run.row) * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto saved = [&](const T* p) {
          return Load<C>(p + saved_at + j, lanes);
        };
        V d_h = Load<C>(run.gates + j, lanes) + Load<C>(d_h_before + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        const GruAfterStep<V> step_saved = {saved(args_.r), saved(args_.u),
                                            saved(args_.c), V(0)};
        GruAfterStepGrad<V> out = GruAfterBackward(
            step_saved, saved(args_.hc), Load<C>(h_prev + j, lanes), d_h);
        if (skip) out = {V(0), V(0), V(0), V(0), d_h};
        Store(dz + args_.layout.r * units_ + j, out.d_r_bar, lanes);
        Store(dz + args_.layout.u * units_ + j, out.d_u_bar, lanes);
        Store(dz + args_.layout.c * units_ + j, out.d_hc, lanes);
        Store(d_c + j, out.d_c_bar, lanes);
        Store(d_h_before + j, out.d_h_prev, lanes);
      });
    };
    w_h_t_.MultiplyStepAfter(step, dz_.Of(step + 1), panels, rows, epilogue);
  }

  Status Weights() {
    const int64_t rows = operands_.rows();
    const SummedRows summed = operands_.summed();
    const int64_t input = operands_.input();
    const WeightView<C> dz = {dz_.data(), ldz_};
    const WeightView<C> d_c = {d_c_, units_};
    // The gates before the candidate are the same for x and for h.
    Product<T, 1> to_x;
    to_x.units = input;
    to_x.num_parts = 2;
    if (shape_.HasInputWeights()) {
      to_x.rows = rows;
      const WeightView<T> w_x_t = Transposed(args_.w_x, input);
      to_x.parts[0] = {{dz_.data(), ldz_}, RuWidth(), w_x_t};
      to_x.parts[1] = {{d_c_, units_}, units_, w_x_t.From(RuWidth())};
    }
    StoreGates<T>(
        host_, shape_, operands_.block(),
        {{dz_.data(), ldz_}, {dz_.data() + units_, ldz_}, {d_c_, units_}},
        args_.x_grad);
    const Status status = dropped_.AddGradients(
        dz_.data(), units_, w_h_grad_.sums(), b_h_grad_.sums(), &memory_);
    if (status != Status::kOk) return status;
    // The gradient of b_x is the same sum whether or not there is a w_x.
    const StoreBlockRows<T> store_x = {operands_.block(), args_.x_grad, input};
    return RunProducts(
        host_, &memory_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<T>({operands_.x_t(), input, summed, dz, RuWidth(),
                        w_x_grad_.sums(), ldz_, b_x_grad_.sums()}),
        SumOverRows<T>({operands_.x_t(), input, summed, d_c, units_,
                        Columns(w_x_grad_, RuWidth()), ldz_,
                        b_x_grad_.sums() + RuWidth()}),
        SumOverRows<T>({operands_.h_t(), units_, summed, dz, ldz_,
                        factors_ ? nullptr : w_h_grad_.sums(), ldz_,
                        factors_ ? nullptr : b_h_grad_.sums()}));
  }

  static C* Columns(const WeightGrad<T>& grad, int64_t from) {
    return grad.sums() == nullptr ? nullptr : grad.sums() + from;
  }

  void Finish() {
    FinishStates(host_, rows_, HGrads(), d_h_before_);
    w_h_t_.MultiplyFirstStep(
        host_, dz_.data(),
        StoreStateGrad<T>{rows_, d_h_before_, units_, args_.h_prev_grad});
    ForEachGrad([&](const auto& grad) { grad.Finish(host_); });
  }

  const GruAfterSequenceBackwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t ld_h_;
  const int64_t ldz_;
  Scratch scratch_;
  ProductMemory<T> memory_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateGradWeights<T, kGruAfterGates> w_h_t_;
  BlockOperands<T> operands_;
  const DroppedStates<T, kGruAfterGates> dropped_;
  BlockGradients<C> dz_;          // [block rows + B, 3H]: r̄, ū, hc
  C* d_c_;                        // [block rows, H]
  C* d_h_before_;                 // [B, H], less what comes through w_h
  const WeightGrad<T> w_x_grad_;  // [I, 3H]
  const WeightGrad<T> w_h_grad_;  // [H, 3H]
  const WeightGrad<T> b_x_grad_;  // [3H]
  const WeightGrad<T> b_h_grad_;  // [3H]
};

}  // namespace internal

template <class T>
Status GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                                const HostInterface& host) {
  return internal::GruAfterSequenceBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_BACKWARD_H_
