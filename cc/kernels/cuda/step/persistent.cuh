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
// stored and loaded before it waits for the others. Where a state has several
// pieces, one is being loaded while another one is multiplied.
//
// The two directions of a layer share a grid, half of its blocks each, and its
// barriers: they have the same number of steps, and of GEMMs in each.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/persistent_block.cuh"
#include "cc/kernels/cuda/step/persistent_plan.h"
#include "cc/kernels/cuda/step/step_core.cuh"
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

// The GEMMs of a step, in their order.
template <class First, class... Second>
struct PersistentWorks;
template <class First>
struct PersistentWorks<First> {
  First first;
};
template <class First, class Second>
struct PersistentWorks<First, Second> {
  First first;
  Second second;
};

// One for each of the directions that share a grid.
template <class T, int kDirections>
struct ByDirection {
  T of[kDirections];
};

// A lane's sums of a tile, on CUDA cores or on tensor cores.
template <int kRows, class Work>
struct PersistentSums {
  using T = typename Work::Element;
  using C = ComputeType<T>;
  static constexpr int kColumns = LaneColumns<T>(Work::kGates);
  static constexpr int kSlices = Work::kSliced ? Work::kGates : 1;
  static_assert(kSlices <= kMaxStates);

  std::conditional_t<kTensorCores<T>, TensorSums<kRows>,
                     CoreSums<kRows, kColumns, C>>
      value;

  // += a piece of `count` chunks · their weights.
  __device__ __forceinline__ void Add(const PackedFour<T>* panel,
                                      const unsigned char* piece, int count) {
    if constexpr (kTensorCores<T>) {
      constexpr int kParts = TensorPanel<Work::kGates, kSlices, T>::kParts;
      const HeldFour<T>* const weights =
          reinterpret_cast<const HeldFour<T>*>(panel);
      const HeldFour<T>* const states =
          reinterpret_cast<const HeldFour<T>*>(piece);
      const int stride = TensorRowStride(count);
#pragma unroll 2
      for (int chunk = Warp(); chunk < count; chunk += kWarps) {
        TensorWeights<kParts, T> w;
        w.Read(weights + chunk * kPanelColumns * kChunkHeld);
        MultiplyTensorChunk<kRows, Work::kGates, kSlices, T>(
            w, states + chunk * kChunkHeld, stride, &value);
      }
    } else {
      using Lanes = CoreLanes<kColumns>;
      static_assert(Lanes::kGroups <= internal::kMaxLaneGroups);
      const int gate = kSlices > 1 ? LaneGate<Work::kGates, kColumns>() : 0;
      const auto* const states = reinterpret_cast<const Four<C>*>(piece) +
                                 gate * SliceStride<kRows>(count);
#pragma unroll 2
      for (int chunk = Lanes::group() * kWarps + Warp(); chunk < count;
           chunk += Lanes::kGroups * kWarps) {
        CoreWeights<kColumns, C> w;
        w.Read(panel + chunk * kPanelColumns);
        MultiplyChunk(w, states + chunk, count, &value);
      }
    }
  }
};

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
  const auto rows = static_cast<int>(range.rows);
  typename Share::Tile tile = share.First();
  bool more = share.template Has<kRows>(tile, rows);
  auto* const sums =
      reinterpret_cast<ComputeType<T>*>(shared.memory + shared.grid.sums_at);
  PieceLoader<kRows, Work> loader(share, range, shared);
  do {
    const bool any = more;
    const TileElements<kRows, Share::kUnits> elements = {tile.panel,
                                                         tile.tile * kRows};
    ResultsOf<typename Work::Epilogue> results = {};
    if (any) {
      if (!first->read) {
        first->value = ReadOperands(work.gemm, work.epilogue, range, elements);
      }
      first->read = false;
      const auto* panel =
          ResidentWeights(work, shared) + tile.held * PanelFours<T>(work.stage);
      PersistentSums<kRows, Work> of_lane;
      for (int left = work.stage.chunks; left > 0;) {
        const int count = std::min(work.stage.chunks_per_load, left);
        left -= count;
        const unsigned char* const piece = loader.Wait();
        __syncthreads();
        of_lane.Add(panel, piece, count);
        panel += count * kChunkFours<T>;
        if (left > 0 || shared.sums_overlap()) __syncthreads();
        if (left > 0) loader.Start();
      }
      // The previous sums have been read: all threads have passed a barrier
      // since.
      StoreSums(of_lane.value, sums);
      results = PublishTile<Work::kGates, Work::kSliced>(
          work.gemm, work.epilogue, range, elements, first->value, sums, [&] {
            if (!shared.sums_overlap()) loader.Start();
          });
      if (shared.sums_overlap()) {
        __syncthreads();  // the sums have been read
        loader.Start();
      }
      share.template Advance<kRows>(rows, &tile);
      more = share.template Has<kRows>(tile, rows);
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
  first->read = share.template Has<kRows>(tile, static_cast<int>(range.rows));
  if (!first->read) return;
  first->value = ReadOperands(
      share.work().gemm, share.work().epilogue, range,
      TileElements<kRows, Share::kUnits>{tile.panel, tile.tile * kRows});
}

// Runs the steps ranges(0), ranges(1) …, of one GEMM each. block: among those
// of the direction.
template <int kRows, class Ranges, class Work>
__device__ __forceinline__ void RunPersistentSteps(
    const Ranges& ranges, const PersistentShared& shared,
    const PersistentWorks<Work>& works, unsigned block) {
  const PersistentShare<Work> share(works.first, block);
  // The barriers before the first GEMM also cover these weights.
  LoadResidentWeights(share, shared);
  FirstOperands<Work> operands;
  const int64_t count = shared.grid.steps;
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
    const Ranges& ranges, const PersistentShared& shared,
    const PersistentWorks<First, Second>& works, unsigned block) {
  const PersistentShare<First> first(works.first, block);
  const PersistentShare<Second> second(works.second, block);
  LoadResidentWeights(first, shared);
  LoadResidentWeights(second, shared);
  const int64_t count = shared.grid.steps;
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

// ranges: the same for all directions. Works: PersistentWorks.
template <int kRows, int kDirections, class Ranges, class Works>
__global__ void __launch_bounds__(kThreads, 1) PersistentKernel(
    const __grid_constant__ Ranges ranges,
    const __grid_constant__ PersistentGrid grid,
    const __grid_constant__ ByDirection<Works, kDirections> works) {
  BLOCKRNN_DYNAMIC_SHARED(memory);
  const auto blocks = static_cast<unsigned>(grid.blocks);
  const unsigned direction = kDirections == 1 ? 0 : blockIdx.x / blocks;
  RunPersistentSteps<kRows>(ranges, PersistentShared{memory, grid},
                            works.of[direction],
                            blockIdx.x - direction * blocks);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_CUH_
