// Implements the forward pass over a sequence, for any cell: the order of the
// GEMMs, what a step hands to the next one, and the outputs at both ends. What
// a step computes is the cell's (cc/kernels/cpu/cells).
//
//   for each block of steps:  x · w_x + b of the block, where it is hoisted
//     for each step:          [x · w_x + b] + h · w_h  →  the cell's epilogue
//                             the cell's second GEMM, where it has one
//
// A call may save the states before each segment of steps, from which the
// backward pass runs a segment again (RecomputedBackward).
//
// A cell derives from ForwardCell, which has defaults for what is marked (*):
//
//   using T, P, Args, Panels;  storage type; elements of packed weights;
//                              arguments of the call; its packed weights
//   static constexpr int kGates;                   of the GEMM h · w_h
//   static ForwardShape Shape(args);
//   Cell(args, const ForwardContext<T, kGates>&);  takes scratch and weights
//   Status BeginBlock(block);                      x · w_x + b of a block
//   void Step(step, stage, share, rows);           a GEMM and its epilogue
//   void Finish();                          (*)    after the last step
//   std::array<T*, n> SavedForBackward();   (*)    [steps, batch, H] each
//   CellState<T> State();                   (*)    its own state, if any
//
//   static constexpr bool kMayFuseInput;  (*)  whether x · w_x may be computed
//     in a step
//   static constexpr bool kInPlace;  (*)  whether a step's last stage may
//     overwrite h: no later GEMM of the step reads it. Zoneout does, so h is
//     then not in place
//   static constexpr bool kOneGemm;  (*)  whether what is saved for backward
//     needs no GEMM of a step but h · w_h: where h is known, all steps of a
//     block run again in one
//   void Block(block, states, share);     of these cells: that GEMM

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_FORWARD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// Whether the input GEMM is fused on some number of threads.
inline bool InputMayBeFused(int64_t steps, int64_t rows) {
  return rows >= (steps < Blocking::kStepsToPack
                      ? Blocking::kRowsToFuseInputFewSteps
                      : Blocking::kRowsToFuseInput);
}

// Whether to fuse it on the threads of this call, with panels of elements P.
template <class P>
bool FusingInputPays(const StepLoop& loop, const SequenceRows& sequence,
                     StepSplit split, const Executor& executor) {
  // Of all steps: rows may end before the longest does.
  const int64_t mean_rows =
      sequence.TotalRows() / std::max<int64_t>(sequence.steps(), 1);
  const int64_t workers =
      split == StepSplit::kRows ? executor.num_threads() : 1;
  const int64_t rows = mean_rows / workers;
  if (!InputMayBeFused(sequence.steps(), rows)) return false;
  const int concurrent = executor.concurrent_sequences();
  const double weights = loop.macs / loop.rows + loop.input_weights;
  // Fused, each worker reads its share of them in every step.
  const int sharing = split == StepSplit::kUnits ? executor.num_threads() : 1;
  if (weights * kPackedBytes<P> / sharing > MachineTuning().near_cache &&
      sequence.shape().input > Tuning::kInputPerRowToHoist * rows) {
    return false;
  }
  if (rows >= (concurrent == 1 ? Tuning::kRowsThatHideMemory
                               : Tuning::kRowsThatHideMemoryConcurrent)) {
    return true;
  }
  return weights * kPackedBytes<P> * concurrent <=
         std::min(Tuning::kBytesHiddenPerRow * rows,
                  MachineTuning().FusedWeightBytes());
}

template <class Cell>
class SequenceForward {
 public:
  using T = typename Cell::T;
  using C = ComputeType<T>;
  using Args = typename Cell::Args;

