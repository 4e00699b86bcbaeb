// Implements the backward pass over a sequence, for any cell: the order of the
// GEMMs, the gradients that a step hands to the previous one, and the sums that
// are the weights' gradients. What a step computes is the cell's
// (cc/kernels/cpu/cells).
//
//   for each block of steps, the last one first:
//     for each step:  dz · w_hᵀ of the next step  →  the cell's epilogue
//                     the cell's second GEMM, where it has one
//     x_grad = dz · w_xᵀ    w_x_grad += xᵀ · dz
//     [w_h_grad; b_grad] += [h before the step, 1]ᵀ · dz
//
// dz are the gradients of the pre-activations that h · w_h is a part of.
//
// A cell derives from BackwardCell, which has defaults for what is marked (*):
//
//   using T, Args;                storage type; arguments of the call
//   static constexpr int kGates;  of dz
//   static BackwardShape<T> Shape(args);
//   Cell(args, const BackwardContext<T, kGates>&);  takes scratch and weights
//   StateGradient<T> CellGrad();              (*)   of its own state, if any
//   void Begin();                             (*)   before the last step
//   void StateGrad(step, tile);                     epilogue of dz · w_hᵀ
//   void SecondStage(step, share, rows);      (*)   where it has two stages
//   std::array<InputGradPart<T>, n> InputParts();   dz as x and w_x see it
//   RowSum<C> MoreWeights();                  (*)   one more sum over a block
//   void Finish();                            (*)   after the first step
//   void ForEachWeightGrad(f);                      but for w_h's and its bias'

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_BACKWARD_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

template <class Cell>
class SequenceBackward {
 public:
  using T = typename Cell::T;
  using C = ComputeType<T>;
  using Args = typename Cell::Args;
  static constexpr int kGates = Cell::kGates;

