// Chooses how the steps of a block run: with one launch each, or with one
// persistent kernel for all of them, whose thread blocks hold their part of the
// recurrent weights in shared memory and meet at a barrier after each GEMM.
// Host code without CUDA, so that it is tested without a GPU.
//
// A GEMM of a step is cut as step_panel.cuh describes, into panels of 32
// columns of weights and tiles of rows. A thread block has the same panels for
// all steps, and some of the tiles. There is at most one block for each
// multiprocessor, so that all of them are resident at once, as the barrier
// requires.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_

#include <algorithm>
#include <cstdint>

namespace blockrnn::cuda {

// The properties of the device that matter.
struct PersistentDevice {
  bool cooperative = false;     // can launch a grid with a barrier
  int64_t multiprocessors = 0;  // that this process may use
  int64_t shared_bytes = 0;     // dynamic shared memory of one block, at most
  bool tf32 = false;            // has tensor cores for it
};

// One GEMM of a step.
struct PersistentGemm {
  int64_t rows = 0;       // of the largest step
  int64_t panels = 0;     // of 32 columns
  int64_t chunks = 0;     // of a column: of 4 depths, or 16 of tensor cores
  int slices = 1;         // columns that read different parts of the state
  int weight_bytes = 0;   // of an element
  int state_bytes = 0;    // of an element in shared memory
  int compute_bytes = 0;  // of a sum
  bool tensor_cores = false;
};

// How a persistent kernel runs one GEMM. Its block b has the panels p with p %
// panel_groups == b % panel_groups and the tiles t with t % row_groups == b /
// panel_groups.
// Its numbers, which kernels use in every step, have 32 bits.
struct PersistentStage {
  int panel_groups = 0;
  int row_groups = 0;
  int weights_at = 0;       // bytes, in shared memory
  int chunks = 0;           // of a column
  int chunks_per_load = 0;  // of a piece of the state
};

inline constexpr int kMaxPersistentStages = 2;

struct PersistentPlan {
  int rows = 0;  // of a tile; 0: one launch for each step
  int64_t blocks = 0;
  int64_t sums_at = 0;    // bytes, in shared memory
  int64_t states_at = 0;  // bytes, in shared memory
  // From a piece of the state to the next one, which is being loaded while the
  // first one is multiplied; 0: there is room for one.
  int64_t next_state = 0;  // bytes
  int64_t shared_bytes = 0;
  PersistentStage stages[kMaxPersistentStages];
};

// Rows of a tile: for one or two rows, whose steps are bound by latency, and
// for more. Steps with two GEMMs use the larger tiles only, which halves the
// number of kernels to compile.
inline constexpr int kFewPersistentRows = 2;
inline constexpr int kManyPersistentRows = 8;
// Of a tile for tensor cores, however few rows there are: in either case a step
// is bound by reading the weights from shared memory.
inline constexpr int kTensorPersistentRows = 16;

// With fewer steps the weights are not read often enough to be worth loading
// into shared memory.
inline constexpr int64_t kMinPersistentSteps = 4;
// Tiles that a block computes one after the other in a step, of one panel and
// of all of them; of several panels it is not measured. With more tiles of a
// panel the large tiles of StepKernel or the BLAS are faster, on an H200: of
// float with four by 6 to 18 percent, of 16 bits with two by 3 to 13, and of
// TF32, whose StepKernel is float's, with two of more than 512 depths by 32.
inline constexpr int64_t kMaxPersistentTiles = 4;
inline constexpr int64_t kMaxTilesOfAPanel = 2;
inline constexpr int64_t kMaxTilesOf16Bits = 1;
inline constexpr int64_t kMaxTf32Depths = 1024;  // of all tiles of a panel
// A state of at least that many bytes is loaded in two pieces even where there
// is room for all of it, so that the first one is multiplied while the second
// one arrives. Smaller ones take little longer than a single read: on an H200
// 4 KB 0.26 µs, 16 KB 0.31 and 32 KB 0.37.
inline constexpr int64_t kMinPieceBytes = 16 * 1024;

namespace internal {

inline constexpr int64_t kSharedAlignment = 16;
inline constexpr int64_t kWarpsOfABlock = 8;
inline constexpr int64_t kMaxLaneGroups = 4;  // CoreLanes in step_core.cuh
inline constexpr int64_t kColumnsOfAPanel = 32;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t DepthsOfAChunk(const PersistentGemm& gemm) {
  return gemm.tensor_cores ? 16 : 4;
}

inline int64_t PanelBytes(const PersistentGemm& gemm) {
  return gemm.chunks * DepthsOfAChunk(gemm) * kColumnsOfAPanel *
         gemm.weight_bytes;
}

// The states of all slices. Each is followed by a chunk, so that lanes of
// different slices hit different banks; for tensor cores each row is padded to
// an odd number of chunks (TensorRowStride).
inline int64_t StateBytes(const PersistentGemm& gemm, int rows,
                          int64_t chunks) {
  if (gemm.tensor_cores) {
    return gemm.slices * rows * (chunks | 1) * DepthsOfAChunk(gemm) *
           gemm.state_bytes;
  }
  return gemm.slices * (rows * chunks + 1) * DepthsOfAChunk(gemm) *
         gemm.state_bytes;
}

// A multiple of the number of warps (without tensor cores: of all groups of
// their lanes), so that sums are accumulated in the same order as step by step.
// 0 or less if there is no room.
inline int64_t ChunksThatFit(const PersistentGemm& gemm, int rows,
                             int64_t bytes) {
  if (gemm.tensor_cores) {
    // An even number is padded by one.
    const int64_t chunks = bytes / StateBytes(gemm, rows, 1);
    return (chunks - 1) / kWarpsOfABlock * kWarpsOfABlock;
  }
  constexpr int64_t kEach = kWarpsOfABlock * kMaxLaneGroups;
  return bytes / StateBytes(gemm, rows, kEach) * kEach;
}

// `chunks` or a few more, with which all warps have the same number.
inline int64_t WholeGroups(const PersistentGemm& gemm, int64_t chunks) {
  const int64_t each =
      gemm.tensor_cores ? kWarpsOfABlock : kWarpsOfABlock * kMaxLaneGroups;
  return CeilDiv(chunks, each) * each;
}

inline int64_t MaxTilesOfAPanel(const PersistentGemm& gemm) {
  if (!gemm.tensor_cores) return kMaxTilesOfAPanel;
  if (gemm.weight_bytes == 2) return kMaxTilesOf16Bits;
  const int64_t depths = gemm.chunks * DepthsOfAChunk(gemm);
  return std::clamp<int64_t>(kMaxTf32Depths / depths, 1, kMaxTilesOfAPanel);
}

inline int TileRows(const PersistentGemm* gemms, int num_gemms) {
  if (gemms[0].tensor_cores) return kTensorPersistentRows;
  return num_gemms == 1 && gemms[0].rows <= kFewPersistentRows
             ? kFewPersistentRows
             : kManyPersistentRows;
}

}  // namespace internal

namespace internal {

// Chooses the pieces of the state for `left` bytes of shared memory, from
// states_at on, which hold `buffers` of them; returns whether there is room.
inline bool PlanPieces(const PersistentGemm* gemms, int num_gemms, int buffers,
                       int64_t left, PersistentPlan* plan) {
  const int64_t each = left / buffers / kSharedAlignment * kSharedAlignment;
  int64_t bytes = 0;
  int64_t pieces = 0;  // of a step, at most
  for (int s = 0; s < num_gemms; ++s) {
    const PersistentGemm& gemm = gemms[s];
    int64_t chunks = gemm.chunks;
    if (buffers > 1 &&
        StateBytes(gemm, plan->rows, chunks) >= 2 * kMinPieceBytes) {
      chunks = std::min(chunks, WholeGroups(gemm, CeilDiv(chunks, 2)));
    }
    if (StateBytes(gemm, plan->rows, chunks) > each) {
      chunks = ChunksThatFit(gemm, plan->rows, each);
      if (chunks <= 0) return false;
    }
    plan->stages[s].chunks_per_load = static_cast<int>(chunks);
    bytes = std::max(bytes, StateBytes(gemm, plan->rows, chunks));
    const PersistentStage& stage = plan->stages[s];
    pieces = std::max(
        pieces, CeilDiv(gemm.chunks, chunks) *
                    CeilDiv(gemm.panels, stage.panel_groups) *
                    CeilDiv(CeilDiv(gemm.rows, plan->rows), stage.row_groups));
  }
  if (pieces == 1) buffers = 1;
  bytes = CeilDiv(bytes, kSharedAlignment) * kSharedAlignment;
  plan->next_state = buffers > 1 ? bytes : 0;
  plan->shared_bytes = plan->states_at + buffers * bytes;
  return true;
}

}  // namespace internal

// gemms: those of one step, in their order; at most kMaxPersistentStages, all
// on tensor cores or none.
inline PersistentPlan PlanPersistent(const PersistentDevice& device,
                                     int64_t steps, const PersistentGemm* gemms,
                                     int num_gemms) {
  using internal::CeilDiv;
  const PersistentPlan no;
  if (!device.cooperative || device.multiprocessors < 1 ||
      steps < kMinPersistentSteps) {
    return no;
  }
  PersistentPlan plan;
  plan.rows = internal::TileRows(gemms, num_gemms);
  int64_t at = 0;
  int64_t sum_bytes = 0;
  for (int s = 0; s < num_gemms; ++s) {
    const PersistentGemm& gemm = gemms[s];
    PersistentStage& stage = plan.stages[s];
    if (gemm.rows == 0 || gemm.panels == 0 || gemm.chunks == 0) {
      return no;
    }
    // As few panels per block as possible, then as many blocks for the rows as
    // multiprocessors are left.
    const int64_t panels = CeilDiv(gemm.panels, device.multiprocessors);
    const int64_t tiles = CeilDiv(gemm.rows, plan.rows);
    stage.chunks = static_cast<int>(gemm.chunks);
    stage.panel_groups = static_cast<int>(CeilDiv(gemm.panels, panels));
    stage.row_groups = static_cast<int>(
        std::min(tiles, device.multiprocessors / stage.panel_groups));
    const int64_t of_a_panel = CeilDiv(tiles, stage.row_groups);
    if (of_a_panel > internal::MaxTilesOfAPanel(gemm) ||
        of_a_panel * panels > kMaxPersistentTiles) {
      return no;
    }
    stage.weights_at = static_cast<int>(at);
    at += panels * internal::PanelBytes(gemm);
    sum_bytes = std::max(sum_bytes, internal::kWarpsOfABlock *
                                        internal::kColumnsOfAPanel * plan.rows *
                                        gemm.compute_bytes);
    plan.blocks =
        std::max<int64_t>(plan.blocks, stage.panel_groups * stage.row_groups);
  }
  plan.sums_at = at;
  plan.states_at = at + sum_bytes;
  const int64_t left = device.shared_bytes - plan.states_at;
  if (internal::PlanPieces(gemms, num_gemms, 2, left, &plan) ||
      internal::PlanPieces(gemms, num_gemms, 1, left, &plan)) {
    return plan;
  }
  // With tensor cores the sums may overwrite the state, which costs a barrier
  // of the block.
  if (!gemms[0].tensor_cores || left < 0) return no;
  plan.states_at = at;
  if (!internal::PlanPieces(gemms, num_gemms, 1, left + sum_bytes, &plan)) {
    return no;
  }
  plan.shared_bytes = std::max(plan.shared_bytes, plan.sums_at + sum_bytes);
  return plan;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_PLAN_H_