  // known_h: where only RunAgain is called, what a call before has stored as h.
  SequenceForward(const Args& args, const Executor& executor,
                  const T* known_h = nullptr)
      : args_(args),
        executor_(executor),
        scratch_(executor),
        forward_shape_(Cell::Shape(args)),
        rows_(args.shape, args.mask, &scratch_, forward_shape_.width),
        factors_(rows_, args.recurrent_dropout, forward_shape_.width),
        loop_(Loop(executor.workers_awake())),
        split_(ChooseSplit(loop_, executor.num_threads(),
                           executor.workers_awake())),
        known_h_(UsesKnownH() ? known_h : nullptr),
        states_(known_h_ == nullptr ? nullptr
                                    : scratch_.Array<C>(rows_.MaxRowsInBlock() *
                                                        forward_shape_.width)),
        h_(rows_, factors_, args.zoneout_h, Cell::kInPlace, args.h, &scratch_),
        panels_(args.frozen == nullptr
                    ? PanelMemory(executor, &scratch_)
                    : PanelMemory::Frozen(executor, args.frozen->packed)),
        fuses_input_(Cell::kMayFuseInput && FusesInput()),
        cell_(args,
              {executor, &scratch_, rows_, factors_, h_, &panels_, fuses_input_,
               InputMayBeFused(rows_.steps(), args.shape.batch), HowToPack()}),
        segments_(rows_, args.span_states == nullptr ? 0 : args.span_steps,
                  &scratch_) {}

  Status Run() {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    Begin();
    ZeroUnusedOutputs();
    ZeroUnusedStates();
    for (int64_t n = segments_.count() - 1; n >= 0; --n) {
      const Segment segment = segments_.FromBack(n);
      if (segment.first > 0) SaveStates(segment.first, n);
      const Status status = RunSegment(segment);
      if (status != Status::kOk) return status;
    }
    h_.End(executor_, args_.h_prev, args_.h_last);
    cell_.State().Finish(executor_, rows_);
    cell_.Finish();
    return Status::kOk;
  }

  // Of a backward call: the arrays that are saved, in the order of steps, begin
  // with the step before the segment, and get its n-th one from the back.
  Status RunAgain(int64_t n) {
    if (!scratch_.ok()) return Status::kOutOfMemory;
    const Segment segment = segments_.FromBack(n);
    rows_.BeginSavedWith(std::max<int64_t>(segment.first - 1, 0));
    if (segment.first > 0) {
      LoadStates(segment.first, n);
    } else {
      Begin();
    }
    if constexpr (Cell::kOneGemm && std::is_same_v<T, C>) {
      if (known_h_ != nullptr) return RunSegment<true>(segment);
    }
    return RunSegment(segment);
  }

 private:
  void Begin() {
    h_.Begin(args_.h_prev);
    cell_.State().Begin(rows_);
  }

