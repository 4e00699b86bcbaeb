// Defines how the GEMM of a step is partitioned, into panels of 32 columns of
// the weights and tiles of rows; the format of the packed weights; the
// description of a step; and the end of a tile, where the warps' sums are added
// and passed to the epilogue. step_core.cuh and step_tensor.cuh multiply.
//
// A panel has all gates of a few units, one column for each gate. Where the
// GEMM has a single sum for a unit (backward: the gradient of the state), its
// depth is cut into slices, which take the place of gates: a panel again has
// few units, and there are enough blocks.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_

#include <cstdint>
#include <type_traits>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

inline constexpr int kPanelColumns = kLanes;

// Half, bfloat16 and TF32 are multiplied on tensor cores, 16 rows of the state
// by 16 depths by eight columns in one instruction, or two for TF32.
template <class T>
inline constexpr bool kTensorCores =
    sizeof(typename StorageOf<T>::Type) == 2 || std::is_same_v<T, Tf32>;
inline constexpr int kTensorRows = 16;
inline constexpr int kTensorDepths = 16;
inline constexpr int kTensorColumns = 8;

// Depths of a column that are contiguous and belong to one warp.
template <class T>
inline constexpr int kChunk = kTensorCores<T> ? kTensorDepths : 4;

// Units of a panel. Three gates leave two columns unused, or eight if each gate
// has its own state and tensor cores take eight columns with one state.
template <class T>
BLOCKRNN_HOST_DEVICE constexpr int PanelUnits(int gates, bool state_per_gate) {
  const int units = kPanelColumns / gates;
  return kTensorCores<T> && state_per_gate
             ? units / kTensorColumns * kTensorColumns
             : units;
}

// Columns of a panel per lane of CUDA cores, which share what the lane reads of
// the state (step_core.cuh): all of one gate, the same number in all kernels
// that read weights of so many gates, and no more than there are registers for
// their sums.
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

// Rows of a block of StepKernel: as many as fit its shared memory, or a quarter
// of them (a tile of tensor cores) if that makes too few blocks.
template <class T>
inline constexpr int kManyStepRows = 128 /
                                     static_cast<int>(sizeof(ComputeType<T>));
template <class T>
inline constexpr int kFewStepRows =
    kTensorCores<T> ? kTensorRows : kManyStepRows<T> / 4;

// Four elements that are loaded at once.
inline constexpr int kFour = 4;
template <class S>
struct alignas(sizeof(S) < 8 ? 4 * sizeof(S) : 16) Four {
  S value[kFour];
};

// A packed matrix of weights: [panels, chunks, 32 columns, kChunk depths],
// zeros past the last unit or depth. The first column of every lane comes
// first, then the second one of every lane.
template <class T>
struct PackedWeights {
  int64_t units = 0;
  int64_t depth = 0;   // of the GEMM
  int64_t column = 0;  // of a column: the whole depth or a slice
  int64_t slice = 0;   // from the first depth of a gate to the next one's
  int gates = 0;       // or slices
  bool state_per_gate = false;  // each with a state of its own
  int lane_columns = 1;
  T* packed = nullptr;

  BLOCKRNN_HOST_DEVICE int64_t chunks() const {
    return (column + kChunk<T> - 1) / kChunk<T>;
  }
  BLOCKRNN_HOST_DEVICE int64_t panel_units() const {
    return PanelUnits<T>(gates, state_per_gate);
  }
  BLOCKRNN_HOST_DEVICE int64_t panels() const {
    return (units + panel_units() - 1) / panel_units();
  }
};

// A double buffer for what is handed from step to step: some blocks still read
// the old values while others write the new ones. Two members and not an array,
// since indexing at run time would force it out of registers.
template <class C>
struct DoubleBuffer {
  C* even = nullptr;
  C* odd = nullptr;

  BLOCKRNN_HOST_DEVICE C* Buffer(int64_t n) const {
    return n % 2 == 0 ? even : odd;
  }
};

// The part of a step's GEMM that all steps share.
template <class T>
struct StepGemm {
  PackedWeights<T> weights;
  // [B, depth], the GEMM's input: rounded to a 16-bit T.
  DoubleBuffer<T> state;
  // Dropout: factors of the state [gates, B, depth], or of the slices' sums
  // [gates, B, units]; rows in the order of the batch.
  const T* state_factors = nullptr;
  const T* sum_factors = nullptr;
  int64_t factors_stride = 0;      // from gate to gate
  const int64_t* order = nullptr;  // RowOrder's

