// Owns the persistent kernel: all steps of a block in one launch. How a tile is
// cut, brought, multiplied and ended is StepKernel's way as well
// (step_panel.cuh, step_state.cuh, step_core.cuh, step_tensor.cuh), and so are
// the epilogues; here each block of threads keeps its panels of the weights in
// shared memory, and waits for all others after each product. Which block has
// what stands in persistent_plan.h.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/persistent_plan.h"
#include "cc/kernels/cuda/step/step_core.cuh"
#include "cc/kernels/cuda/step/step_gemm.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_state.cuh"
#include "cc/kernels/cuda/step/step_tensor.cuh"
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

// The panels and tiles of a product that a block has: every panel_groups-th and
// row_groups-th from its first ones on, which are found once, before the steps.
template <class Work>
class PersistentShare {
 public:
  using T = typename Work::Element;
  static constexpr int kUnits = PanelUnits<T>(Work::kGates, Work::kSliced);

  __device__ __forceinline__ explicit PersistentShare(const Work& work)
      : work_(work) {
    const auto groups = static_cast<unsigned>(work.stage.panel_groups);
    first_panel_ = blockIdx.x % groups;
    first_tile_ = blockIdx.x / groups;
    // It may be one of those that are left over.
    if (first_tile_ >= work.stage.row_groups) {
      first_panel_ = work.product.weights.units;
    }
  }

  // use(panel) for each.
  template <class Use>
  __device__ __forceinline__ void ForEachPanel(const Use& use) const {
    for (int64_t panel = first_panel_;
         panel * kUnits < work_.product.weights.units;
         panel += work_.stage.panel_groups) {
      use(panel);
    }
  }
  // use(tile) for each of `rows` rows.
  template <int kRows, class Use>
  __device__ __forceinline__ void ForEachTile(int64_t rows,
                                              const Use& use) const {
    for (int64_t tile = first_tile_; tile * kRows < rows;
         tile += work_.stage.row_groups) {
      use(tile);
    }
  }

  __device__ __forceinline__ const Work& work() const { return work_; }

 private:
  const Work& work_;
  int64_t first_panel_;
  int64_t first_tile_;
};

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
__device__ __forceinline__ void KeepWeights(const PersistentShare<Work>& share,
                                            const PersistentShared& shared) {
  using T = typename Work::Element;
  const PackedWeights<T>& weights = share.work().product.weights;
  const int64_t size = PanelFours(weights);
  const auto* from = reinterpret_cast<const PackedFour<T>*>(weights.packed);
  PackedFour<T>* to = KeptWeights(share.work(), shared);
  share.ForEachPanel([&](int64_t panel) {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      to[i] = from[panel * size + i];
    }
    to += size;
  });
}

// The sums of one panel and tile by CUDA cores, to where FinishTile reads them;
// the state in parts that there is shared memory for. meanwhile(): while the
// first of them comes.
template <int kRows, class Work, class Meanwhile>
__device__ __forceinline__ void SumKept(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared, const Meanwhile& meanwhile) {
  using T = typename Work::Element;
  using C = ComputeType<T>;
  constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  static_assert(kSlices <= kMostStates);
  constexpr int kColumns = LaneColumns<T>(Work::kGates);
  using Lanes = CoreLanes<kColumns>;
  static_assert(Lanes::kGroups <= internal::kMostLaneGroups);
  auto* const states =
      reinterpret_cast<Four<C>*>(shared.memory + shared.states_at);
  const int gate = kSlices > 1 ? LaneGate<Work::kGates, kColumns>() : 0;
  const int64_t chunks = work.product.weights.chunks();
  const int64_t at_once = work.stage.chunks_at_once;
  CoreSums<kRows, kColumns, C> sums;
  for (int64_t first = 0; first < chunks; first += at_once) {
    const auto count = static_cast<int>(std::min(at_once, chunks - first));
    // Lanes of different slices meet different banks.
    const int slice_stride = kRows * count + 1;
    __syncthreads();  // the states before these have been read
    BringState<kRows, false>(work.product, range, kSlices,
                             {row0, first, count, count, slice_stride}, states);
    if (first == 0) meanwhile();
    AwaitState();
    __syncthreads();
    const Four<C>* const weights = panel + first * kPanelColumns;
#pragma unroll 2
    for (int chunk = Lanes::group() * kWarps + Warp(); chunk < count;
         chunk += Lanes::kGroups * kWarps) {
      CoreWeights<kColumns, C> w;
      w.Read(weights + chunk * kPanelColumns);
      MultiplyChunk(w, states + gate * slice_stride + chunk, count, &sums);
    }
  }
  // The sums before these have been read: every thread has been at a barrier
  // since.
  StoreSums(sums, reinterpret_cast<C*>(shared.memory + shared.sums_at));
}

// The same by tensor cores; the sums stand where the states were.
template <int kRows, class Work, class Meanwhile>
__device__ __forceinline__ void SumKeptByTensorCores(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared, const Meanwhile& meanwhile) {
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
    if (first == 0) meanwhile();
    AwaitState();
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
    const PersistentShare<Work>& share, StepRange range,
    const PersistentShared& shared) {
  using T = typename Work::Element;
  const Work& work = share.work();
  if (work.of_this_step) range.state_rows = range.rows;
  const auto* panel_weights = KeptWeights(work, shared);
  share.ForEachPanel([&](int64_t panel) {
    share.template ForEachTile<kRows>(range.rows, [&](int64_t tile) {
      const TileElements<kRows, PersistentShare<Work>::kUnits> elements = {
          panel, tile * kRows};
      typename Work::Epilogue::Operands operands = {};
      const auto read_operands = [&] {
        operands = ReadOperands(work.product, work.epilogue, range, elements);
      };
      if constexpr (kTensorCores<T>) {
        SumKeptByTensorCores<kRows>(work, range, elements.row0, panel_weights,
                                    shared, read_operands);
      } else {
        SumKept<kRows>(work, range, elements.row0, panel_weights, shared,
                       read_operands);
      }
      FinishTile<Work::kGates, Work::kSliced>(
          work.product, work.epilogue, range, elements, operands,
          reinterpret_cast<const ComputeType<T>*>(shared.memory +
                                                  shared.sums_at));
    });
    panel_weights += PanelFours(work.product.weights);
  });
}

// Steps ranges(0) … ranges(count - 1).
template <int kRows, class Ranges, class... Works>
__device__ __forceinline__ void RunPersistentSteps(
    const Ranges& ranges, int64_t count, const PersistentShared& shared,
    const PersistentShare<Works>&... shares) {
  // The barriers before the first product are these weights' as well.
  (KeepWeights(shares, shared), ...);
  for (int64_t n = 0; n < count; ++n) {
    const StepRange range = ranges(n);
    ((RunPersistentStage<kRows>(shares, range, shared),
      cooperative_groups::this_grid().sync()),
     ...);
  }
}

template <int kRows, class Ranges, class... Works>
__global__ void __launch_bounds__(kThreads, 1)
    PersistentKernel(Ranges ranges, int64_t count, int64_t sums_at,
                     int64_t states_at, Works... works) {
  BLOCKRNN_DYNAMIC_SHARED(memory);
  RunPersistentSteps<kRows>(ranges, count,
                            PersistentShared{memory, sums_at, states_at},
                            PersistentShare<Works>(works)...);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_
