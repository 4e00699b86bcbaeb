// Owns the kernel of one step's product, state · w_h with an epilogue that gets
// the finished sums of a unit's gates. What w_h is brought into for it, once
// for all steps, and who multiplies it stand in step_matrix.cuh; the pieces of
// the kernel are persistent.cuh's as well.
//
// A block computes kRows rows of a panel of 32 columns: all gates of a few
// units, a column for each lane. Its warps share the depth of the product, so
// that even a few rows keep a GPU's memory busy; their sums are added up at the
// end, in the warps' order. An element's sums are the same for any number of
// rows and any grid.
//
// Where the product has one sum for a unit (backward: the gradient of the
// state), its depth is cut into slices, a column for each, as if they were
// gates: a panel of few units again, and so enough blocks.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

inline constexpr int kPanelColumns = kLanes;
inline constexpr int kChunk = 4;  // depths that a lane reads at once

// Units of a panel. Of three gates two columns are left over.
template <int kGates>
inline constexpr int kPanelUnits = kPanelColumns / kGates;

// The gate whose column this lane has; lanes that are left over multiply zeros.
template <int kGates>
__device__ __forceinline__ int LaneGate() {
  return std::min(Lane() / kPanelUnits<kGates>, kGates - 1);
}

// Rows of a block: as many as its shared memory holds, or a quarter of them
// where that makes too few blocks.
template <class C>
inline constexpr int kManyStepRows = 128 / static_cast<int>(sizeof(C));
template <class C>
inline constexpr int kFewStepRows = kManyStepRows<C> / 4;

// Four elements that are read at once.
template <class S>
struct alignas(sizeof(S) < 8 ? 4 * sizeof(S) : 16) Four {
  S value[kChunk];
};

// A matrix of weights, packed: [panels, chunks, 32 columns, 4 depths], zeros
// where there is no such unit or depth.
template <class T>
struct PackedWeights {
  int64_t units = 0;
  int64_t depth = 0;   // of the product
  int64_t column = 0;  // of a column: all of it, or a slice
  int64_t slice = 0;   // from the first depth of a gate to the next one's
  int gates = 0;       // or slices
  T* packed = nullptr;

  BLOCKRNN_HOST_DEVICE int64_t chunks() const {
    return (column + kChunk - 1) / kChunk;
  }
  BLOCKRNN_HOST_DEVICE int64_t panel_units() const {
    return kPanelColumns / gates;
  }
  BLOCKRNN_HOST_DEVICE int64_t panels() const {
    return (units + panel_units() - 1) / panel_units();
  }
};

// What is handed from step to step, in two arrays: others still read the old
// one while the new one is written. Not an array of them: one that is indexed
// at run time would have to leave the registers.
template <class C>
struct Alternating {
  C* even = nullptr;
  C* odd = nullptr;

  BLOCKRNN_HOST_DEVICE C* At(int64_t n) const {
    return n % 2 == 0 ? even : odd;
  }
};

// A step's product: what all steps have in common.
template <class T>
struct StepProduct {
  using C = ComputeType<T>;

  PackedWeights<T> weights;
  Alternating<C> state;  // [B, depth]
  // Dropout: [gates, B, depth] by which the state is multiplied, or
  // [gates, B, units] for the sums of slices; rows as the batch has them.
  const T* state_factors = nullptr;
  const T* sum_factors = nullptr;
  int64_t factors_stride = 0;      // from gate to gate
  const int64_t* order = nullptr;  // RowMap's

  BLOCKRNN_HOST_DEVICE int64_t BatchRow(int64_t row) const {
    return order == nullptr ? row : order[row];
  }
};

// A step and its rows. Those from state_rows on have a state of zeros.
struct StepRange {
  int64_t step = 0;
  int64_t rows = 0;
  int64_t state_rows = 0;
  int64_t state = 0;  // which one is read
};

// A block's shared memory: first the states, then the warps' sums.
template <int kRows, int kStates, class C>
struct StepShape {
  static constexpr int kMemory = 32 * 1024 / static_cast<int>(sizeof(C));
  // All warps have as many chunks of it.
  static constexpr int kUnit = kChunk * kWarps;
  // Of few rows there is little to multiply while the next states are brought,
  // so that more of them are brought at once.
  static constexpr int kMost = kRows > kFewStepRows<C> ? 128 : 256;
  static constexpr int kDepth =
      std::min(kMost, kMemory / (kRows * kStates) / kUnit * kUnit);
  static constexpr int kChunks = kDepth / kUnit;  // of a warp
  static_assert(kDepth > 0 && kRows * kWarps * kPanelColumns <= kMemory);
};

// states[state][row][depth] of the depths from depth0 on.
template <int kRows, int kStates, class T>
__device__ __forceinline__ void LoadStates(const StepProduct<T>& product,
                                           const StepRange& range, int states,
                                           int64_t row0, int64_t depth0,
                                           ComputeType<T>* out) {
  using C = ComputeType<T>;
  constexpr int kDepth = StepShape<kRows, kStates, C>::kDepth;
  const int64_t total = product.weights.depth;
  const C* state = product.state.At(range.state);
  for (int i = static_cast<int>(threadIdx.x); i < states * kRows * kDepth;
       i += kThreads) {
    const int gate = i / (kRows * kDepth);
    const int64_t row = row0 + i / kDepth % kRows;
    const int64_t depth = depth0 + i % kDepth;
    const int64_t at = gate * product.weights.slice + depth;
    C value = C(0);
    if (row < range.state_rows && depth < product.weights.column &&
        at < total) {
      value = state[row * total + at];
      if (product.state_factors != nullptr) {
        value *=
            Load(product.state_factors, gate * product.factors_stride +
                                            product.BatchRow(row) * total + at);
      }
    }
    out[i] = value;
  }
}

