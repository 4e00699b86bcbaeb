// Implements the backward pass over a sequence whose forward pass has saved its
// states before each segment of steps alone (cc/core/sequence_args.h):
//
//   for each segment of steps, the last one first:
//     the forward pass over the segment  →  the gates, cell states
//     the backward pass over it
//
// Both passes compute what they do without segments, so the gradients have the
// same bits. But the forward pass knows h, and multiplies it with the recurrent
// weights for a whole block of steps at a time (SequenceForward::UsesKnownH).

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_RECOMPUTED_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_RECOMPUTED_BACKWARD_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

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

// A backward call, with segments or without.
template <class ForwardCell, class BackwardCell>
Status BackwardOrRecomputed(const typename BackwardCell::Args& args,
                            const Executor& executor) {
  if (args.span_steps > 0) {
    return RecomputedBackward<ForwardCell, BackwardCell>(args, executor).Run();
  }
  return SequenceBackward<BackwardCell>(args, executor).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_RECOMPUTED_BACKWARD_H_
