// Implements how calls over whole sequences run: a call alone, or the two
// directions of a layer together, whose steps are common launches
// (step_loop.cuh). Such calls have the same shape and the same lengths, and so
// the same blocks of steps with the same rows in each step.
//
// A call is a class whose objects are made of its arguments and a
// HostInterface, with
//
//   sequence()                  its SequenceForward or SequenceBackward
//   Prepare()
//   RunBlock(block, others...)  with the same block of the others
//   Finish()
//
// The last three return an Error. A call that only runs alone has no `others`.

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

namespace internal {

template <class Call, class... Others>
Error RunMadeCalls(Call&& first, Others&&... others) {
  const auto prepare = [](auto& call) { return call.Prepare(); };
  const auto run = [&](const StepBlock& block) {
    return first.RunBlock(block, others...);
  };
  const auto finish = [](auto& call) { return call.Finish(); };
  Error error = nullptr;
  if ((error = ForEachCall(prepare, first, others...)) ||
      (error = ForEachBlock(run, first.sequence(), others.sequence()...))) {
    return error;
  }
  return ForEachCall(finish, first, others...);
}

}  // namespace internal

// Runs a call for each of the arguments, all of one type; together they have
// the share of the device that `host` has.
template <class Call, class... Args>
Error RunCalls(const HostInterface& host, const Args&... args) {
  HostInterface share = host;
  share.concurrent_calls *= static_cast<int>(sizeof...(Args));
  return internal::RunMadeCalls(Call(args, share)...);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_JOINT_CALLS_CUH_