  SequenceBackward(const Args& args, const Executor& executor)
      : args_(args),
        executor_(executor),
        shape_(args.shape),
        of_cell_(Cell::Shape(args)),
        width_(of_cell_.width),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : width_),
        ldz_(kGates * shape_.units),
        scratch_(executor),
        gemm_scratch_(executor),
        rows_(shape_, args.mask, &scratch_, width_),
        factors_(rows_, args.recurrent_dropout, width_),
        zoneout_(rows_, args.zoneout_h, width_),
        loop_(Loop(executor.workers_awake())),
        split_(ChooseSplit(loop_, executor.num_threads(),
                           executor.workers_awake())),
        uses_(UsesInCall<T>(rows_.steps(), rows_.batch(),
                            UsesWeightsOnce(rows_.steps(), split_))),
        w_h_t_(executor, &scratch_, rows_,
               WeightsOf(shape_, of_cell_.w_h, width_,
                         of_cell_.ld_w_h > 0 ? of_cell_.ld_w_h : ldz_)
                   .Transpose(),
               shape_.units, factors_, uses_),
        operands_(executor, &scratch_, shape_, rows_,
                  {args.h, ld_h_, args.h_prev, width_, !factors_}),
        dropped_(executor, &scratch_, rows_, operands_, factors_),
        dz_(&scratch_, rows_, ldz_),
        d_h_(scratch_.Array<C>(shape_.batch * width_)),
        w_h_grad_(&scratch_, of_cell_.w_h_grad, width_, ldz_, of_cell_.ld_w_h,
                  shape_.weights_by_unit),
        b_h_grad_(&scratch_, of_cell_.b_h_grad, 1, ldz_),
        cell_(args, {executor, &scratch_, rows_, factors_, zoneout_, operands_,
                     dz_, d_h_, ld_h_, uses_}) {}

  Status Run() {
    Status status = Begin();
    if (status == Status::kOk) status = RunSegment({0, rows_.steps()});
    if (status == Status::kOk) Finish();
    return status;
  }

  // The same in parts: Begin, some segments, the last one first, and Finish.
  Status Begin() {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    HGrad().Begin(executor_, rows_);
    cell_.CellGrad().Begin(executor_, rows_);
    cell_.Begin();
    ZeroUnused(executor_, rows_, args_.x_grad, shape_.input, shape_.input);
    ForEachWeightGrad([&](const WeightGrad<T>& grad) { grad.Begin(rows_); });
    return Status::kOk;
  }

  Status RunSegment(const Segment& segment) {
    for (int64_t end = segment.end; end > segment.first;) {
      const StepBlock block = rows_.BlockBefore(end);
      dz_.Set(block);
      operands_.Set(block, args_.x);
      Status status = Steps(block);
      if (status == Status::kOk) status = Weights();
      if (status != Status::kOk) return status;
      end = block.first;
    }
    return Status::kOk;
  }

  void Finish() {
    HGrad().Finish(executor_, rows_);
    w_h_t_.MultiplyFirstStep(
        executor_, dz_.data(),
        RowByRow([&](const GateRun<C>& run) { StoreHPrevGrad(run); }));
    cell_.CellGrad().Finish(executor_, rows_);
    cell_.Finish();
    ForEachWeightGrad(
        [&](const WeightGrad<T>& grad) { grad.Finish(executor_); });
  }

  // Of shapes with saved_in_steps: what was saved begins with that step.
  void BeginSavedWith(int64_t step) { rows_.BeginSavedWith(step); }

 private:
  StateGradient<T> HGrad() const {
    return {d_h_, width_, args_.h_grad, ld_h_, args_.h_last_grad};
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_h_grad_);
    f(b_h_grad_);
    cell_.ForEachWeightGrad(f);
  }

  StepLoop Loop(bool workers_awake) const {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.stages = of_cell_.stages;
    loop.rows = shape_.batch;
    loop.panels = CeilDiv(width_, kPanelUnits<C, 1>);
    loop.macs = static_cast<double>(shape_.batch) *
                static_cast<double>(width_) * of_cell_.columns;
    loop.most_pieces = PiecesWorth(loop, workers_awake);
    return loop;
  }

  Status Steps(const StepBlock& block) {
    StepLoop loop = loop_;
    loop.steps = block.steps;
    return RunSteps(
        executor_, loop, split_,
        [&](Share share) { return rows_.RowsOfShare(share, block); },
        [&](int64_t k, int stage, Share share, Range all) {
          const int64_t step = block.end() - 1 - k;
          const Range rows = rows_.ActiveRange(step, all);
          if (stage == 1) {
            cell_.SecondStage(step, share, rows);
            return;
          }
          w_h_t_.MultiplyNextStep(
              step, dz_.Step(step + 1), share, rows,
              [&](const GateTile<C>& tile) { cell_.StateGrad(step, tile); });
        });
  }

  Status Weights() {
    const auto parts = cell_.InputParts();
    const SummedRows rows = operands_.summed();
    const int64_t input = operands_.input();
    StoreInputGrad(executor_, shape_, operands_.block(), parts, args_.x_grad);
    const Status status = dropped_.AddGradients(
        dz_.data(), shape_.units, w_h_grad_, b_h_grad_.sums(), &gemm_scratch_);
    if (status != Status::kOk) return status;
    const auto sum_of_part = [&](std::size_t n) {
      if (n >= parts.size()) return SumOverRows<T>(rows, RowSum<C>());
      const InputGradPart<T>& part = parts[n];
      return SumOverRows<T>(rows, RowSum<C>{operands_.x_t(),
                                            input,
                                            {part.dz, part.ld},
                                            part.gates * shape_.units,
                                            part.w_x_grad,
                                            part.ld_grad,
                                            part.b_grad});
    };
    const RowSum<C> h_sum = {operands_.h_t(),
                             width_,
                             {dz_.data(), ldz_},
                             ldz_,
                             factors_ ? nullptr : w_h_grad_.sums(),
                             w_h_grad_.ld(),
                             factors_ ? nullptr : b_h_grad_.sums()};
    return RunGemms(
        executor_, &gemm_scratch_,
        InputGradGemm(shape_, operands_.block(), parts, args_.x_grad),
        sum_of_part(0), sum_of_part(1), SumOverRows<T>(rows, h_sum),
        SumOverRows<T>(rows, cell_.MoreWeights()));
  }

  void StoreHPrevGrad(const GateRun<C>& run) const {
    const int64_t row = rows_.FirstStateRow(run.row);
    if (row < 0) return;
    const C* d_h = d_h_ + run.row * width_ + run.unit;
    T* out = args_.h_prev_grad + row * width_ + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      Store(out + j, Load<C>(run.gates + j, lanes) + Load<C>(d_h + j, lanes),
            lanes);
    });
  }

  const Args& args_;
  const Executor& executor_;
  const SequenceShape& shape_;
  const BackwardShape<T> of_cell_;
  const int64_t width_;
  const int64_t ld_h_;
  const int64_t ldz_;
  Scratch scratch_;
  GemmScratch<T> gemm_scratch_;
  SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateZoneout<C> zoneout_;
  const StepLoop loop_;
  const StepSplit split_;
  const WeightUses uses_;
  const StateGradWeights<T, kGates> w_h_t_;
  BlockOperands<T> operands_;
  const DroppedStates<T, kGates> dropped_;
  BlockGradients<C> dz_;          // [block rows + B, gates · H]
  C* d_h_;                        // [B, width]
  const WeightGrad<T> w_h_grad_;  // [width, gates · H]
  const WeightGrad<T> b_h_grad_;  // [gates · H]
  Cell cell_;
};

