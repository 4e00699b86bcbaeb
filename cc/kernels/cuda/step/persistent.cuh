// Implements the persistent kernel, which runs all steps of a block in one
// launch. Tiles, loads, multiplication and epilogues are those of StepKernel
// (step_panel.cuh, step_state.cuh, step_core.cuh, step_tensor.cuh). In addition
// each block of threads holds its panels of the weights in shared memory, and
// all blocks meet at a grid barrier after each GEMM. persistent_plan.h assigns
// panels and tiles to blocks.
//
// The barrier takes a third of a short step. So a block arrives at it as soon
// as it has published what the next GEMM reads (step_panel.cuh). What only this
// block needs, the saved gates and the operands and rows of the next step, is
// stored and loaded before it waits for the others.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/persistent_plan.h"
#include "cc/kernels/cuda/step/step_core.cuh"
#include "cc/kernels/cuda/step/step_gemm.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_state.cuh"
#include "cc/kernels/cuda/step/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

// The dynamic shared memory of a block.
#ifndef BLOCKRNN_DYNAMIC_SHARED
#define BLOCKRNN_DYNAMIC_SHARED(name) \
  extern __shared__ __align__(16) unsigned char name[]
#endif

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

// The offsets of the parts of a block's shared memory.
struct PersistentShared {
  unsigned char* memory;
  int64_t sums_at;
  int64_t states_at;
};

// The panels and tiles of a GEMM that belong to a block: every panel_groups-th
// and every row_groups-th one. The first ones are computed once, before the
// steps.
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
    // A block beyond the last group has none.
    if (first_tile_ >= work.stage.row_groups) {
      first_panel_ = work.gemm.weights.units;
    }
  }

  // One of them.
  struct Tile {
    int64_t panel;
    int64_t tile;
    int64_t held;  // the index of the panel among those of the block
  };

  __device__ __forceinline__ Tile First() const {
    return {first_panel_, first_tile_, 0};
  }
  template <int kRows>
  __device__ __forceinline__ bool Has(const Tile& at, int64_t rows) const {
    return at.panel * kUnits < work_.gemm.weights.units &&
           at.tile * kRows < rows;
  }
  // The next tile of the panel or, after the last one, of the next panel.
  template <int kRows>
  __device__ __forceinline__ void Advance(int64_t rows, Tile* at) const {
    at->tile += work_.stage.row_groups;
    if (at->tile * kRows < rows) return;
    at->tile = first_tile_;
    at->panel += work_.stage.panel_groups;
    ++at->held;
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
  const int64_t size = PanelFours(weights);
  const auto* from = reinterpret_cast<const PackedFour<T>*>(weights.packed);
  PackedFour<T>* to = ResidentWeights(share.work(), shared);
  constexpr int kUnits = PersistentShare<Work>::kUnits;
  for (int64_t panel = share.First().panel; panel * kUnits < weights.units;
       panel += share.work().stage.panel_groups) {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) {
      to[i] = from[panel * size + i];
    }
    to += size;
  }
}

