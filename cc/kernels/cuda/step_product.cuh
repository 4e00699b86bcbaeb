// Owns the kernel of one step's product, state · w_h with an epilogue that gets
// the finished sums of a unit's gates, and how float and double are multiplied
// in it, by CUDA cores. What w_h is brought into, once for all steps, and who
// multiplies it stand in step_matrix.cuh; the pieces of the kernel are
// persistent.cuh's as well.
//
// A block computes kRows rows of a panel (step_panel.cuh). Its warps share the
// depth of the product, so that even a few rows keep a GPU's memory busy; their
// sums are added up at the end, in the warps' order. An element's sums are the
// same for any number of rows and any grid.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step_panel.cuh"
#include "cc/kernels/cuda/step_state.cuh"
#include "cc/kernels/cuda/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The gate whose column this lane has; lanes that are left over multiply zeros.
template <int kGates>
__device__ __forceinline__ int LaneGate() {
  return std::min(Lane() / (kPanelColumns / kGates), kGates - 1);
}

// A block's shared memory: first the states, then the warps' sums.
template <int kRows, int kStates, class C>
struct StepShape {
  // Elements of the states, but for what parts them.
  static constexpr int kMemory = 32 * 1024 / static_cast<int>(sizeof(C));
  // Of few rows there is little to multiply while the next states are brought,
  // so that more of them are brought at once.
  static constexpr int kMost = kRows > kFewStepRows<C> ? 32 : 64;
  // Four depths, a chunk, each; all warps have as many of them.
  static constexpr int kFours =
      std::min(kMost, kMemory / (kRows * kStates * kFour) / kWarps * kWarps);
  static constexpr int kChunks = kFours / kWarps;  // of a warp
  // From state to state: lanes of different ones meet different banks.
  static constexpr int kStateFours = kRows * kFours + (kStates > 1 ? 1 : 0);
  static constexpr int kBytes =
      std::max(kStates * kStateFours * kFour, kRows* kWarps* kPanelColumns) *
      static_cast<int>(sizeof(C));
  static_assert(kFours > 0);
  static_assert(kStates <= kMostStates);
};

// sums[row] += four depths of a row's state · those of this lane's column.
// stride: from row to row.
template <int kRows, class S, class C>
__device__ __forceinline__ void MultiplyChunk(Four<S> column,
                                              const Four<C>* states, int stride,
                                              C (&sums)[kRows]) {
  const C w0 = Widen(column.value[0]);
  const C w1 = Widen(column.value[1]);
  const C w2 = Widen(column.value[2]);
  const C w3 = Widen(column.value[3]);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const Four<C> h = states[row * stride];
    sums[row] += h.value[0] * w0;
    sums[row] += h.value[1] * w1;
    sums[row] += h.value[2] * w2;
    sums[row] += h.value[3] * w3;
  }
}

// sums[row] += the products of this lane's column with the depths that this
// warp has of the panel. meanwhile(): while the first states come.
template <int kRows, int kStates, class T, class Meanwhile>
__device__ __forceinline__ void MultiplyColumn(const StepProduct<T>& product,
                                               const StepRange& range,
                                               int64_t panel, int64_t row0,
                                               int gate, StateFour<T>* memory,
                                               const Meanwhile& meanwhile,
                                               ComputeType<T> (&sums)[kRows]) {
  using S = typename StorageOf<T>::Type;
  using Shape = StepShape<kRows, kStates, ComputeType<T>>;
  const int64_t chunks = product.weights.chunks();
  const bool apart =
      product.weights.slice > 0 || product.state_factors != nullptr;
  const int states = apart ? kStates : 1;
  const StateFour<T>* mine =
      memory + (kStates > 1 && apart ? gate * Shape::kStateFours : 0);
  const Four<S>* column =
      reinterpret_cast<const Four<S>*>(product.weights.packed) +
      panel * chunks * kPanelColumns + Lane();
#pragma unroll 1
  for (int64_t first = 0; first < chunks; first += Shape::kFours) {
    // The weights are on their way while the states are brought.
    Four<S> w[Shape::kChunks];
#pragma unroll
    for (int i = 0; i < Shape::kChunks; ++i) {
      const int64_t chunk = first + i * kWarps + Warp();
      if (chunk < chunks) {
        w[i] = column[chunk * kPanelColumns];
      } else {
        w[i] = {};
      }
    }
    __syncthreads();  // the states before these have been read
    BringState<kRows, (kStates > 1)>(
        product, range, states,
        {row0, first, Shape::kFours, Shape::kFours, Shape::kStateFours},
        memory);
    if (first == 0) meanwhile();
    AwaitState();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Shape::kChunks; ++i) {
      MultiplyChunk(w[i], mine + i * kWarps + Warp(), Shape::kFours, sums);
    }
  }
}

// Leaves this lane's sums where FinishTile reads them.
template <int kRows, class C>
__device__ __forceinline__ void StoreSums(const C (&sums)[kRows], C* memory) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    memory[SumAt<kRows>(Warp(), row, Lane())] = sums[row];
  }
}

// A tile of StepKernel by CUDA cores: what it has of shared memory, and the way
// of its sums there. TensorTile is the other.
template <int kRows, int kGates, int kStates, class T>
struct CoreTile {
  using C = ComputeType<T>;
  using Shape = StepShape<kRows, kStates, C>;
  static constexpr int kBytes = Shape::kBytes;

  template <class Meanwhile>
  static __device__ __forceinline__ void Sum(const StepProduct<T>& product,
                                             const StepRange& range,
                                             int64_t panel, int64_t row0,
                                             unsigned char* memory,
                                             const Meanwhile& meanwhile) {
    C sums[kRows] = {};
    MultiplyColumn<kRows, kStates>(
        product, range, panel, row0, LaneGate<kGates>(),
        reinterpret_cast<StateFour<T>*>(memory), meanwhile, sums);
    __syncthreads();  // the states have been read
    StoreSums(sums, reinterpret_cast<C*>(memory));
  }
};

// epilogue(step, row, unit, sums) for all rows of a step and all units.
// kStates: how many states a block may have to hold, one or one for each gate.
template <int kRows, int kGates, int kStates, bool kSliced, class T,
          class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    StepKernel(StepProduct<T> product, StepRange range, Epilogue epilogue) {
  using Tile =
      std::conditional_t<kTensorCores<T>, TensorTile<kRows, kGates, kStates, T>,
                         CoreTile<kRows, kGates, kStates, T>>;
  struct alignas(16) Memory {
    unsigned char value[Tile::kBytes];
  };
  __shared__ Memory memory;
  constexpr int kUnits = PanelUnits<T>(kGates, (kStates > 1));
  const int64_t panels = (product.weights.units + kUnits - 1) / kUnits;
  const int64_t tiles = (range.rows + kRows - 1) / kRows * panels;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t panel = tile % panels;
    const int64_t row0 = tile / panels * kRows;
    const TileElements<kRows, kUnits> elements = {panel, row0};
    typename Epilogue::Operands operands = {};
    Tile::Sum(product, range, panel, row0, memory.value, [&] {
      operands = ReadOperands(product, epilogue, range, elements);
    });
    FinishTile<kGates, kSliced>(
        product, epilogue, range, elements, operands,
        reinterpret_cast<const ComputeType<T>*>(memory.value));
    __syncthreads();  // the sums have been read
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_
