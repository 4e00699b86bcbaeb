// Implements the multiplication within a step on tensor cores (mma.cuh), for
// half, bfloat16 and TF32: a chunk of the state in shared memory with a chunk
// of a panel's weights, and the path of the sums to where FinishTile reads
// them.
//
// One instruction takes 16 rows of the state, 16 depths and eight of the
// panel's columns; for TF32 two instructions take eight depths each. The order
// of the depths within a chunk is free as long as both operands use the same
// one: each lane takes four consecutive depths, which it loads at once.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_TENSOR_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_TENSOR_CUH_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/mma.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_state.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

inline constexpr int kChunkHeld = kTensorDepths / kFour;

// From row to row of a state in shared memory, in HeldFours. Half a warp reads
// 32 bytes of each of four rows at once (a quarter 64 of each of two, for
// TF32); they hit different banks if the rows are an odd number of chunks
// apart.
BLOCKRNN_HOST_DEVICE constexpr int TensorRowStride(int chunks) {
  return (chunks | 1) * kChunkHeld;
}

// A panel's groups of eight columns, and the state that each multiplies.
template <int kGates, int kStates, class T>
struct TensorPanel {
  static constexpr int kUnits = PanelUnits<T>(kGates, (kStates > 1));
  // Unused columns have no unit.
  static constexpr int kParts =
      (kGates * kUnits + kTensorColumns - 1) / kTensorColumns;
  static constexpr int State(int part) {
    return kStates > 1 ? part * kTensorColumns / kUnits : 0;
  }
};

// Starts loading the states of a tile, `chunks` chunks of a column from
// first_chunk on, to where MultiplyTensorChunk reads them.
template <int kRows, int kStates, bool kFactors, class T>
__device__ __forceinline__ void LoadStateForTensorCores(
    const StepGemm<T>& gemm, const StepRange& range, int64_t row0,
    int64_t first_chunk, int chunks, HeldFour<T>* states) {
  static_assert(sizeof(HeldFour<T>) == sizeof(StateFour<T>));
  static_assert(kStates <= kMaxStates);
  const int stride = TensorRowStride(chunks);
  LoadState<kRows, kFactors>(gemm, range, kStates,
                             {row0, first_chunk * kChunkHeld,
                              chunks * kChunkHeld, stride, kRows * stride},
                             reinterpret_cast<StateFour<T>*>(states));
}

// A lane's part of a warp's sums of a panel: for each 16 rows and each eight
// columns.
template <int kRows>
struct TensorSums {
  static constexpr int kTiles = kRows / kTensorRows;
  static constexpr int kParts = kPanelColumns / kTensorColumns;
  float value[kTiles][kParts][4] = {};
};

// A lane's part of a chunk of a panel's weights.
template <int kParts, class T>
struct TensorWeights {
  HeldFour<T> part[kParts];

  // chunk: of the packed weights.
  __device__ __forceinline__ void Read(const HeldFour<T>* chunk) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) part[p] = chunk[p * kLanes + Lane()];
  }
};

// Four elements of a state, as they are multiplied: packed weights are rounded
// already.
template <class T>
__device__ __forceinline__ HeldFour<T> AsMultiplied(HeldFour<T> held) {
  if constexpr (std::is_same_v<T, Tf32>) {
#pragma unroll
    for (int d = 0; d < kFour; ++d) held.value[d] = RoundToTf32(held.value[d]);
  }
  return held;
}

// *c += sixteen depths of a row and of the one eight below · those of a column,
// of which a lane has four each.
template <class T>
__device__ __forceinline__ void MultiplyHeld(const HeldFour<T>& upper,
                                             const HeldFour<T>& lower,
                                             const HeldFour<T>& weights,
                                             float (&c)[4]) {
  if constexpr (std::is_same_v<T, Tf32>) {
#pragma unroll
    for (int d = 0; d < kFour; d += 2) {
      MmaTf32({upper.value[d], lower.value[d], upper.value[d + 1],
               lower.value[d + 1]},
              {weights.value[d], weights.value[d + 1]}, c);
    }
  } else {
    using S = typename StorageOf<T>::Type;
    Mma<S>({upper.value[0], lower.value[0], upper.value[1], lower.value[1]},
           weights.value, c);
  }
}

