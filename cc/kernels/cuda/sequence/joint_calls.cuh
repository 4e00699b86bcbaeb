// Implements how calls over whole sequences run: a call alone, or the two
// directions of a layer together, whose steps are common launches
// (step_loop.cuh). Such calls have the same shape and the same lengths, and so
// the same blocks of steps with the same rows in each step.
//
// A call is a class with
//
//   sequence()          its SequenceForward or SequenceBackward
//   Prepare()
//   static RunBlock(block, calls...)   for this call, or for it and others
//   Finish()
//
// each of which returns an Error, but for sequence().

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_JOINT_CALLS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_JOINT_CALLS_CUH_

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"

namespace blockrnn::cuda {

// Calls f(call) for each call, until one fails.
template <class F, class... Calls>
Error ForEachCall(const F& f, Calls&... calls) {
  Error error = nullptr;
  static_cast<void>(((error = f(calls)) || ...));
  return error;
}

// Calls work(block) for each block of steps, in the order of the sequences.
template <class Work, class Sequence, class... Others>
Error ForEachBlock(const Work& work, Sequence& first, Others&... others) {
  for (StepBlock block = first.FirstBlock(); block.steps > 0;
       block = first.NextBlock(block)) {
    const auto begin = [&](auto& sequence) {
      return sequence.BeginBlock(block);
    };
    const auto end = [&](auto& sequence) { return sequence.EndBlock(block); };
    Error error = nullptr;
    if ((error = ForEachCall(begin, first, others...)) ||
        (error = work(block)) || (error = ForEachCall(end, first, others...))) {
      return error;
    }
  }
  return nullptr;
}

// calls: temporaries of the same class.
template <class Call, class... Others>
Error RunCalls(Call&& first, Others&&... others) {
  const auto prepare = [](auto& call) { return call.Prepare(); };
  const auto run = [&](const StepBlock& block) {
    return Call::RunBlock(block, first, others...);
  };
  const auto finish = [](auto& call) { return call.Finish(); };
  Error error = nullptr;
  if ((error = ForEachCall(prepare, first, others...)) ||
      (error = ForEachBlock(run, first.sequence(), others.sequence()...))) {
    return error;
  }
  return ForEachCall(finish, first, others...);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_JOINT_CALLS_CUH_