// Computes the sums of one panel and tile on CUDA cores and stores them where
// FinishTile reads them. The state is loaded in as many parts as shared memory
// requires; while_loading() runs while the first one is being loaded.
template <int kRows, class Work, class WhileLoading>
__device__ __forceinline__ void SumPanel(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared, const WhileLoading& while_loading) {
  using T = typename Work::Element;
  using C = ComputeType<T>;
  constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  static_assert(kSlices <= kMaxStates);
  constexpr int kColumns = LaneColumns<T>(Work::kGates);
  using Lanes = CoreLanes<kColumns>;
  static_assert(Lanes::kGroups <= internal::kMaxLaneGroups);
  auto* const states =
      reinterpret_cast<Four<C>*>(shared.memory + shared.states_at);
  const int gate = kSlices > 1 ? LaneGate<Work::kGates, kColumns>() : 0;
  const int64_t chunks = work.gemm.weights.chunks();
  const int64_t at_once = work.stage.chunks_per_load;
  CoreSums<kRows, kColumns, C> sums;
  for (int64_t first = 0; first < chunks; first += at_once) {
    const auto count = static_cast<int>(std::min(at_once, chunks - first));
    // Padded so that lanes of different slices hit different banks.
    const int slice_stride = kRows * count + 1;
    __syncthreads();  // the previous states have been read
    LoadState<kRows, false>(work.gemm, range, kSlices,
                            {row0, first, count, count, slice_stride}, states);
    if (first == 0) while_loading();
    WaitForState();
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
  // The previous sums have been read: all threads have passed a barrier since.
  StoreSums(sums, reinterpret_cast<C*>(shared.memory + shared.sums_at));
}

// The same on tensor cores; the sums overwrite the states.
template <int kRows, class Work, class WhileLoading>
__device__ __forceinline__ void SumPanelByTensorCores(
    const Work& work, const StepRange& range, int64_t row0,
    const PackedFour<typename Work::Element>* panel,
    const PersistentShared& shared, const WhileLoading& while_loading) {
  using T = typename Work::Element;
  constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  constexpr int kParts = TensorPanel<Work::kGates, kSlices, T>::kParts;
  Pairs* const states =
      reinterpret_cast<Pairs*>(shared.memory + shared.states_at);
  const int64_t chunks = work.gemm.weights.chunks();
  const int64_t at_once = work.stage.chunks_per_load;
  TensorSums<kRows> sums;
  for (int64_t first = 0; first < chunks; first += at_once) {
    const auto count = static_cast<int>(std::min(at_once, chunks - first));
    const int stride = TensorRowStride(count);
    const Pairs* const weights = reinterpret_cast<const Pairs*>(panel) +
                                 first * kPanelColumns * kChunkPairs;
    __syncthreads();  // the previous states have been read
    LoadStateForTensorCores<kRows, kSlices, false>(work.gemm, range, row0,
                                                   first, count, states);
    if (first == 0) while_loading();
    WaitForState();
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

// The operands of the block's first tile of a step, if they are already there.
template <class Work>
struct FirstOperands {
  typename Work::Epilogue::Operands value = {};
  bool read = false;
};

// One GEMM of one step: the block's panels, and the tiles of each. meanwhile():
// what is done between the arrival at the barrier and the wait.
template <int kRows, class Work, class Meanwhile>
__device__ __forceinline__ void RunPersistentStage(
    const PersistentShare<Work>& share, StepRange range,
    const PersistentShared& shared, FirstOperands<Work>* first,
    const Meanwhile& meanwhile) {
  using T = typename Work::Element;
  using Share = PersistentShare<Work>;
  const Work& work = share.work();
  const auto grid = cooperative_groups::this_grid();
  cooperative_groups::grid_group::arrival_token token = 0;
  if (work.reads_this_step) range.state_rows = range.rows;
  typename Share::Tile tile = share.First();
  bool more = share.template Has<kRows>(tile, range.rows);
  do {
    const bool any = more;
    const TileElements<kRows, Share::kUnits> elements = {tile.panel,
                                                         tile.tile * kRows};
    ResultsOf<typename Work::Epilogue> results = {};
    if (any) {
      const auto read_operands = [&] {
        if (!first->read) {
          first->value =
              ReadOperands(work.gemm, work.epilogue, range, elements);
        }
        first->read = false;
      };
      const auto* const weights = ResidentWeights(work, shared) +
                                  tile.held * PanelFours(work.gemm.weights);
      if constexpr (kTensorCores<T>) {
        SumPanelByTensorCores<kRows>(work, range, elements.row0, weights,
                                     shared, read_operands);
      } else {
        SumPanel<kRows>(work, range, elements.row0, weights, shared,
                        read_operands);
      }
      results = PublishTile<Work::kGates, Work::kSliced>(
          work.gemm, work.epilogue, range, elements, first->value,
          reinterpret_cast<const ComputeType<T>*>(shared.memory +
                                                  shared.sums_at));
      share.template Advance<kRows>(range.rows, &tile);
      more = share.template Has<kRows>(tile, range.rows);
    }
    if (!more) token = grid.barrier_arrive();
    if (any) {
      SaveTile(work.gemm, work.epilogue, range, elements, first->value,
               results);
    }
  } while (more);
  meanwhile();
  grid.barrier_wait(std::move(token));
}

// Reads the operands of the block's first tile of a step, which none but its
// own elements of the previous step may have written.
template <int kRows, class Work>
__device__ __forceinline__ void ReadFirstOperands(
    const PersistentShare<Work>& share, const StepRange& range,
    FirstOperands<Work>* first) {
  using Share = PersistentShare<Work>;
  const typename Share::Tile tile = share.First();
  first->read = share.template Has<kRows>(tile, range.rows);
  if (!first->read) return;
  first->value = ReadOperands(
      share.work().gemm, share.work().epilogue, range,
      TileElements<kRows, Share::kUnits>{tile.panel, tile.tile * kRows});
}

// Runs steps ranges(0) … ranges(count - 1), of one GEMM each.
template <int kRows, class Ranges, class Work>
__device__ __forceinline__ void RunPersistentSteps(
    const Ranges& ranges, int64_t count, const PersistentShared& shared,
    const PersistentShare<Work>& share) {
  // The barriers before the first GEMM also cover these weights.
  LoadResidentWeights(share, shared);
  FirstOperands<Work> operands;
  StepRange range = ranges(0);
  for (int64_t n = 0; n < count; ++n) {
    StepRange next = {};
    RunPersistentStage<kRows>(share, range, shared, &operands, [&] {
      if (n + 1 == count) return;
      next = ranges(n + 1);
      ReadFirstOperands<kRows>(share, next, &operands);
    });
    range = next;
  }
}

// The same with two GEMMs in each step. No operands are read ahead: elements of
// the other GEMM may write them.
template <int kRows, class Ranges, class First, class Second>
__device__ __forceinline__ void RunPersistentSteps(
    const Ranges& ranges, int64_t count, const PersistentShared& shared,
    const PersistentShare<First>& first,
    const PersistentShare<Second>& second) {
  LoadResidentWeights(first, shared);
  LoadResidentWeights(second, shared);
  StepRange range = ranges(0);
  for (int64_t n = 0; n < count; ++n) {
    StepRange next = {};
    FirstOperands<First> of_first;
    RunPersistentStage<kRows>(first, range, shared, &of_first, [] {});
    FirstOperands<Second> of_second;
    RunPersistentStage<kRows>(second, range, shared, &of_second, [&] {
      if (n + 1 < count) next = ranges(n + 1);
    });
    range = next;
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
