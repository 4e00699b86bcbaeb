// Implements the multiplication within a step on CUDA cores, for float and
// double: a chunk of the state in shared memory with a chunk of a panel's
// weights, and the path of the sums to where FinishTile reads them.
// step_tensor.cuh is the counterpart for tensor cores.
//
// Shared memory delivers 128 bytes per cycle to a warp, whether or not its
// lanes read the same address: a broadcast of the state costs as much as 32
// columns of weights. So with few rows a lane has several columns for each
// value that it reads, and lanes with the same columns split the depth.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_CORE_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_CORE_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_state.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// How the lanes of a warp map to a panel: kAcross lanes have kColumns columns
// each, and there are as many groups of them as a lane has columns.
template <int kColumns>
struct CoreLanes {
  static constexpr int kAcross = kPanelColumns / kColumns;
  static constexpr int kGroups = kLanes / kAcross;

  static __device__ __forceinline__ int group() { return Lane() / kAcross; }
  static __device__ __forceinline__ int first_column() {
    return Lane() % kAcross * kColumns;
  }
};

// The gate of a lane's columns, which all have the same one; unused columns are
// zeros.
template <int kGates, int kColumns>
__device__ __forceinline__ int LaneGate() {
  constexpr int kUnits = kPanelColumns / kGates;
  static_assert(kUnits % kColumns == 0);
  return std::min(CoreLanes<kColumns>::first_column() / kUnits, kGates - 1);
}

// A block's shared memory: first the states, then the warps' sums.
template <int kRows, int kStates, class C>
struct StepShape {
  // Elements of the states, without padding.
  static constexpr int kMemory = 32 * 1024 / static_cast<int>(sizeof(C));
  // With few rows there is little to compute while the next states are being
  // loaded, so more of them are loaded at once.
  static constexpr int kMaxFours = kRows > kFewStepRows<C> ? 32 : 64;
  // Fours of depths, each a chunk; the same number for all warps.
  static constexpr int kFours = std::min(
      kMaxFours, kMemory / (kRows * kStates * kFour) / kWarps * kWarps);
  static constexpr int kChunks = kFours / kWarps;  // of a warp
  // From state to state, padded so that lanes of different ones hit different
  // banks.
  static constexpr int kStateFours = kRows * kFours + (kStates > 1 ? 1 : 0);
  static constexpr int kStateElements = kStates * kStateFours * kFour;
  static constexpr int kSumElements = kRows * kWarps * kPanelColumns;
  static constexpr int kBytes =
      std::max(kStateElements, kSumElements) * static_cast<int>(sizeof(C));
  static_assert(kFours > 0);
  static_assert(kStates <= kMaxStates);
};

// A lane's part of a chunk of a panel's weights: that of each of its columns.
template <int kColumns, class C>
struct CoreWeights {
  Four<C> column[kColumns];

  // chunk: of the packed weights.
  __device__ __forceinline__ void Read(const Four<C>* chunk) {
    using Lanes = CoreLanes<kColumns>;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      column[c] = chunk[c * Lanes::kAcross + Lane() % Lanes::kAcross];
    }
  }
};

// A lane's sums of its columns.
template <int kRows, int kColumns, class C>
struct CoreSums {
  C value[kColumns][kRows] = {};
};

// sums += four depths of the rows' states · those of the lane's columns.
// stride: from row to row.
template <int kRows, int kColumns, class C>
__device__ __forceinline__ void MultiplyChunk(
    const CoreWeights<kColumns, C>& weights, const Four<C>* states, int stride,
    CoreSums<kRows, kColumns, C>* sums) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const Four<C> h = states[row * stride];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int d = 0; d < kFour; ++d) {
        sums->value[c][row] += h.value[d] * weights.column[c].value[d];
      }
    }
  }
}