// sums += a chunk of the rows' states · the panel's columns. states: the chunk
// of the first row and state; stride: from row to row.
template <int kRows, int kGates, int kStates, class T>
__device__ __forceinline__ void MultiplyTensorChunk(
    const TensorWeights<TensorPanel<kGates, kStates, T>::kParts, T>& weights,
    const HeldFour<T>* states, int stride, TensorSums<kRows>* sums) {
  using Panel = TensorPanel<kGates, kStates, T>;
  const HeldFour<T>* const mine = states + Lane() / 4 * stride + Lane() % 4;
#pragma unroll
  for (int tile = 0; tile < TensorSums<kRows>::kTiles; ++tile) {
    HeldFour<T> upper = {};
    HeldFour<T> lower = {};
#pragma unroll
    for (int p = 0; p < Panel::kParts; ++p) {
      if (p == 0 || Panel::State(p) != Panel::State(p - 1)) {
        const int row = Panel::State(p) * kRows + tile * kTensorRows;
        upper = AsMultiplied<T>(mine[row * stride]);
        lower = AsMultiplied<T>(mine[(row + kTensorRows / 2) * stride]);
      }
      MultiplyHeld<T>(upper, lower, weights.part[p], sums->value[tile][p]);
    }
  }
}

// Stores a warp's sums where FinishTile reads them.
template <int kRows>
__device__ __forceinline__ void StoreSums(const TensorSums<kRows>& sums,
                                          float* memory) {
  struct alignas(8) Two {
    float value[2];
  };
#pragma unroll
  for (int tile = 0; tile < TensorSums<kRows>::kTiles; ++tile) {
#pragma unroll
    for (int p = 0; p < TensorSums<kRows>::kParts; ++p) {
      const int row = tile * kTensorRows + Lane() / 4;
      const int column = p * kTensorColumns + Lane() % 4 * 2;
      const float(&mine)[4] = sums.value[tile][p];
      *reinterpret_cast<Two*>(memory + SumIndex<kRows>(Warp(), row, column)) = {
          {mine[0], mine[1]}};
      *reinterpret_cast<Two*>(memory +
                              SumIndex<kRows>(Warp(), row + kTensorRows / 2,
                                              column)) = {{mine[2], mine[3]}};
    }
  }
}

// A tile of StepKernel on tensor cores: its shared memory (first the states,
// then the warps' sums) and its multiplication.
template <int kRows, int kGates, int kStates, class T>
struct TensorTile {
  using Panel = TensorPanel<kGates, kStates, T>;
  // Chunks of a warp that are loaded at once; as in StepShape, more with few
  // rows.
  static constexpr int kWarpChunks =
      kRows == kTensorRows && kStates == 1 ? 4 : 2;
  static constexpr int kChunks = kWarpChunks * kWarps;
  static constexpr int kStateBytes = kStates * kRows *
                                     TensorRowStride(kChunks) *
                                     static_cast<int>(sizeof(HeldFour<T>));
  static constexpr int kSumBytes =
      kWarps * kRows * kPanelColumns * static_cast<int>(sizeof(float));
  static constexpr int kBytes = std::max(kStateBytes, kSumBytes);

  // while_loading() runs while the first states are being loaded.
  template <class WhileLoading>
  static __device__ __forceinline__ void Sum(
      const StepGemm<T>& gemm, const StepRange& range, int64_t panel,
      int64_t row0, unsigned char* memory, const WhileLoading& while_loading) {
    HeldFour<T>* const states = reinterpret_cast<HeldFour<T>*>(memory);
    const int64_t chunks = gemm.weights.chunks();
    const HeldFour<T>* const weights =
        reinterpret_cast<const HeldFour<T>*>(gemm.weights.packed) +
        panel * chunks * kPanelColumns * kChunkHeld;
    TensorSums<kRows> sums;
    int64_t first = 0;
    // At least once: even with a depth of 0 operands must be read.
#pragma unroll 1
    do {
      // The weights are being loaded at the same time as the states.
      TensorWeights<Panel::kParts, T> w[kWarpChunks];
#pragma unroll
      for (int i = 0; i < kWarpChunks; ++i) {
        const int64_t chunk = first + i * kWarps + Warp();
        if (chunk < chunks) {
          w[i].Read(weights + chunk * kPanelColumns * kChunkHeld);
        }
      }
      const auto count =
          static_cast<int>(std::min<int64_t>(kChunks, chunks - first));
      __syncthreads();  // the previous states have been read
      if (count > 0) {
        LoadStateForTensorCores<kRows, kStates, (kStates > 1)>(
            gemm, range, row0, first, count, states);
      }
      if (first == 0) while_loading();
      WaitForState();
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kWarpChunks; ++i) {
        const int chunk = i * kWarps + Warp();
        if (chunk < count) {
          MultiplyTensorChunk<kRows, kGates, kStates, T>(
              w[i], states + chunk * kChunkHeld, TensorRowStride(count), &sums);
        }
      }
      first += kChunks;
    } while (first < chunks);
    __syncthreads();  // the states have been read
    StoreSums(sums, reinterpret_cast<float*>(memory));
  }
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_TENSOR_CUH_
