// Owns the persistent kernel: all steps of a block in one launch. What a step
// computes is cc/kernels/cuda/step_product.cuh's, and so are its epilogues;
// here each block of threads keeps its panels of the weights in shared memory,
// and waits for all others after each product. Which block has what stands in
// persistent_plan.h.

#ifndef BLOCKRNN_KERNELS_CUDA_PERSISTENT_CUH_
#define BLOCKRNN_KERNELS_CUDA_PERSISTENT_CUH_

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/persistent_plan.h"
#include "cc/kernels/cuda/step_panel.cuh"
#include "cc/kernels/cuda/step_product.cuh"
#include "cc/kernels/cuda/step_state.cuh"
#include "cc/kernels/cuda/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

// The shared memory of a block that its launch asks for.
#ifndef BLOCKRNN_DYNAMIC_SHARED
#define BLOCKRNN_DYNAMIC_SHARED(name) \
  extern __shared__ __align__(16) unsigned char name[]
#endif

namespace blockrnn::cuda {

// A product of a step with what is done to its sums.
template <class T, int kGatesOfUnit, bool kSlicedSums, class StepEpilogue>
struct PersistentWork {
  using Element = T;
  using Epilogue = StepEpilogue;
  static constexpr int kGates = kGatesOfUnit;
  static constexpr bool kSliced = kSlicedSums;

  StepProduct<T> product;
  Epilogue epilogue;
  // The state is the step's own, of all its rows, and not another step's.
  bool of_this_step = false;
  PersistentStage stage;
};

// Where the parts of a block's shared memory begin.
struct PersistentShared {
  unsigned char* memory;
  int64_t sums_at;
  int64_t states_at;
};

// The first panel and tile that this block has; it has every panel_groups-th
// and row_groups-th from there on, or none.
__device__ __forceinline__ int64_t FirstPanel(const PersistentStage& stage) {
  return blockIdx.x % stage.panel_groups;
}
__device__ __forceinline__ int64_t FirstTile(const PersistentStage& stage) {
  return blockIdx.x / stage.panel_groups;
}

template <class T>
using PackedFour = Four<typename StorageOf<T>::Type>;

// Of one panel.
template <class T>
__device__ __forceinline__ int64_t PanelFours(const PackedWeights<T>& weights) {
  return weights.chunks() * kPanelColumns * (kChunk<T> / kFour);
}

template <class Work>
__device__ __forceinline__ PackedFour<typename Work::Element>* KeptWeights(
    const Work& work, const PersistentShared& shared) {
  return reinterpret_cast<PackedFour<typename Work::Element>*>(
      shared.memory + work.stage.weights_at);
}

// Brings the block's panels to shared memory, one after the other.
template <class Work>
__device__ __forceinline__ void KeepWeights(const Work& work,
                                            const PersistentShared& shared) {
  using T = typename Work::Element;
  const PackedWeights<T>& weights = work.product.weights;
  if (FirstTile(work.stage) >= work.stage.row_groups) return;
  const int64_t size = PanelFours(weights);
  const auto* from = reinterpret_cast<const PackedFour<T>*>(weights.packed);
  PackedFour<T>* to = KeptWeights(work, shared);
  for (int64_t panel = FirstPanel(work.stage); panel < weights.panels();
       panel += work.stage.panel_groups, to += size) {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      to[i] = from[panel * size + i];
    }
  }
}

// sums[row] += states[row] · this lane's column, of the chunks that this warp
// has.
template <int kRows, class S, class C>
__device__ __forceinline__ void MultiplyKept(const Four<S>* column,
                                             const Four<C>* states, int chunks,
                                             C (&sums)[kRows]) {
#pragma unroll 2
  for (int chunk = Warp(); chunk < chunks; chunk += kWarps) {
    MultiplyChunk(column[chunk * kPanelColumns], states + chunk, chunks, sums);
  }
}