// The backward pass over a sequence whose forward pass has saved its states
// before each segment of steps alone (cc/core/sequence_args.h):
//
//   for each segment of steps, the last one first:
//     the forward pass over the segment  →  the gates, cell states
//     the backward pass over it
//
// Both passes compute what they do without segments, so the gradients have the
// same bits. But the forward pass knows h, and multiplies it with the recurrent
// weights for a whole block of steps at a time (SequenceForward::UsesKnownH).
template <class ForwardCell, class BackwardCell>
class RecomputedBackward {
 public:
  using T = typename BackwardCell::T;
  using Args = typename BackwardCell::Args;

  RecomputedBackward(const Args& args, const Executor& executor)
      : args_(args),
        forward_args_(RecomputedForward(args)),
        executor_(executor),
        scratch_(executor) {}

  Status Run() {
    args_.shape.saved_in_steps = true;
    forward_args_.shape.saved_in_steps = true;
    forward_args_.span_steps = args_.span_steps;
    // Read, never written.
    forward_args_.span_states = const_cast<T*>(args_.span_states);

    const SequenceRows rows(args_.shape, args_.mask, &scratch_,
                            BackwardCell::Shape(args_).width);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    const Segments segments(rows, args_.span_steps, &scratch_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    AllocateSaved(rows, segments);
    if (!scratch_.ok()) return Status::kOutOfMemory;

    SequenceForward<ForwardCell> forward(forward_args_, executor_, args_.h);
    SequenceBackward<BackwardCell> backward(args_, executor_);
    Status status = backward.Begin();
    for (int64_t n = 0; n < segments.count() && status == Status::kOk; ++n) {
      const Segment segment = segments.FromBack(n);
      backward.BeginSavedWith(FirstSaved(segment));
      status = forward.RunAgain(n);
      if (status == Status::kOk) status = backward.RunSegment(segment);
    }
    if (status == Status::kOk) backward.Finish();
    return status;
  }

 private:
  // A step reads the cell state that the previous one saved.
  static int64_t FirstSaved(const Segment& segment) {
    return std::max<int64_t>(segment.first - 1, 0);
  }

  // One set of arrays, for the segment that has most rows.
  void AllocateSaved(const SequenceRows& rows, const Segments& segments) {
    int64_t most = 0;
    for (int64_t n = 0; n < segments.count(); ++n) {
      const Segment segment = segments.FromBack(n);
      most = std::max(most, rows.RowsBefore(segment.end) -
                                rows.RowsBefore(FirstSaved(segment)));
    }
    ForEachSavedArray(&forward_args_, &args_,
                      [&](T** output, const T** input, int64_t width) {
                        *output = scratch_.Array<T>(most * width);
                        *input = *output;
                      });
  }

  Args args_;
  std::decay_t<typename ForwardCell::Args> forward_args_;
  const Executor& executor_;
  Scratch scratch_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_BACKWARD_H_
