// Implements how calls over whole sequences run: a call alone, a backward call
// after the forward pass once more, or the two directions of a layer together,
// whose steps are common launches (step_loop.cuh). Such calls have the same
// shape and the same lengths, and so the same blocks of steps with the same
// rows in each step.
//
// A call is a class derived from SequenceForward or SequenceBackward, whose
// objects are made of its arguments and a HostInterface. It has
// RunBlock(block, others...) → Error, which runs the steps of the same block of
// the others as well; a call that only runs alone has no `others`.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_CALLS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_CALLS_CUH_

#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "cc/core/row_pieces.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"

namespace blockrnn::cuda {

// Calls f(call) for each call, until one fails.
template <class F, class... Calls>
Error ForEachCall(const F& f, Calls&... calls) {
  Error error = nullptr;
  static_cast<void>(((error = f(calls)) || ...));
  return error;
}

// Runs calls that have a plan, together.
template <class Call, class... Others>
Error RunPlanned(Call& first, Others&... others) {
  const auto prepare = [](auto& call) { return call.Prepare(); };
  if (Error error = ForEachCall(prepare, first, others...)) return error;
  // In the order of the sequences.
  for (StepBlock block = first.FirstBlock(); block.steps > 0;
       block = first.NextBlock(block)) {
    const auto begin = [&](auto& call) { return call.BeginBlock(block); };
    const auto end = [&](auto& call) { return call.EndBlock(block); };
    Error error = nullptr;
    if ((error = ForEachCall(begin, first, others...)) ||
        (error = first.RunBlock(block, others...)) ||
        (error = ForEachCall(end, first, others...))) {
      return error;
    }
  }
  const auto finish = [](auto& call) { return call.Finish(); };
  return ForEachCall(finish, first, others...);
}

// Runs a backward call with spans (cc/core/sequence_args.h): the whole forward
// pass again, into scratch, then the backward pass. Between the forward and the
// backward call nothing but h is held; span by span, with less scratch, is the
// CPU engine's alone.
template <template <class> class Args, class T>
Error RunRecomputed(Args<T> args, const HostInterface& host) {
  auto forward = RecomputedForward(args);
  const SequenceShape& shape = args.shape;
  const int64_t rows = shape.steps * shape.MemoryBatch();
  Error error = nullptr;
  ForEachSavedArray(&forward, &args,
                    [&](T** output, const T** input, int64_t width) {
                      if (error == nullptr)
                        error = AllocateStored(host, rows * width, output);
                      *input = *output;
                    });
  if (error != nullptr || (error = Run(forward, host))) return error;
  args.span_steps = 0;
  return Run(args, host);
}

template <class Args, class = void>
inline constexpr bool kHasSpans = false;
template <class Args>
inline constexpr bool kHasSpans<Args, std::void_t<decltype(RecomputedForward(
                                          std::declval<const Args&>()))>> =
    true;

template <class Args, class = void>
inline constexpr bool kHasResets = false;
template <class Args>
inline constexpr bool
    kHasResets<Args, std::void_t<decltype(std::declval<Args>().resets)>> = true;

template <class Args>
Error RunAny(const Args& args, const HostInterface& host);

// A call with resets: its pieces as rows.
template <class Args>
Error RunPieces(Args args, const HostInterface& host) {
  std::unique_ptr<int64_t[]> storage;
  const auto allocate = [&storage](int64_t count) {
    storage.reset(new (std::nothrow) int64_t[count]);
    return storage.get();
  };
  if (!SplitAtResets(&args, allocate)) return kOutOfHostMemory;
  return RunAny(args, host);
}

// Run for every call, also for one with resets or spans.
template <class Args>
Error RunAny(const Args& args, const HostInterface& host) {
  if constexpr (kHasResets<Args>) {
    if (args.resets != nullptr) return RunPieces(args, host);
  }
  if constexpr (kHasSpans<Args>) {
    if (args.span_steps > 0) return RunRecomputed(args, host);
  }
  return Run(args, host);
}

// FunctionOf (launch.cuh) the arguments that a call class takes.
template <class Call>
struct SequenceFunction {
  template <class Args>
  static Error Run(const Args& args, const HostInterface& host) {
    Call call(args, host);
    if (Error error = call.Plan()) return error;
    return RunPlanned(call);
  }

  // One persistent kernel for both directions, each on half of the device, is
  // assumed to be faster than two of them sequentially, each on all of it. Not
  // measured yet. Directions without a persistent kernel run sequentially, too:
  // large layers fill the device, and small ones always have one, but for calls
  // of a few steps.
  template <class Args>
  static Error RunDirections(const Args& first, const Args& second,
                             const HostInterface& host, bool* ran) {
    HostInterface share = host;
    share.concurrent_calls *= 2;
    Call calls[] = {{first, share}, {second, share}};
    for (Call& call : calls) {
      if (Error error = call.Plan()) return error;
    }
    *ran = calls[0].persistent();
    return *ran ? RunPlanned(calls[0], calls[1]) : nullptr;
  }
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_CALLS_CUH_