// sums[row] += four depths of a row's state · those of this lane's column.
// stride: from row to row.
template <int kRows, class S, class C>
__device__ __forceinline__ void MultiplyChunk(Four<S> column, const C* states,
                                              int stride, C (&sums)[kRows]) {
  const C w0 = Widen(column.value[0]);
  const C w1 = Widen(column.value[1]);
  const C w2 = Widen(column.value[2]);
  const C w3 = Widen(column.value[3]);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const Four<C> h = *reinterpret_cast<const Four<C>*>(states + row * stride);
    sums[row] += h.value[0] * w0;
    sums[row] += h.value[1] * w1;
    sums[row] += h.value[2] * w2;
    sums[row] += h.value[3] * w3;
  }
}

// sums[row] += the products of this lane's column with the depths that this
// warp has of the panel.
template <int kRows, int kStates, class T>
__device__ __forceinline__ void MultiplyColumn(const StepProduct<T>& product,
                                               const StepRange& range,
                                               int64_t panel, int64_t row0,
                                               int gate, ComputeType<T>* memory,
                                               ComputeType<T> (&sums)[kRows]) {
  using C = ComputeType<T>;
  using S = typename StorageOf<T>::Type;
  using Shape = StepShape<kRows, kStates, C>;
  const int64_t chunks = product.weights.chunks();
  const bool apart =
      product.weights.slice > 0 || product.state_factors != nullptr;
  const int states = apart ? kStates : 1;
  const C* mine =
      memory + (kStates > 1 && apart ? gate * kRows * Shape::kDepth : 0);
  const Four<S>* column =
      reinterpret_cast<const Four<S>*>(product.weights.packed) +
      panel * chunks * kPanelColumns + Lane();
#pragma unroll 1
  for (int64_t first = 0; first < chunks; first += Shape::kDepth / kChunk) {
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
    LoadStates<kRows, kStates>(product, range, states, row0, first * kChunk,
                               memory);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Shape::kChunks; ++i) {
      MultiplyChunk(w[i], mine + (i * kWarps + Warp()) * kChunk, Shape::kDepth,
                    sums);
    }
  }
}

// What the epilogue gets of the sums of a unit's columns: all of them, or, of
// slices, their sum.
template <bool kSliced, class T, int kGates, class Epilogue>
__device__ __forceinline__ void FinishUnit(
    const StepProduct<T>& product, const Epilogue& epilogue, int64_t step,
    int64_t row, int64_t unit, const ComputeType<T> (&sums)[kGates]) {
  using C = ComputeType<T>;
  if constexpr (!kSliced) {
    epilogue(step, row, unit, sums);
  } else {
    C total[1] = {C(0)};
#pragma unroll
    for (int slice = 0; slice < kGates; ++slice) {
      C sum = sums[slice];
      if (product.sum_factors != nullptr) {
        sum *= Load(product.sum_factors,
                    slice * product.factors_stride +
                        product.BatchRow(row) * product.weights.units + unit);
      }
      total[0] += sum;
    }
    epilogue(step, row, unit, total);
  }
}

// The warps' sums of a tile are added up, in the warps' order, and those of a
// unit handed to the epilogue. memory: of the block, for kWarps · kRows ·
// kPanelColumns elements that nobody reads any more.
template <int kRows, int kGates, bool kSliced, class T, class Epilogue>
__device__ __forceinline__ void FinishTile(const StepProduct<T>& product,
                                           const Epilogue& epilogue,
                                           const StepRange& range,
                                           int64_t panel, int64_t row0,
                                           const ComputeType<T> (&sums)[kRows],
                                           ComputeType<T>* memory) {
  constexpr int kUnits = kPanelUnits<kGates>;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    memory[(Warp() * kRows + row) * kPanelColumns + Lane()] = sums[row];
  }
  __syncthreads();
  // Not unrolled: of two epilogues none overlaps, since one may read what the
  // other writes.
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kUnits;
       i += kThreads) {
    const int row = i / kUnits;
    const int64_t unit = panel * kUnits + i % kUnits;
    if (row0 + row >= range.rows || unit >= product.weights.units) continue;
    ComputeType<T> totals[kGates] = {};
    // Without a state nothing is multiplied: a weight may be infinite.
    if (row0 + row < range.state_rows) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          totals[gate] += memory[(warp * kRows + row) * kPanelColumns +
                                 gate * kUnits + i % kUnits];
        }
      }
    }
    FinishUnit<kSliced>(product, epilogue, range.step, row0 + row, unit,
                        totals);
  }
}

// epilogue(step, row, unit, sums) for all rows of a step and all units.
// kStates: how many states a block may have to hold, one or one for each gate.
template <int kRows, int kGates, int kStates, bool kSliced, class T,
          class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    StepKernel(StepProduct<T> product, StepRange range, Epilogue epilogue) {
  using C = ComputeType<T>;
  using Shape = StepShape<kRows, kStates, C>;
  struct alignas(16) Memory {
    C value[Shape::kMemory];
  };
  __shared__ Memory memory;
  const int64_t panels = product.weights.panels();
  const int64_t tiles = (range.rows + kRows - 1) / kRows * panels;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t panel = tile % panels;
    const int64_t row0 = tile / panels * kRows;
    C sums[kRows] = {};
    MultiplyColumn<kRows, kStates>(product, range, panel, row0,
                                   LaneGate<kGates>(), memory.value, sums);
    __syncthreads();  // the states have been read
    FinishTile<kRows, kGates, kSliced>(product, epilogue, range, panel, row0,
                                       sums, memory.value);
    __syncthreads();  // the sums have been read
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PRODUCT_CUH_