// Adds up the sums of lanes with the same columns and stores a warp's sums
// where FinishTile reads them, each lane those of one column. All lanes of a
// warp must call it: they exchange halves of their sums until each has one
// column left.
template <int kRows, int kColumns, class C>
__device__ __forceinline__ void StoreSums(
    const CoreSums<kRows, kColumns, C>& sums, C* memory) {
  using Lanes = CoreLanes<kColumns>;
  static_assert(Lanes::kGroups == kColumns);
  constexpr uint32_t kAll = 0xffffffff;
  const int group = Lanes::group();
  C left[kColumns][kRows];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) left[c][row] = sums.value[c][row];
  }
#pragma unroll
  for (int half = kColumns / 2; half > 0; half /= 2) {
    const bool upper = (group & half) != 0;
    const int other = Lane() ^ (half * Lanes::kAcross);
#pragma unroll
    for (int c = 0; c < half; ++c) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const C low = left[c][row];
        const C high = left[c + half][row];
        left[c][row] =
            (upper ? high : low) + __shfl_sync(kAll, upper ? low : high, other);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    memory[SumIndex<kRows>(Warp(), row, Lanes::first_column() + group)] =
        left[0][row];
  }
}

// A tile of StepKernel on CUDA cores: its shared memory and its multiplication.
template <int kRows, int kGates, int kStates, class T>
struct CoreTile {
  using C = ComputeType<T>;
  using Shape = StepShape<kRows, kStates, C>;
  static constexpr int kColumns = kRows > kFewStepRows<T>
                                      ? kManyLaneColumns<T>
                                      : LaneColumns<T>(kGates);
  using Lanes = CoreLanes<kColumns>;
  static constexpr int kBytes = Shape::kBytes;
  // Chunks that a lane loads at once.
  static constexpr int kChunks = Shape::kChunks / Lanes::kGroups;
  static_assert(Shape::kChunks % Lanes::kGroups == 0);

  // while_loading() runs while the first states are being loaded.
  template <class WhileLoading>
  static __device__ __forceinline__ void Sum(
      const StepGemm<T>& gemm, const StepRange& range, int64_t panel,
      int64_t row0, unsigned char* memory, const WhileLoading& while_loading) {
    auto* const shared = reinterpret_cast<Four<C>*>(memory);
    const int64_t chunks = gemm.weights.chunks();
    const bool state_per_gate =
        gemm.weights.slice > 0 || gemm.state_factors != nullptr;
    const int states = state_per_gate ? kStates : 1;
    const int gate =
        kStates > 1 && state_per_gate ? LaneGate<kGates, kColumns>() : 0;
    const auto* const weights =
        reinterpret_cast<const Four<C>*>(gemm.weights.packed) +
        panel * chunks * kPanelColumns;
    CoreSums<kRows, kColumns, C> sums;
    int64_t first = 0;
    // At least once: even with a depth of 0 operands must be read.
#pragma unroll 1
    do {
      // The weights are being loaded at the same time as the states.
      CoreWeights<kColumns, C> w[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int64_t chunk = first + ChunkOf(i);
        if (chunk < chunks) {
          w[i].Read(weights + chunk * kPanelColumns);
        } else {
          w[i] = {};
        }
      }
      __syncthreads();  // the previous states have been read
      LoadState<kRows, (kStates > 1)>(
          gemm, range, states,
          {row0, first, Shape::kFours, Shape::kFours, Shape::kStateFours},
          shared);
      if (first == 0) while_loading();
      WaitForState();
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        MultiplyChunk(w[i], shared + gate * Shape::kStateFours + ChunkOf(i),
                      Shape::kFours, &sums);
      }
      first += Shape::kFours;
    } while (first < chunks);
    __syncthreads();  // the states have been read
    StoreSums(sums, reinterpret_cast<C*>(memory));
  }

 private:
  static __device__ __forceinline__ int ChunkOf(int i) {
    return (i * Lanes::kGroups + Lanes::group()) * kWarps + Warp();
  }
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_CORE_CUH_
