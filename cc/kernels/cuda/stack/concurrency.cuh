// Chooses what of a stack runs concurrently: what fits on half of the device as
// a persistent kernel. The layers of a unidirectional stack run in pairs, the
// second one some steps behind the first; the two directions of a layer run
// together, in the same launches. Larger layers use all of the device and run
// sequentially.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/param_layout.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/stack/streams.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"

namespace blockrnn::cuda {

// The maximum number of blocks of steps that a layer is cut into. Two layers
// with n blocks each take as long as n + 1 blocks, and each block costs
// launches and another load of its weights. Not measured yet.
inline constexpr int64_t kMaxPairBlocks = 8;

// The matrices of a step.
template <class T, class StateMatrix>
struct StackMatrices {
  StateMatrix state;
  StepMatrix<T, kSlices, true> projection;
};

template <class T, int kGates>
StackMatrices<T, ForwardMatrix<T, kGates>> MakeMatrices(
    const RnnStackForwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  StackMatrices<T, ForwardMatrix<T, kGates>> matrices;
  matrices.state.SetShape({g.units, g.proj, args.batch});
  matrices.projection.SetShape({g.proj, g.units, args.batch});
  return matrices;
}
template <class T, int kGates>
StackMatrices<T, BackwardMatrix<T, kGates>> MakeMatrices(
    const RnnStackBackwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  StackMatrices<T, BackwardMatrix<T, kGates>> matrices;
  matrices.state.SetShape({g.proj, kGates * g.units, args.batch});
  matrices.projection.SetShape({g.units, g.proj, args.batch});
  return matrices;
}

template <int kGates, class T, template <class> class Args>
Error IsPersistentCell(const HostInterface& host, int64_t steps,
                       const Args<T>& args, bool* persistent) {
  auto matrices = MakeMatrices<T, kGates>(args);
  StepLoop loop;
  const Error error =
      args.geometry.projected
          ? loop.Plan(host, steps, matrices.state, matrices.projection)
          : loop.Plan(host, steps, matrices.state);
  *persistent = loop.persistent();
  return error;
}

// Whether one kernel runs so many steps of a layer while `concurrent_calls` - 1
// others of its kind run concurrently.
template <class Args>
Error IsPersistent(const HostInterface& host, int concurrent_calls,
                   int64_t steps, const Args& args, bool* persistent) {
  HostInterface share = host;
  share.concurrent_calls *= concurrent_calls;
  switch (args.geometry.mode) {
    case RnnMode::kLstm:
      return IsPersistentCell<kLstmGates>(share, steps, args, persistent);
    case RnnMode::kGru:
      return IsPersistentCell<kGruAfterGates>(share, steps, args, persistent);
    default:
      return IsPersistentCell<1>(share, steps, args, persistent);
  }
}

template <class Args>
Error ChoosePairs(const HostInterface& host, const Args& args,
                  StackConcurrency* found) {
  if (args.geometry.layers < 2 || host.overlap_steps < 1 ||
      args.steps < 2 * host.overlap_steps) {
    return nullptr;
  }
  // Blocks of equal size: a short last block would load its weights for a few
  // steps only.
  const int64_t blocks =
      std::min(args.steps / host.overlap_steps, kMaxPairBlocks);
  const int64_t block_steps = (args.steps + blocks - 1) / blocks;
  bool persistent = false;
  const Error error = IsPersistent(host, 2, block_steps, args, &persistent);
  if (error == nullptr && persistent) found->pair_steps = block_steps;
  return error;
}

// One persistent kernel for both directions, each on half of the device, is
// assumed to be faster than two of them sequentially, each on all of it. Not
// measured yet. Directions without a persistent kernel run sequentially, too:
// large layers fill the device, and small ones always have one, but for calls
// of a few steps.
template <class Args>
Error ChooseConcurrency(const HostInterface& host, const Args& args,
                        StackConcurrency* found) {
  return args.geometry.directions == 1 ? ChoosePairs(host, args, found)
                                       : IsPersistent(host, 2, args.steps, args,
                                                      &found->joint_directions);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_
