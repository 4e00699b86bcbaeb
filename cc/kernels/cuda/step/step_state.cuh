// Implements the load of a step's state from device memory to shared memory,
// for every kernel that multiplies it.
//
// What another multiprocessor has just stored comes from the L2 cache at best.
// So rows and depths are distributed over all threads of a block, and no thread
// waits for one load before it issues the next. If everything is aligned to 16
// bytes the loads bypass the registers.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_STATE_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_STATE_CUH_

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/mma.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
using StateFour = Four<typename StorageOf<T>::Type>;

// The maximum number of states of a GEMM: one for each of its slices or gates.
inline constexpr int kMaxStates = 4;

// The part of a GEMM's states that is loaded, and its layout in shared memory.
// All but row0 in units of four depths.
struct StatePart {
  int64_t row0 = 0;
  int64_t first = 0;  // of a column
  int fours = 0;
  int row_stride = 0;
  int state_stride = 0;
};

// The items in which a state is loaded, four depths of a few rows each, in the
// order in which they are distributed: depths first, then states, then rows.
class StateItems {
 public:
  __device__ __forceinline__ StateItems(int states, int fours, int thread)
      : fours_(fours),
        columns_(states * fours),
        more_groups_(kThreads / columns_),
        more_columns_(kThreads % columns_),
        group_(thread / columns_),
        column_(thread % columns_) {}

  // The group of rows.
  __device__ __forceinline__ int group() const { return group_; }
  // The index of the state.
  __device__ __forceinline__ int which() const {
    static_assert(kMaxStates == 4);
    return (column_ >= fours_) + (column_ >= 2 * fours_) +
           (column_ >= 3 * fours_);
  }
  __device__ __forceinline__ int four() const {
    return column_ - which() * fours_;
  }
  // Advances to this thread's next item. Avoids divisions, each of which would
  // take as long as several loads.
  __device__ __forceinline__ void Next() {
    group_ += more_groups_;
    column_ += more_columns_;
    if (column_ >= columns_) {
      column_ -= columns_;
      ++group_;
    }
  }

 private:
  const int fours_;
  const int columns_;
  const int more_groups_;
  const int more_columns_;
  int group_;
  int column_;
};

// Four elements on their way through registers. 16-bit ones are packed in
// pairs: the compiler would unpack single elements as they arrive, and wait for
// each load.
template <class T>
using HeldFour = std::conditional_t<sizeof(typename StorageOf<T>::Type) == 2,
                                    Pairs, StateFour<T>>;

template <class T>
__device__ __forceinline__ StateFour<T> AsElements(const HeldFour<T>& held) {
  static_assert(sizeof(HeldFour<T>) == sizeof(StateFour<T>));
  StateFour<T> out;
  memcpy(&out, &held, sizeof(out));
  return out;
}

// Sets the j-th element, which was zero.
template <class S>
__device__ __forceinline__ void SetElement(S element, int j, Four<S>* to) {
  to->value[j] = element;
}
template <class S>
__device__ __forceinline__ void SetElement(S element, int j, Pairs* to) {
  uint16_t bits;
  memcpy(&bits, &element, sizeof(bits));
  to->value[j / 2] |= static_cast<uint32_t>(bits) << (j % 2 * 16);
}

// Loads four consecutive elements, of which the first `count` exist; the others
// are zeros.
template <class T>
__device__ __forceinline__ HeldFour<T> ReadFour(const T* from, int64_t count,
                                                bool aligned) {
  const auto* const stored =
      reinterpret_cast<const typename StorageOf<T>::Type*>(from);
  HeldFour<T> out = {};
  if (aligned && count >= kFour) {
    out = *reinterpret_cast<const HeldFour<T>*>(from);
  } else {
#pragma unroll
    for (int j = 0; j < kFour; ++j) {
      if (j < count) SetElement(stored[j], j, &out);
    }
  }
  return out;
}

// What a thread copies at once, bypassing the registers and the L1 cache.
struct alignas(16) Copied {
  uint32_t value[4];
};

// Whether columns and slices of a state begin and end at a multiple of Copied.
template <class T>
__device__ __forceinline__ bool CanCopy(const PackedWeights<T>& weights,
                                        const T* state) {
  constexpr auto kElements =
      static_cast<int>(sizeof(Copied) / sizeof(typename StorageOf<T>::Type));
  return weights.depth % kElements == 0 && weights.slice % kElements == 0 &&
         reinterpret_cast<uintptr_t>(state) % sizeof(Copied) == 0;
}

