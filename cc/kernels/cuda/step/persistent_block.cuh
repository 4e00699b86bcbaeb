// Implements what a block of threads of the persistent kernel holds and loads:
// its share of the panels and tiles, its panels of the weights in shared
// memory, and the pieces of the state, of which one is being loaded while
// another one is multiplied.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_BLOCK_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_BLOCK_CUH_

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/persistent_plan.h"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_state.cuh"
#include "cc/kernels/cuda/step/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// A GEMM of a step with its epilogue.
template <class T, int kGatesOfUnit, bool kSlicedSums, class StepEpilogue>
struct PersistentWork {
  using Element = T;
  using Epilogue = StepEpilogue;
  static constexpr int kGates = kGatesOfUnit;
  static constexpr bool kSliced = kSlicedSums;

  StepGemm<T> gemm;
  Epilogue epilogue;
  // The GEMM reads a state that this step computed, of all its rows, and not
  // the state of another step.
  bool reads_this_step = false;
  PersistentStage stage;
};

// The parts of a plan (PersistentPlan) that all GEMMs have in common.
struct PersistentGrid {
  int64_t steps;
  int blocks;  // of a direction
  int sums_at;
  int states_at;
  int next_state;
};

// A block's shared memory.
struct PersistentShared {
  unsigned char* memory;
  const PersistentGrid& grid;

  __device__ __forceinline__ bool two_states() const {
    return grid.next_state > 0;
  }
  // Whether the sums overwrite the state.
  __device__ __forceinline__ bool sums_overlap() const {
    return grid.sums_at == grid.states_at;
  }
};

// The panels and tiles of a GEMM that belong to a block: every panel_groups-th
// and every row_groups-th one. The first ones are computed once, before the
// steps.
template <class Work>
class PersistentShare {
 public:
  using T = typename Work::Element;
  static constexpr int kUnits = PanelUnits<T>(Work::kGates, Work::kSliced);

  // block: among those of the direction.
  __device__ __forceinline__ PersistentShare(const Work& work, unsigned block)
      : work_(work) {
    const auto groups = static_cast<unsigned>(work.stage.panel_groups);
    first_panel_ = static_cast<int>(block % groups);
    first_tile_ = static_cast<int>(block / groups);
    // A block beyond the last group has none.
    if (first_tile_ >= work.stage.row_groups) first_panel_ = units();
  }

  // One of them.
  struct Tile {
    int panel;
    int tile;
    int held;  // the index of the panel among those of the block
  };

  __device__ __forceinline__ Tile First() const {
    return {first_panel_, first_tile_, 0};
  }
  template <int kRows>
  __device__ __forceinline__ bool Has(const Tile& at, int rows) const {
    return at.panel * kUnits < units() && at.tile * kRows < rows;
  }
  // The next tile of the panel or, after the last one, of the next panel.
  template <int kRows>
  __device__ __forceinline__ void Advance(int rows, Tile* at) const {
    at->tile += work_.stage.row_groups;
    if (at->tile * kRows < rows) return;
    at->tile = first_tile_;
    at->panel += work_.stage.panel_groups;
    ++at->held;
  }

  __device__ __forceinline__ const Work& work() const { return work_; }

 private:
  __device__ __forceinline__ int units() const {
    return static_cast<int>(work_.gemm.weights.units);
  }

  const Work& work_;
  int first_panel_;
  int first_tile_;
};

template <class T>
using PackedFour = Four<typename StorageOf<T>::Type>;

// From slice to slice of a piece of `chunks` chunks on CUDA cores, padded so
// that lanes of different slices hit different banks.
template <int kRows>
__device__ __forceinline__ int SliceStride(int chunks) {
  return kRows * chunks + 1;
}

// Of one chunk of a panel, and of one panel.
template <class T>
inline constexpr int kChunkFours = kPanelColumns*(kChunk<T> / kFour);
template <class T>
__device__ __forceinline__ int PanelFours(const PersistentStage& stage) {
  return stage.chunks * kChunkFours<T>;
}

