// Owns the choice of whether the layers of a stack run in pairs, the second of
// a pair some steps behind the first: where the steps of each layer can be a
// persistent kernel in half of the device. Larger layers have work for all of
// it, and are better one after the other.

#ifndef BLOCKRNN_KERNELS_CUDA_RNN_STACK_PAIRS_CUH_
#define BLOCKRNN_KERNELS_CUDA_RNN_STACK_PAIRS_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/rnn_args.h"
#include "cc/core/rnn_geometry.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"

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
    const RnnForwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  StackMatrices<T, ForwardMatrix<T, kGates>> matrices;
  matrices.state.SetShape({g.units, g.proj, args.batch});
  matrices.projection.SetShape({g.proj, g.units, args.batch});
  return matrices;
}
template <class T, int kGates>
StackMatrices<T, BackwardMatrix<T, kGates>> MatricesOf(
    const RnnBackwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  StackMatrices<T, BackwardMatrix<T, kGates>> matrices;
  matrices.state.SetShape({g.proj, kGates * g.units, args.batch});
  matrices.projection.SetShape({g.units, g.proj, args.batch});
  return matrices;
}

template <int kGates, class T, template <class> class Args>
Error IsPersistent(const Host& host, int64_t steps, const Args<T>& args,
                   bool* persistent) {
  auto matrices = MatricesOf<T, kGates>(args);
  StepLoop loop;
  const Error error =
      args.geometry.projected
          ? loop.Plan(host, steps, matrices.state, matrices.projection)
          : loop.Plan(host, steps, matrices.state);
  *persistent = loop.persistent();
  return error;
}

// *steps: of a block; 0 where the layers run one after the other.
template <class Args>
Error ChoosePairs(const Host& host, const Args& args, int64_t* steps) {
  *steps = 0;
  const RnnGeometry& g = args.geometry;
  if (g.layers < 2 || g.directions != 1 || host.overlap_steps < 1 ||
      args.steps < 2 * host.overlap_steps) {
    return nullptr;
  }
  // As many steps in each: the last block brings its weights for all of its
  // own.
  const int64_t blocks =
      std::min(args.steps / host.overlap_steps, kMostPairBlocks);
  const int64_t of_block = (args.steps + blocks - 1) / blocks;
  Host half = host;
  half.side_by_side *= 2;
  bool persistent = false;
  Error error = nullptr;
  switch (g.mode) {
    case RnnMode::kLstm:
      error = IsPersistent<kLstmGates>(half, of_block, args, &persistent);
      break;
    case RnnMode::kGru:
      error = IsPersistent<kGruAfterGates>(half, of_block, args, &persistent);
      break;
    default:
      error = IsPersistent<1>(half, of_block, args, &persistent);
      break;
  }
  if (error == nullptr && persistent) *steps = of_block;
  return error;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_RNN_STACK_PAIRS_CUH_