  BLOCKRNN_HOST_DEVICE int64_t BatchRow(int64_t row) const {
    return order == nullptr ? row : order[row];
  }
};

// A step and its rows. Rows from state_rows on have a state of zeros.
struct StepRange {
  int64_t step = 0;
  int64_t rows = 0;
  int64_t state_rows = 0;
  int64_t state = 0;  // index of the state that is read
};

// A StepEpilogue is what a cell computes from the sums of an element, a row and
// a unit:
//   Operands  everything else that it reads from device memory
//   Read(step, row, unit) → Operands, which no epilogue of another element of
//     the same GEMM writes: they are loaded at the same time as the state, or,
//     where a step has no other GEMM, at the end of the previous step
//   Results, Publish(step, row, unit, sums, operands) → Results, which stores
//     what other elements read, and
//   Save(step, row, unit, operands, results), which stores all else while other
//     blocks may be computing the next GEMM already; or, instead of the three,
//   operator()(step, row, unit, sums, operands), which stores everything

// The Results of an epilogue; empty where it has none.
template <class StepEpilogue, class = void>
struct EpilogueResults {
  static constexpr bool kAny = false;
  struct Type {};
};
template <class StepEpilogue>
struct EpilogueResults<StepEpilogue,
                       std::void_t<typename StepEpilogue::Results>> {
  static constexpr bool kAny = true;
  using Type = typename StepEpilogue::Results;
};
template <class StepEpilogue>
using ResultsOf = typename EpilogueResults<StepEpilogue>::Type;

template <class C, int kSums, class StepEpilogue>
__device__ __forceinline__ ResultsOf<StepEpilogue> Publish(
    const StepEpilogue& epilogue, int64_t step, int64_t row, int64_t unit,
    const C (&sums)[kSums], const typename StepEpilogue::Operands& operands) {
  if constexpr (EpilogueResults<StepEpilogue>::kAny) {
    return epilogue.Publish(step, row, unit, sums, operands);
  } else {
    epilogue(step, row, unit, sums, operands);
    return {};
  }
}
template <class StepEpilogue>
__device__ __forceinline__ void Save(
    const StepEpilogue& epilogue, int64_t step, int64_t row, int64_t unit,
    const typename StepEpilogue::Operands& operands,
    const ResultsOf<StepEpilogue>& results) {
  if constexpr (EpilogueResults<StepEpilogue>::kAny) {
    epilogue.Save(step, row, unit, operands, results);
  }
}

// Publishes what follows from the sums of a unit's columns or, for slices, from
// their total.
template <bool kSliced, class T, int kGates, class StepEpilogue>
__device__ __forceinline__ ResultsOf<StepEpilogue> PublishUnit(
    const StepGemm<T>& gemm, const StepEpilogue& epilogue, int64_t step,
    int64_t row, int64_t unit, const ComputeType<T> (&sums)[kGates],
    const typename StepEpilogue::Operands& operands) {
  using C = ComputeType<T>;
  if constexpr (!kSliced) {
    return Publish(epilogue, step, row, unit, sums, operands);
  } else {
    C total[1] = {C(0)};
#pragma unroll
    for (int slice = 0; slice < kGates; ++slice) {
      C sum = sums[slice];
      if (gemm.sum_factors != nullptr) {
        sum *= Load(gemm.sum_factors,
                    slice * gemm.factors_stride +
                        gemm.BatchRow(row) * gemm.weights.units + unit);
      }
      total[0] += sum;
    }
    return Publish(epilogue, step, row, unit, total, operands);
  }
}

// The index of a warp's sum in shared memory. The columns of a row are permuted
// in groups of eight, differently in neighbouring rows, so that lanes with
// eight columns of four rows, which is how tensor cores leave them, hit
// different banks.
template <int kRows>
__device__ __forceinline__ int SumIndex(int warp, int row, int column) {
  return (warp * kRows + row) * kPanelColumns +
         (column ^ (row % 4 * kTensorColumns));
}

// The elements of a tile as its threads take them: the first kThreads, then the
// next ones.
template <int kRows, int kUnits>
struct TileElements {
  static constexpr int kCount = kRows * kUnits;
  // Whether a thread has at most one.
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
  __device__ __forceinline__ bool Has(const StepGemm<T>& gemm,
                                      const StepRange& range, int i) const {
    return i < kCount && Row(i) < range.rows && Unit(i) < gemm.weights.units;
  }
};

