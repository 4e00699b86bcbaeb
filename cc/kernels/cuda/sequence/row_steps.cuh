// Implements passes over whole rows, for cells that need a row's sums before
// they can compute any unit of it (layer normalisation): a block of threads for
// each row, sums over its threads, and the steps of a block with such a pass
// behind each step's GEMM.
//
// Two launches for each step. A persistent kernel would have the two as its
// stages, with a barrier of the grid after each.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_ROW_STEPS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_ROW_STEPS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"

namespace blockrnn::cuda {

// Sums each of the values over the threads of the block: over the lanes of a
// warp in a tree, then over the warps in their order. All threads of the block
// must call it, and all get the same bits.
template <int kCount, class C>
__device__ __forceinline__ void SumOverBlock(C (&values)[kCount]) {
  constexpr unsigned kAll = 0xffffffff;
  __shared__ C parts[kWarps][kCount];
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      values[n] += __shfl_sync(kAll, values[n], Lane() ^ half);
    }
  }
  __syncthreads();  // the previous parts have been read
  if (Lane() == 0) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) parts[Warp()][n] = values[n];
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    values[n] = C(0);
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) values[n] += parts[warp][n];
  }
}

// Calls f(unit) for the units of a row that belong to this thread: always the
// same ones, so that what a thread stores for a unit it may read again.
template <class F>
__device__ __forceinline__ void ForEachUnit(int64_t units, const F& f) {
#pragma unroll 1
  for (int64_t unit = threadIdx.x; unit < units; unit += kThreads) f(unit);
}

// Calls pass(row) for each row, by a block of threads. One block per
// multiprocessor is requested, as in PointwiseKernel, so that registers do not
// spill.
template <class Pass>
__global__ void __launch_bounds__(kThreads, 1)
    WholeRowsKernel(int64_t rows, Pass pass) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) pass(row);
}

template <class Pass>
Error RunWholeRows(const HostInterface& host, int64_t rows, const Pass& pass) {
  return Launch(WholeRowsKernel<Pass>, rows, host, rows, pass);
}

// Calls pass(order, place) for each row of a block's steps.
template <class Pass>
Error RunBlockRows(const HostInterface& host, const RowOrder& order,
                   const StepBlock& block, const Pass& pass) {
  return RunWholeRows(host, block.steps * block.widest,
                      BlockPass<Pass>{order, block.first, block.widest, pass});
}

// Runs the steps of a block: multiply(range), which queues a step's GEMM and
// returns its error, then pass_of(step)(b) for each row of the step.
template <class Multiply, class PassOf>
Error RunRowSteps(const HostInterface& host, const SequenceRows& rows,
                  const StepBlock& block, bool backwards,
                  const Multiply& multiply, const PassOf& pass_of) {
  const BlockSteps steps = {rows.host_order(), block, backwards};
  for (int64_t n = 0; n < block.steps; ++n) {
    const StepRange range = steps(n);
    if (Error error = multiply(range)) return error;
    if (Error error = RunWholeRows(host, range.rows, pass_of(range.step))) {
      return error;
    }
  }
  return nullptr;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_ROW_STEPS_CUH_
