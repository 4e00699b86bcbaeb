// Owns the choice of what of a stack runs side by side, by what a persistent
// kernel can do in half of the device. The layers of one direction run in
// pairs, the second of a pair some steps behind the first, where the steps of
// each fit a half: larger layers have work for all of it, and are better one
// after the other. The directions of a layer run side by side, but where their
// steps fit the whole device and no half of it.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/rnn_geometry.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/stack/streams.cuh"
#include "cc/kernels/cuda/step/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"

namespace blockrnn::cuda {

// Blocks of steps that a layer is cut into at the most. Two layers with n
// blocks each take as long as n + 1 of them, and each block begins with
// launches and brings its weights again. Not measured yet.
inline constexpr int64_t kMostPairBlocks = 8;

// The matrices of a step.
template <class T, class StateMatrix>
struct StackMatrices {
  StateMatrix state;
  StepMatrix<T, kSlices, true> projection;
};

template <class T, int kGates>
StackMatrices<T, ForwardMatrix<T, kGates>> MatricesOf(
    const RnnStackForwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  StackMatrices<T, ForwardMatrix<T, kGates>> matrices;
  matrices.state.SetShape({g.units, g.proj, args.batch});
  matrices.projection.SetShape({g.proj, g.units, args.batch});
  return matrices;
}
template <class T, int kGates>
StackMatrices<T, BackwardMatrix<T, kGates>> MatricesOf(
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
  auto matrices = MatricesOf<T, kGates>(args);
  StepLoop loop;
  const Error error =
      args.geometry.projected
          ? loop.Plan(host, steps, matrices.state, matrices.projection)
          : loop.Plan(host, steps, matrices.state);
  *persistent = loop.persistent();
  return error;
}

// Whether one kernel does so many steps of a layer, beside `at_once` - 1 others
// of its kind.
template <class Args>
Error IsPersistent(const HostInterface& host, int at_once, int64_t steps,
                   const Args& args, bool* persistent) {
  HostInterface share = host;
  share.side_by_side *= at_once;
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
                  StackStreams* streams) {
  if (args.geometry.layers < 2 || host.overlap_steps < 1 ||
      args.steps < 2 * host.overlap_steps) {
    return nullptr;
  }
  // As many steps in each: the last block brings its weights for all of its
  // own.
  const int64_t blocks =
      std::min(args.steps / host.overlap_steps, kMostPairBlocks);
  const int64_t of_block = (args.steps + blocks - 1) / blocks;
  bool persistent = false;
  const Error error = IsPersistent(host, 2, of_block, args, &persistent);
  if (error == nullptr && persistent) streams->pair_steps = of_block;
  return error;
}

// Two kernels that keep the weights, each with the whole device in its turn,
// are taken for faster than two launches in each step; two at once, with half
// of it each, for faster than both. Not measured yet.
template <class Args>
Error ChooseTurns(const HostInterface& host, const Args& args,
                  StackStreams* streams) {
  bool halves = false;
  if (Error error = IsPersistent(host, 2, args.steps, args, &halves)) {
    return error;
  }
  if (halves) return nullptr;
  return IsPersistent(host, 1, args.steps, args, &streams->directions_in_turn);
}

template <class Args>
Error ChooseStreams(const HostInterface& host, const Args& args,
                    StackStreams* streams) {
  return args.geometry.directions == 1 ? ChoosePairs(host, args, streams)
                                       : ChooseTurns(host, args, streams);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_CONCURRENCY_CUH_