// The sums of one panel and tile by CUDA cores, to where FinishTile reads them;
// the state in parts that there is shared memory for.
template <int kRows, class Work>
__device__ __forceinline__ void SumKept(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared) {
  using T = typename Work::Element;
  using C = ComputeType<T>;
  constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  static_assert(kSlices <= kMostStates);
  auto* const states =
      reinterpret_cast<Four<C>*>(shared.memory + shared.states_at);
  const int gate = LaneGate<Work::kGates>();
  const int64_t chunks = work.product.weights.chunks();
  const int64_t at_once = work.stage.chunks_at_once;
  C sums[kRows] = {};
  for (int64_t first = 0; first < chunks; first += at_once) {
    const auto count = static_cast<int>(std::min(at_once, chunks - first));
    // Lanes of different slices meet different banks.
    const int slice_stride = kRows * count + 1;
    __syncthreads();  // the states before these have been read
    BringState<kRows, false>(work.product, range, kSlices,
                             {row0, first, count, count, slice_stride}, states);
    __syncthreads();
    MultiplyKept(panel + first * kPanelColumns + Lane(),
                 states + (kSlices > 1 ? gate * slice_stride : 0), count, sums);
  }
  // The sums before these have been read: every thread has been at a barrier
  // since.
  StoreSums(sums, reinterpret_cast<C*>(shared.memory + shared.sums_at));
}

// The same by tensor cores; the sums stand where the states were.
template <int kRows, class Work>
__device__ __forceinline__ void SumKeptByTensorCores(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared) {
  using T = typename Work::Element;
  constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  constexpr int kParts = TensorPanel<Work::kGates, kSlices, T>::kParts;
  Pairs* const states =
      reinterpret_cast<Pairs*>(shared.memory + shared.states_at);
  const int64_t chunks = work.product.weights.chunks();
  const int64_t at_once = work.stage.chunks_at_once;
  TensorSums<kRows> sums;
  for (int64_t first = 0; first < chunks; first += at_once) {
    const auto count = static_cast<int>(std::min(at_once, chunks - first));
    const int stride = TensorRowStride(count);
    const Pairs* const weights = reinterpret_cast<const Pairs*>(panel) +
                                 first * kPanelColumns * kChunkPairs;
    __syncthreads();  // the states before these have been read
    BringForTensorCores<kRows, kSlices, false>(work.product, range, row0, first,
                                               count, states);
    __syncthreads();
#pragma unroll 2
    for (int chunk = Warp(); chunk < count; chunk += kWarps) {
      TensorWeights<kParts> w;
      w.Read(weights + chunk * kPanelColumns * kChunkPairs);
      MultiplyTensorChunk<kRows, Work::kGates, kSlices, T>(
          w, states + chunk * kChunkPairs, stride, &sums);
    }
  }
  __syncthreads();  // the states have been read
  StoreSums(sums, reinterpret_cast<float*>(shared.memory + shared.sums_at));
}

// One product of one step: the block's panels, and for each its tiles.
template <int kRows, class Work>
__device__ __forceinline__ void RunPersistentStage(
    const Work& work, const StepRange& range, const PersistentShared& shared) {
  using T = typename Work::Element;
  constexpr int kUnits = PanelUnits<T>(Work::kGates, Work::kSliced);
  const PersistentStage& stage = work.stage;
  const PackedWeights<T>& weights = work.product.weights;
  if (FirstTile(stage) >= stage.row_groups) return;
  const auto* panel_weights = KeptWeights(work, shared);
  for (int64_t panel = FirstPanel(stage); panel < weights.panels();
       panel += stage.panel_groups) {
    for (int64_t tile = FirstTile(stage); tile * kRows < range.rows;
         tile += stage.row_groups) {
      if constexpr (kTensorCores<T>) {
        SumKeptByTensorCores<kRows>(work, range, tile * kRows, panel_weights,
                                    shared);
      } else {
        SumKept<kRows>(work, range, tile * kRows, panel_weights, shared);
      }
      FinishTile<kRows, Work::kGates, kUnits, Work::kSliced>(
          work.product, work.epilogue, range, panel, tile * kRows,
          reinterpret_cast<const ComputeType<T>*>(shared.memory +
                                                  shared.sums_at));
    }
    panel_weights += PanelFours(weights);
  }
}

// Steps ranges(0) … ranges(count - 1).
template <int kRows, class Ranges, class... Works>
__global__ void __launch_bounds__(kThreads, 1)
    PersistentKernel(Ranges ranges, int64_t count, int64_t sums_at,
                     int64_t states_at, Works... works) {
  BLOCKRNN_DYNAMIC_SHARED(memory);
  const PersistentShared shared = {memory, sums_at, states_at};
  // The barriers before the first product are these weights' as well.
  (KeepWeights(works, shared), ...);
  const auto run = [&](const auto& work, StepRange range) {
    if (work.of_this_step) range.state_rows = range.rows;
    RunPersistentStage<kRows>(work, range, shared);
    cooperative_groups::this_grid().sync();
  };
  for (int64_t n = 0; n < count; ++n) {
    const StepRange range = ranges(n);
    (run(works, range), ...);
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_PERSISTENT_CUH_