// LoadState if CanCopy is true and the state has no factors.
template <class T>
__device__ __forceinline__ void CopyState(const StepGemm<T>& gemm,
                                          const T* state, int states, int rows,
                                          const StatePart& part,
                                          StateFour<T>* to) {
  constexpr auto kElements =
      static_cast<int>(sizeof(Copied) / sizeof(typename StorageOf<T>::Type));
  constexpr int kAtOnce = 4;  // copies of a thread that share a branch
  const PackedWeights<T>& weights = gemm.weights;
  const int across = part.fours * kFour / kElements;  // of a row
  // A row is copied by 2 to the power of `bits` threads: no division.
  int bits = 5;
  while (bits < 8 && across >> (bits + 1) > 0) ++bits;
  static_assert(kLanes == 1 << 5 && kThreads == 1 << 8);
  const auto thread = static_cast<int>(threadIdx.x);
  const int first_row = thread >> bits;
  const int first_across = thread & ((1 << bits) - 1);
  const int row_step = kThreads >> bits;
  const int64_t from_step = row_step * weights.depth;
  const int to_step = row_step * part.row_stride * kFour / kElements;
  // The copies are on the critical path of a step, so all that they have in
  // common is computed here, and depths in 32 bits: nothing has 2^31 columns.
  const int in_column = static_cast<int>(part.first) * kFour;
  int left_of_depth = static_cast<int>(weights.depth) - in_column;
  const int left_of_column = static_cast<int>(weights.column) - in_column;
  const T* from_state =
      Offset(state, (part.row0 + first_row) * weights.depth + in_column);
  StateFour<T>* to_state = to + first_row * part.row_stride;
#pragma unroll 1
  for (int which = 0; which < states; ++which) {
    // Elements that exist; the others are zeros.
    const int count =
        std::max(0, std::min(left_of_column, left_of_depth)) / kElements;
#pragma unroll 1
    for (int n = first_across; n < across; n += 1 << bits) {
      const T* from = Offset(from_state, n * kElements);
      Copied* out = reinterpret_cast<Copied*>(to_state) + n;
#pragma unroll 1
      for (int row = first_row; row < rows; row += kAtOnce * row_step) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (row + i * row_step < rows) {
            if (n < count) {
              __pipeline_memcpy_async(out, from, sizeof(Copied));
            } else {
              *out = {};
            }
          }
          from = Offset(from, from_step);
          out += to_step;
        }
      }
    }
    from_state = Offset(from_state, weights.slice);
    to_state += part.state_stride;
    left_of_depth -= static_cast<int>(weights.slice);
  }
}

// Must come before the barrier after which the state is read.
__device__ __forceinline__ void WaitForState() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// Starts loading a state; WaitForState ends it. states: their number. to:
// [state][row][fours] of the tile's rows that have a state; zeros past the last
// depth. Other rows are left unwritten: nothing reads what is computed from
// them. kFactors: whether the state may have factors.
template <int kRows, bool kFactors, class T>
__device__ __forceinline__ void LoadState(const StepGemm<T>& gemm,
                                          const StepRange& range, int states,
                                          const StatePart& part,
                                          StateFour<T>* to) {
  constexpr int kGroup = std::min(kRows, 4);  // rows of an item
  // On their way to a thread together: of 32 registers, with their factors.
  constexpr int kItems =
      std::max(1, 128 / (static_cast<int>(sizeof(StateFour<T>)) * kGroup *
                         (kFactors ? 2 : 1)));
  const PackedWeights<T>& weights = gemm.weights;
  const T* const state = gemm.state.Buffer(range.state);
  const T* const factors = kFactors ? gemm.state_factors : nullptr;
  const auto rows =
      static_cast<int>(std::min<int64_t>(kRows, range.state_rows - part.row0));
  if (factors == nullptr && CanCopy(weights, state)) {
    CopyState(gemm, state, states, rows, part, to);
    return;
  }
  const bool aligned =
      weights.depth % kFour == 0 && weights.slice % kFour == 0 &&
      reinterpret_cast<uintptr_t>(state) % sizeof(StateFour<T>) == 0;
  StateItems items(states, part.fours, static_cast<int>(threadIdx.x));
  while (items.group() * kGroup < rows) {
    HeldFour<T> in[kItems][kGroup];
    HeldFour<T> factor[kFactors ? kItems : 1][kGroup];
    StateItems stored = items;
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const int64_t in_column = (part.first + items.four()) * kFour;
      const int64_t depth = items.which() * weights.slice + in_column;
      const int64_t count =
          std::min(weights.column - in_column, weights.depth - depth);
#pragma unroll
      for (int r = 0; r < kGroup; ++r) {
        const int row = items.group() * kGroup + r;
        if (row >= rows) continue;
        in[n][r] =
            ReadFour(Offset(state, (part.row0 + row) * weights.depth + depth),
                     count, aligned);
        if (!kFactors || factors == nullptr) continue;
        const int64_t at = items.which() * gemm.factors_stride +
                           gemm.BatchRow(part.row0 + row) * weights.depth +
                           depth;
        factor[n][r] = ReadFour(Offset(factors, at), count, false);
      }
      items.Next();
    }
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
#pragma unroll
      for (int r = 0; r < kGroup; ++r) {
        const int row = stored.group() * kGroup + r;
        if (row >= rows) continue;
        StateFour<T> out = AsElements<T>(in[n][r]);
        if (kFactors && factors != nullptr) {
          const StateFour<T> times = AsElements<T>(factor[n][r]);
#pragma unroll
          for (int j = 0; j < kFour; ++j) {
            Round(Widen(out.value[j]) * Widen(times.value[j]), &out.value[j]);
          }
        }
        to[stored.which() * part.state_stride + row * part.row_stride +
           stored.four()] = out;
      }
      stored.Next();
    }
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_STATE_CUH_