template <class Work>
__device__ __forceinline__ PackedFour<typename Work::Element>* ResidentWeights(
    const Work& work, const PersistentShared& shared) {
  return reinterpret_cast<PackedFour<typename Work::Element>*>(
      shared.memory + work.stage.weights_at);
}

// Loads the block's panels into shared memory.
template <class Work>
__device__ __forceinline__ void LoadResidentWeights(
    const PersistentShare<Work>& share, const PersistentShared& shared) {
  using T = typename Work::Element;
  const PackedWeights<T>& weights = share.work().gemm.weights;
  const int64_t size = PanelFours<T>(share.work().stage);
  const auto* from = reinterpret_cast<const PackedFour<T>*>(weights.packed);
  PackedFour<T>* to = ResidentWeights(share.work(), shared);
  constexpr int kUnits = PersistentShare<Work>::kUnits;
  for (int panel = share.First().panel; panel * kUnits < weights.units;
       panel += share.work().stage.panel_groups) {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      to[i] = from[panel * size + i];
    }
    to += size;
  }
}

// Loads the states of a block's tiles of a step, piece by piece, in the order
// in which they are multiplied; ahead of that by one piece where there is room
// for two.
template <int kRows, class Work>
class PieceLoader {
 public:
  using T = typename Work::Element;
  using Share = PersistentShare<Work>;

  __device__ __forceinline__ PieceLoader(const Share& share,
                                         const StepRange& range,
                                         const PersistentShared& shared)
      : share_(share),
        range_(range),
        rows_(static_cast<int>(range.rows)),
        shared_(shared),
        tile_(share.First()) {
    // In a loop: each copy of this code in the kernel costs reads of
    // instructions in every step.
#pragma unroll 1
    for (int n = shared.two_states() ? 2 : 1; n > 0; --n) Start();
  }

  // Starts loading the next piece, if there is one. The previous one at its
  // place must have been multiplied by all threads.
  __device__ __forceinline__ void Start() {
    const Work& work = share_.work();
    if (share_.template Has<kRows>(tile_, rows_)) {
      const int chunks = work.stage.chunks;
      const int at_once = work.stage.chunks_per_load;
      Load(std::min(at_once, chunks - first_));
      first_ += at_once;
      if (first_ >= chunks) {
        first_ = 0;
        share_.template Advance<kRows>(rows_, &tile_);
      }
      if (shared_.two_states()) loads_second_ = !loads_second_;
    }
    __pipeline_commit();  // a group for each call, so that Wait can count
  }
  // Returns the next piece that is multiplied, once this thread's part of it is
  // there.
  __device__ __forceinline__ const unsigned char* Wait() {
    const unsigned char* const piece = Place(reads_second_);
    if (shared_.two_states()) {
      reads_second_ = !reads_second_;
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    return piece;
  }

 private:
  __device__ __forceinline__ unsigned char* Place(bool second) const {
    return shared_.memory + shared_.grid.states_at +
           (second ? shared_.grid.next_state : 0);
  }
  __device__ __forceinline__ void Load(int count) const {
    constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
    const Work& work = share_.work();
    const int row0 = tile_.tile * kRows;
    unsigned char* const to = Place(loads_second_);
    if constexpr (kTensorCores<T>) {
      LoadStateForTensorCores<kRows, kSlices, false>(
          work.gemm, range_, row0, first_, count,
          reinterpret_cast<HeldFour<T>*>(to));
    } else {
      LoadState<kRows, false>(
          work.gemm, range_, kSlices,
          {row0, first_, count, count, SliceStride<kRows>(count)},
          reinterpret_cast<StateFour<T>*>(to));
    }
  }

  const Share& share_;
  const StepRange& range_;
  const int rows_;
  const PersistentShared& shared_;
  typename Share::Tile tile_;  // of the next piece to load
  int first_ = 0;              // its first chunk
  bool loads_second_ = false;
  bool reads_second_ = false;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_BLOCK_CUH_