// The operands of the thread's element, if it has exactly one that exists in
// this step.
template <int kRows, int kUnits, class T, class StepEpilogue>
__device__ __forceinline__ typename StepEpilogue::Operands ReadOperands(
    const StepGemm<T>& gemm, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements) {
  if constexpr (TileElements<kRows, kUnits>::kOne) {
    const auto i = static_cast<int>(threadIdx.x);
    if (elements.Has(gemm, range, i)) {
      return epilogue.Read(range.step, elements.Row(i), elements.Unit(i));
    }
  }
  return {};
}

// Adds the warps' sums of a tile's i-th element, in the warps' order. sums:
// those of the block's warps, indexed by SumIndex.
template <int kRows, int kUnits, int kGates, class C>
__device__ __forceinline__ void AddWarps(const C* sums, int i,
                                         C (&totals)[kGates]) {
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      totals[gate] +=
          sums[SumIndex<kRows>(warp, i / kUnits, gate * kUnits + i % kUnits)];
    }
  }
}

// Publishes the thread's element of a tile, if it has one. operands: from
// ReadOperands. sums: as in AddWarps. once_stored(): what can be done as soon
// as all warps have stored their sums.
template <int kGates, bool kSliced, int kRows, int kUnits, class T,
          class StepEpilogue, class OnceStored>
__device__ __forceinline__ ResultsOf<StepEpilogue> PublishTile(
    const StepGemm<T>& gemm, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements,
    const typename StepEpilogue::Operands& operands, const ComputeType<T>* sums,
    const OnceStored& once_stored) {
  static_assert(TileElements<kRows, kUnits>::kOne);
  __syncthreads();
  once_stored();
  const auto i = static_cast<int>(threadIdx.x);
  if (!elements.Has(gemm, range, i)) return {};
  const int64_t row = elements.Row(i);
  ComputeType<T> totals[kGates] = {};
  // Without a state nothing is multiplied: a weight may be infinite.
  if (row < range.state_rows) AddWarps<kRows, kUnits>(sums, i, totals);
  return PublishUnit<kSliced>(gemm, epilogue, range.step, row, elements.Unit(i),
                              totals, operands);
}

// Saves what PublishTile left.
template <int kRows, int kUnits, class T, class StepEpilogue>
__device__ __forceinline__ void SaveTile(
    const StepGemm<T>& gemm, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements,
    const typename StepEpilogue::Operands& operands,
    const ResultsOf<StepEpilogue>& results) {
  const auto i = static_cast<int>(threadIdx.x);
  if (!elements.Has(gemm, range, i)) return;
  Save(epilogue, range.step, elements.Row(i), elements.Unit(i), operands,
       results);
}

// Publishes and saves all elements of a tile. operands: from ReadOperands.
// sums: as in AddWarps.
template <int kGates, bool kSliced, int kRows, int kUnits, class T,
          class StepEpilogue>
__device__ __forceinline__ void FinishTile(
    const StepGemm<T>& gemm, const StepEpilogue& epilogue,
    const StepRange& range, const TileElements<kRows, kUnits>& elements,
    const typename StepEpilogue::Operands& operands,
    const ComputeType<T>* sums) {
  using Elements = TileElements<kRows, kUnits>;
  __syncthreads();
  // Not unrolled: two epilogues of a thread must not overlap, since one may
  // read what the other writes.
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Elements::kCount;
       i += kThreads) {
    if (!elements.Has(gemm, range, i)) continue;
    const int64_t row = elements.Row(i);
    const int64_t unit = elements.Unit(i);
    ComputeType<T> totals[kGates] = {};
    // Without a state nothing is multiplied: a weight may be infinite.
    if (row < range.state_rows) AddWarps<kRows, kUnits>(sums, i, totals);
    const auto finish = [&](const typename StepEpilogue::Operands& in) {
      Save(epilogue, range.step, row, unit, in,
           PublishUnit<kSliced>(gemm, epilogue, range.step, row, unit, totals,
                                in));
    };
    if constexpr (Elements::kOne) {
      finish(operands);
    } else {
      finish(epilogue.Read(range.step, row, unit));
    }
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_PANEL_CUH_