  // kKnown: with known_h_.
  template <bool kKnown = false>
  Status RunSegment(const Segment& segment) {
    for (StepBlock block = segments_.BlockFrom(segment.first, segment);
         block.steps > 0; block = segments_.BlockFrom(block.end(), segment)) {
      Status status = cell_.BeginBlock(block);
      if (status != Status::kOk) return status;
      if constexpr (kKnown) {
        status = RunKnown(block);
      } else {
        loop_.steps = block.steps;
        status = RunSteps(
            executor_, loop_, split_,
            [&](Share share) { return rows_.RowsOfShare(share, block); },
            [&](int64_t k, int stage, Share share, Range rows) {
              const int64_t step = block.first + k;
              cell_.Step(step, stage, share, rows_.ActiveRange(step, rows));
            });
      }
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  // Whether the states that the steps begin with are known_h to the bit, and
  // the GEMM of all steps of a block has the bits of the steps' own. It goes
  // through all rows for one panel after the other, which streamed ones do not.
  bool UsesKnownH() const {
    const WeightUses uses = Uses();
    return Cell::kOneGemm && std::is_same_v<T, C> && !factors_ &&
           uses.plain == WeightUse::kPacked &&
           uses.transposed == WeightUse::kPacked;
  }

  // A block of steps with one GEMM. A unit of a step needs nothing but its own
  // state then, so no worker waits for another one.
  Status RunKnown(const StepBlock& block) {
    LoadKnown(block);
    const double macs = static_cast<double>(block.rows) * loop_.macs /
                        static_cast<double>(std::max<int64_t>(1, loop_.rows));
    const int64_t pieces =
        std::min<int64_t>(WorkersWorth(executor_, macs, 0), loop_.panels);
    Cancellation cancellation(executor_);
    ParallelFor(
        executor_, static_cast<int>(pieces), pieces, [&](int, int64_t piece) {
          if (cancellation.Seen()) return;
          cell_.Block(block, {states_, forward_shape_.width},
                      {static_cast<int>(piece), static_cast<int>(pieces)});
        });
    return cancellation.status();
  }

  // The states before the steps of a block, in the order of its rows.
  void LoadKnown(const StepBlock& block) const {
    const int64_t width = forward_shape_.width;
    const int64_t ld = args_.shape.h_width > 0 ? args_.shape.h_width : width;
    const int64_t before = rows_.RowsBefore(block.first);
    ParallelForRows(
        executor_, block.steps, rows_.ActiveRows(block.first) * width,
        [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const int64_t step = block.first + k;
            C* to = states_ + (rows_.RowsBefore(step) - before) * width;
            for (int64_t b = 0; b < rows_.ActiveRows(step); ++b, to += width) {
              const T* const from =
                  step == 0 ? rows_.FirstState(args_.h_prev, width, b)
                            : known_h_ + rows_.MemoryRow(step - 1, b) * ld;
              CopyRow(from, width, to);
            }
          }
        });
  }

  // A place in span_states, behind the states of so many rows.
  char* StatesAfter(int64_t rows) const {
    const int64_t own = cell_.State().now == nullptr ? 0 : args_.shape.units;
    return reinterpret_cast<char*>(args_.span_states) +
           rows * (forward_shape_.width + own) * sizeof(C);
  }
  // The n-th states there: h[active rows, width], then the cell's own
  // [active rows, H].
  char* SegmentStates(int64_t n) const {
    return StatesAfter(segments_.StatesBefore(n));
  }
  char* SegmentCellStates(int64_t step, int64_t n) const {
    return SegmentStates(n) +
           rows_.ActiveRows(step) * forward_shape_.width * sizeof(C);
  }

  // Of the rows that the step has.
  void SaveStates(int64_t step, int64_t n) const {
    const std::size_t rows = rows_.ActiveRows(step) * sizeof(C);
    std::memcpy(SegmentStates(n), h_.Previous(step),
                rows * forward_shape_.width);
    const CellState<T> own = cell_.State();
    if (own.now == nullptr) return;
    std::memcpy(SegmentCellStates(step, n), own.now, rows * args_.shape.units);
  }

  // There is room for the states of all rows before all segments but the first.
  void ZeroUnusedStates() const {
    if (args_.span_states == nullptr || args_.span_steps <= 0) return;
    const int64_t most =
        Segments::MostSegments(args_.shape.steps, args_.span_steps);
    const int64_t room = std::max<int64_t>(most - 1, 0) * rows_.memory_batch();
    const int64_t used =
        segments_.StatesBefore(std::max<int64_t>(segments_.count() - 1, 0));
    if (used >= room) return;
    std::memset(StatesAfter(used), 0, StatesAfter(room) - StatesAfter(used));
  }

  void LoadStates(int64_t step, int64_t n) const {
    h_.BeginWith(step, SegmentStates(n));
    const CellState<T> own = cell_.State();
    if (own.now == nullptr) return;
    const int64_t rows = rows_.ActiveRows(step);
    const int64_t units = args_.shape.units;
    std::memcpy(own.now, SegmentCellStates(step, n), rows * units * sizeof(C));
    for (int64_t b = 0; b < rows; ++b) {
      CopyRow(own.now + b * units, units,
              own.saved + rows_.SavedRow(step - 1, b) * units);
    }
  }

  StepLoop Loop(bool workers_awake) const {
    const SequenceShape& shape = args_.shape;
    const auto units = static_cast<double>(shape.units);
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.stages = forward_shape_.stages;
    loop.rows = shape.batch;
    loop.panels = CeilDiv(shape.units, kPanelUnits<C, Cell::kGates>);
    loop.macs =
        static_cast<double>(shape.batch) * units * forward_shape_.columns;
    if (Cell::kMayFuseInput && shape.HasInputWeights()) {
      loop.input_weights = static_cast<double>(shape.input) * units *
                           static_cast<double>(forward_shape_.gates);
    }
    loop.most_pieces = PiecesWorth(loop, workers_awake);
    return loop;
  }

  using P = typename Cell::P;

  // Weights of lower precision than T's are summed in one order only.
  static constexpr bool kStoragePrecision = std::is_same_v<P, PanelElement<T>>;

  bool UsesOnce() const {
    return kStoragePrecision && args_.frozen == nullptr &&
           UsesWeightsOnce(rows_.steps(), split_);
  }

  // Of a call that is as short as one that streams, transposed weights are
  // streamed even if they are frozen: no panel gives those bits.
  WeightUses Uses() const {
    if (!kStoragePrecision) return {};
    // Frozen pairs of bfloat16 would round what is streamed as it is.
    constexpr bool kValues = std::is_same_v<typename Elements<P>::Operand, C>;
    const bool short_rows = StreamsWeights(
        rows_.steps(), args_.batch_invariant ? 1 : rows_.batch());
    if (short_rows && ((args_.frozen != nullptr && kValues) ||
                       !StreamsWeights(rows_.steps(), rows_.batch()))) {
      return {WeightUse::kPacked, WeightUse::kStreamed};
    }
    if (args_.frozen != nullptr && !short_rows) return {};
    // With recurrent dropout each gate has rows of its own.
    if (factors_ && !short_rows && UsesOnce()) {
      return {WeightUse::kOnce, WeightUse::kOnce};
    }
    return UsesInCall<T>(rows_.steps(), rows_.batch(), UsesOnce());
  }

  Packing HowToPack() const {
    return {Uses(), UsesOnce(), static_cast<bool>(factors_),
            args_.frozen != nullptr || fuses_input_};
  }

  bool FusesInput() const {
    if (known_h_ != nullptr) {
      return InputMayBeFused(rows_.steps(), args_.shape.batch);
    }
    const WeightUses uses = Uses();
    if (UsesOnce()) {
      if (uses.plain == WeightUse::kStreamed && !factors_ &&
          !args_.shape.weights_by_unit) {
        return true;
      }
      return uses.transposed == WeightUse::kOnce &&
             InputMayBeFused(rows_.steps(), args_.shape.batch);
    }
    return !std::is_same_v<P, Int8Quad> &&
           uses.transposed == WeightUse::kPacked &&
           FusingInputPays<P>(loop_, rows_, split_, executor_);
  }

  void ZeroUnusedOutputs() {
    h_.ZeroUnusedOutput(executor_);
    // Saved in steps, only rows that take part are there.
    if (args_.shape.saved_in_steps) return;
    for (T* saved : cell_.SavedForBackward()) {
      ZeroUnused(executor_, rows_, saved, args_.shape.units, args_.shape.units);
    }
  }

  const Args& args_;
  const Executor& executor_;
  Scratch scratch_;
  const ForwardShape forward_shape_;
  SequenceRows rows_;
  const StateFactors<T> factors_;
  StepLoop loop_;
  const StepSplit split_;
  const T* const known_h_;  // [steps, batch, P], or nullptr
  C* const states_;         // [block rows, P], the states before their steps
  const HiddenState<T, Cell::kGates> h_;
  PanelMemory panels_;
  const bool fuses_input_;
  Cell cell_;
  const Segments segments_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_FORWARD_H_
