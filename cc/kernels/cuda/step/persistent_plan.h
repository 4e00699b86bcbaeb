// Owns the choice of how the steps of a block are run: one launch for each, or
// one persistent kernel for all of them, whose blocks keep their part of the
// recurrent weights in shared memory and wait for each other after each
// product. Host code without CUDA, so that it is tested without a GPU.
//
// A product of a step is cut as cc/kernels/cuda/step/step_panel.cuh says, into
// panels of 32 columns of weights and tiles of rows. A block has some panels,
// for ever, and some tiles. There is at most one block for each multiprocessor,
// so all of them run at once, as the barrier needs.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_

#include <algorithm>
#include <cstdint>

namespace blockrnn::cuda {

// What is asked of the device.
struct PersistentDevice {
  bool cooperative = false;     // can launch a grid with a barrier
  int64_t multiprocessors = 0;  // that this process may use
  int64_t shared_bytes = 0;     // dynamic shared memory of one block, at most
};

// One product of a step.
struct PersistentProduct {
  int64_t rows = 0;       // of the largest step
  int64_t panels = 0;     // of 32 columns
  int64_t chunks = 0;     // of a column: of 4 depths, or 16 of tensor cores
  int slices = 1;         // columns that read other parts of the state
  int weight_bytes = 0;   // of an element
  int compute_bytes = 0;  // of a sum and, without tensor cores, of the state
  bool tensor_cores = false;
};

// How a persistent kernel runs one product. Its block b has the panels p with
// p % panel_groups == b % panel_groups and the tiles with
// t % row_groups == b / panel_groups.
struct PersistentStage {
  int64_t panel_groups = 0;
  int64_t row_groups = 0;
  int64_t weights_at = 0;      // bytes, in shared memory
  int64_t chunks_at_once = 0;  // of the state in shared memory
};

inline constexpr int kMostPersistentStages = 2;

struct PersistentPlan {
  int rows = 0;  // of a tile; 0: a launch for each step is better, or must be
  int64_t blocks = 0;
  int64_t sums_at = 0;    // bytes, in shared memory
  int64_t states_at = 0;  // bytes, in shared memory
  int64_t shared_bytes = 0;
  PersistentStage stages[kMostPersistentStages];
};

// Rows of a tile: for one or two rows that wait for each step, and for more.
// Steps of two products have the larger tiles alone, which halves the kernels
// that there are to compile.
inline constexpr int kFewPersistentRows = 2;
inline constexpr int kManyPersistentRows = 8;
// Of a tile of tensor cores, however few rows there are: both ways a step is
// bound by reading the weights from shared memory.
inline constexpr int kTensorPersistentRows = 16;

// With fewer steps the weights are not read often enough to keep them.
inline constexpr int64_t kFewestPersistentSteps = 4;
// Tiles of a block, one after the other. With more of them the products of a
// step take so long that neither its launch nor its weights matter, and the
// tiles of StepKernel, which are larger, are better. Not measured yet.
inline constexpr int64_t kMostPersistentTiles = 4;

namespace internal {

inline constexpr int64_t kSharedAlignment = 16;
inline constexpr int64_t kWarpsOfABlock = 8;
inline constexpr int64_t kMostLaneGroups = 4;  // CoreLanes in step_core.cuh
inline constexpr int64_t kColumnsOfAPanel = 32;
inline constexpr int64_t kRoundedBytes = 2;  // of the state of tensor cores

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t DepthsOfAChunk(const PersistentProduct& product) {
  return product.tensor_cores ? 16 : 4;
}

inline int64_t PanelBytes(const PersistentProduct& product) {
  return product.chunks * DepthsOfAChunk(product) * kColumnsOfAPanel *
         product.weight_bytes;
}

// Of all slices' states, each of which is followed by a chunk, so that lanes of
// different slices meet different banks; of tensor cores each row by one that
// makes their number odd (TensorRowStride).
inline int64_t StateBytes(const PersistentProduct& product, int rows,
                          int64_t chunks) {
  if (product.tensor_cores) {
    return product.slices * rows * (chunks | 1) * DepthsOfAChunk(product) *
           kRoundedBytes;
  }
  return product.slices * (rows * chunks + 1) * DepthsOfAChunk(product) *
         product.compute_bytes;
}

// As many chunks as all warps, and without tensor cores all groups of their
// lanes, have as many of: a sum's order is that of the steps one by one. 0 or
// less where there is no room.
inline int64_t ChunksThatFit(const PersistentProduct& product, int rows,
                             int64_t bytes) {
  if (product.tensor_cores) {
    // Of an even number there is room for one more.
    const int64_t chunks = bytes / StateBytes(product, rows, 1);
    return (chunks - 1) / kWarpsOfABlock * kWarpsOfABlock;
  }
  constexpr int64_t kEach = kWarpsOfABlock * kMostLaneGroups;
  return bytes / StateBytes(product, rows, kEach) * kEach;
}

inline int TileRows(const PersistentProduct* products, int num_products) {
  if (products[0].tensor_cores) return kTensorPersistentRows;
  return num_products == 1 && products[0].rows <= kFewPersistentRows
             ? kFewPersistentRows
             : kManyPersistentRows;
}

}  // namespace internal

// products: of one step, in their order; at most kMostPersistentStages, all
// with tensor cores or none.
inline PersistentPlan PlanPersistent(const PersistentDevice& device,
                                     int64_t steps,
                                     const PersistentProduct* products,
                                     int num_products) {
  using internal::CeilDiv;
  const PersistentPlan no;
  if (!device.cooperative || device.multiprocessors < 1 ||
      steps < kFewestPersistentSteps) {
    return no;
  }
  PersistentPlan plan;
  plan.rows = internal::TileRows(products, num_products);
  int64_t at = 0;
  int64_t sum_bytes = 0;
  for (int s = 0; s < num_products; ++s) {
    const PersistentProduct& product = products[s];
    PersistentStage& stage = plan.stages[s];
    if (product.rows == 0 || product.panels == 0 || product.chunks == 0) {
      return no;
    }
    // The fewest panels for each block, then as many blocks for the rows as
    // there are multiprocessors left.
    const int64_t panels = CeilDiv(product.panels, device.multiprocessors);
    const int64_t tiles = CeilDiv(product.rows, plan.rows);
    stage.panel_groups = CeilDiv(product.panels, panels);
    stage.row_groups =
        std::min(tiles, device.multiprocessors / stage.panel_groups);
    if (CeilDiv(tiles, stage.row_groups) * panels > kMostPersistentTiles) {
      return no;
    }
    stage.weights_at = at;
    at += panels * internal::PanelBytes(product);
    sum_bytes = std::max(sum_bytes, internal::kWarpsOfABlock *
                                        internal::kColumnsOfAPanel * plan.rows *
                                        product.compute_bytes);
    plan.blocks = std::max(plan.blocks, stage.panel_groups * stage.row_groups);
  }
  plan.sums_at = at;
  // With tensor cores the sums take the place of the states, for a barrier of
  // the block: there the room is worth more.
  plan.states_at = products[0].tensor_cores ? at : at + sum_bytes;
  const int64_t left = device.shared_bytes - plan.states_at;
  if (left < sum_bytes && products[0].tensor_cores) return no;
  int64_t state_bytes = 0;
  for (int s = 0; s < num_products; ++s) {
    const PersistentProduct& product = products[s];
    PersistentStage& stage = plan.stages[s];
    // All of the state, or as large a part of it as there is room for.
    stage.chunks_at_once = product.chunks;
    if (internal::StateBytes(product, plan.rows, product.chunks) > left) {
      stage.chunks_at_once = internal::ChunksThatFit(product, plan.rows, left);
      if (stage.chunks_at_once <= 0) return no;
    }
    state_bytes = std::max(
        state_bytes,
        internal::StateBytes(product, plan.rows, stage.chunks_at_once));
  }
  plan.shared_bytes =
      std::max(plan.states_at + state_bytes, plan.sums_at + sum_bytes);
  return plan;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_
