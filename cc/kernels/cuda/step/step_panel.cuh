// Owns how the product of a step is cut: into panels of 32 columns of the
// weights and tiles of rows; how the weights are packed for it, what a step is,
// and the end of a tile, where the warps' sums are added and handed to the
// epilogue. How they are multiplied stands in step_core.cuh and
// step_tensor.cuh.
//
// A panel has all gates of a few units, a column for each. Where the product
// has one sum for a unit (backward: the gradient of the state), its depth is
// cut into slices, a column for each, as if they were gates: a panel of few
// units again, and so enough blocks.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_

#include <cstdint>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

inline constexpr int kPanelColumns = kLanes;

// Half and bfloat16 are multiplied by tensor cores: of 16 rows of the state 16
// depths by eight columns at once.
template <class T>
inline constexpr bool kTensorCores = sizeof(typename StorageOf<T>::Type) == 2;
inline constexpr int kTensorRows = 16;
inline constexpr int kTensorDepths = 16;
inline constexpr int kTensorColumns = 8;

// Depths of a column that lie together and are one warp's.
template <class T>
inline constexpr int kChunk = kTensorCores<T> ? kTensorDepths : 4;

// Units of a panel. Of three gates two columns are left over, or eight where
// gates have states of their own (apart) and tensor cores take eight columns
// with one.
template <class T>
BLOCKRNN_HOST_DEVICE constexpr int PanelUnits(int gates, bool apart) {
  const int units = kPanelColumns / gates;
  return kTensorCores<T> && apart ? units / kTensorColumns * kTensorColumns
                                  : units;
}

// Columns of a panel that a lane of CUDA cores has, which share what it reads
// of the state (step_core.cuh): of one gate, in all kernels that read the
// weights of so many gates, and not more than there are registers for their
// sums.
template <class T>
BLOCKRNN_HOST_DEVICE constexpr int LaneColumns(int gates) {
  if (kTensorCores<T>) return 1;
  const bool wide = sizeof(ComputeType<T>) > 4;
  return wide || kPanelColumns / gates % 4 != 0 ? 2 : 4;
}
// The same for kManyStepRows.
template <class T>
inline constexpr int kManyLaneColumns = kTensorCores<T> ||
                                                sizeof(ComputeType<T>) > 4
                                            ? 1
                                            : 2;

// Rows of a block of StepKernel: as many as its shared memory holds, or a
// quarter of them, a tile of tensor cores, where that makes too few blocks.
template <class T>
inline constexpr int kManyStepRows = 128 /
                                     static_cast<int>(sizeof(ComputeType<T>));
template <class T>
inline constexpr int kFewStepRows =
    kTensorCores<T> ? kTensorRows : kManyStepRows<T> / 4;

// Four elements that are read at once.
inline constexpr int kFour = 4;
template <class S>
struct alignas(sizeof(S) < 8 ? 4 * sizeof(S) : 16) Four {
  S value[kFour];
};

// A matrix of weights, packed: [panels, chunks, 32 columns, kChunk depths],
// zeros where there is no such unit or depth. The columns of a panel that the
// lanes have first, then those that they have second.
template <class T>
struct PackedWeights {
  int64_t units = 0;
  int64_t depth = 0;   // of the product
  int64_t column = 0;  // of a column: all of it, or a slice
  int64_t slice = 0;   // from the first depth of a gate to the next one's
  int gates = 0;       // or slices
  bool apart = false;  // each with a state of its own
  int lane_columns = 1;
  T* packed = nullptr;

  BLOCKRNN_HOST_DEVICE int64_t chunks() const {
    return (column + kChunk<T> - 1) / kChunk<T>;
  }
  BLOCKRNN_HOST_DEVICE int64_t panel_units() const {
    return PanelUnits<T>(gates, apart);
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
  PackedWeights<T> weights;
  // [B, depth], as the products multiply it: rounded to a 16-bit T.
  Alternating<T> state;
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

// A step's epilogue, StepEpilogue below, is what a cell makes of the sums of an
// element, a row and a unit:
//   Operands  what else it needs of device memory
//   Read(step, row, unit) → Operands, which no other element's epilogue of
//     the same product writes: they come while the state does
//   operator()(step, row, unit, sums, operands)

// What the epilogue gets of the sums of a unit's columns: all of them, or, of
// slices, their sum.
template <bool kSliced, class T, int kGates, class StepEpilogue>
__device__ __forceinline__ void FinishUnit(
    const StepProduct<T>& product, const StepEpilogue& epilogue, int64_t step,
    int64_t row, int64_t unit, const ComputeType<T> (&sums)[kGates],
    const typename StepEpilogue::Operands& operands) {
  using C = ComputeType<T>;
  if constexpr (!kSliced) {
    epilogue(step, row, unit, sums, operands);
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
    epilogue(step, row, unit, total, operands);
  }
}

// Where a warp's sum stands in memory. The columns of a row lie eight by eight
// in another order than those of the next rows, so that lanes with eight
// columns of four rows, which is how tensor cores leave them, meet different
// banks.
template <int kRows>
__device__ __forceinline__ int SumAt(int warp, int row, int column) {
  return (warp * kRows + row) * kPanelColumns +
         (column ^ (row % 4 * kTensorColumns));
}

// A tile's elements as its threads have them: the first kThreads, then the
// next.
template <int kRows, int kUnits>
struct TileElements {
  static constexpr int kCount = kRows * kUnits;
  // A thread has one at the most.
  static constexpr bool kOne = kCount <= kThreads;

  int64_t panel;
  int64_t row0;

  __device__ __forceinline__ int64_t Row(int i) const {
    return row0 + i / kUnits;
  }
  __device__ __forceinline__ int64_t Unit(int i) const {
    return panel * kUnits + i % kUnits;
  }
  template <class T>
  __device__ __forceinline__ bool Has(const StepProduct<T>& product,
                                      const StepRange& range, int i) const {
    return i < kCount && Row(i) < range.rows && Unit(i) < product.weights.units;
  }
};

// Of the thread's own element, if it has one only and the step has that.
template <int kRows, int kUnits, class T, class StepEpilogue>
__device__ __forceinline__ typename StepEpilogue::Operands ReadOperands(
    const StepProduct<T>& product, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements) {
  if constexpr (TileElements<kRows, kUnits>::kOne) {
    const auto i = static_cast<int>(threadIdx.x);
    if (elements.Has(product, range, i)) {
      return epilogue.Read(range.step, elements.Row(i), elements.Unit(i));
    }
  }
  return {};
}

// The warps' sums of a tile are added up, in the warps' order, and those of a
// unit handed to the epilogue. operands: from ReadOperands. sums: of the
// block's warps, where SumAt says.
template <int kGates, bool kSliced, int kRows, int kUnits, class T,
          class StepEpilogue>
__device__ __forceinline__ void FinishTile(
    const StepProduct<T>& product, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements,
    const typename StepEpilogue::Operands& operands,
    const ComputeType<T>* sums) {
  using Elements = TileElements<kRows, kUnits>;
  __syncthreads();
  // Not unrolled: of two epilogues none overlaps, since one may read what the
  // other writes.
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Elements::kCount;
       i += kThreads) {
    if (!elements.Has(product, range, i)) continue;
    const int64_t row = elements.Row(i);
    const int64_t unit = elements.Unit(i);
    ComputeType<T> totals[kGates] = {};
    // Without a state nothing is multiplied: a weight may be infinite.
    if (row < range.state_rows) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          totals[gate] +=
              sums[SumAt<kRows>(warp, i / kUnits, gate * kUnits + i % kUnits)];
        }
      }
    }
    if constexpr (Elements::kOne) {
      FinishUnit<kSliced>(product, epilogue, range.step, row, unit, totals,
                          operands);
    } else {
      FinishUnit<kSliced>(product, epilogue, range.step, row, unit, totals,
                          epilogue.Read(range.step, row, unit));
    }
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_
