// Owns the way of a step's state from device memory to shared memory, for every
// kernel that multiplies it.
//
// What another multiprocessor has just stored comes from the second-level cache
// at best, so the rows and depths are dealt out to all threads of a block, and
// each asks for as much as it has registers for before it waits for any.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STATE_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STATE_CUH_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step_panel.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
using StateFour = Four<typename StorageOf<T>::Type>;

// States that a product may have: one for each of its slices or gates.
inline constexpr int kMostStates = 4;

// What is brought of a product's states, and where it stands there. All but
// row0 in Fours of depths.
struct StatePart {
  int64_t row0 = 0;
  int64_t first = 0;  // of a column
  int fours = 0;
  int row_stride = 0;
  int state_stride = 0;
};

// The items that a state is brought in, each four depths of a few rows, as they
// are dealt out: depths first, then states, then rows.
class StateItems {
 public:
  __device__ __forceinline__ StateItems(int states, int fours, int thread)
      : fours_(fours),
        columns_(states * fours),
        more_groups_(kThreads / columns_),
        more_columns_(kThreads % columns_),
        group_(thread / columns_),
        column_(thread % columns_) {}

  // Of rows.
  __device__ __forceinline__ int group() const { return group_; }
  // Of the states.
  __device__ __forceinline__ int which() const {
    static_assert(kMostStates == 4);
    return (column_ >= fours_) + (column_ >= 2 * fours_) +
           (column_ >= 3 * fours_);
  }
  __device__ __forceinline__ int four() const {
    return column_ - which() * fours_;
  }
  // This thread's next one. Without a division, of which each would take as
  // long as some reads.
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

// Four elements that follow each other, of which the first `count` are there;
// zeros for the others.
template <class T>
__device__ __forceinline__ StateFour<T> ReadFour(const T* from, int64_t count,
                                                 bool aligned) {
  StateFour<T> out = {};
  const auto* const stored =
      reinterpret_cast<const typename StorageOf<T>::Type*>(from);
  if (aligned && count >= kFour) {
    out = *reinterpret_cast<const StateFour<T>*>(stored);
  } else {
#pragma unroll
    for (int j = 0; j < kFour; ++j) {
      if (j < count) out.value[j] = stored[j];
    }
  }
  return out;
}

// states: how many there are. to: [state][row][fours] of a tile's rows that
// have a state; zeros where there is no such depth. Nothing is written for
// other rows: what is made of them is read by nobody. kFactors: whether the
// product may have factors of its state.
template <int kRows, bool kFactors, class T>
__device__ __forceinline__ void BringState(const StepProduct<T>& product,
                                           const StepRange& range, int states,
                                           const StatePart& part,
                                           StateFour<T>* to) {
  constexpr int kGroup = std::min(kRows, 4);  // rows of an item
  // On their way to a thread together: of 32 registers, with their factors.
  constexpr int kItems =
      std::max(1, 128 / (static_cast<int>(sizeof(StateFour<T>)) * kGroup *
                         (kFactors ? 2 : 1)));
  const PackedWeights<T>& weights = product.weights;
  const T* const state = product.state.At(range.state);
  const T* const factors = kFactors ? product.state_factors : nullptr;
  const bool aligned =
      weights.depth % kFour == 0 && weights.slice % kFour == 0 &&
      reinterpret_cast<uintptr_t>(state) % sizeof(StateFour<T>) == 0;
  const auto rows =
      static_cast<int>(std::min<int64_t>(kRows, range.state_rows - part.row0));
  StateItems items(states, part.fours, static_cast<int>(threadIdx.x));
  while (items.group() * kGroup < rows) {
    StateFour<T> in[kItems][kGroup];
    StateFour<T> factor[kFactors ? kItems : 1][kGroup];
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
        const int64_t at = items.which() * product.factors_stride +
                           product.BatchRow(part.row0 + row) * weights.depth +
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
        if (kFactors && factors != nullptr) {
#pragma unroll
          for (int j = 0; j < kFour; ++j) {
            Round(Widen(in[n][r].value[j]) * Widen(factor[n][r].value[j]),
                  &in[n][r].value[j]);
          }
        }
        to[stored.which() * part.state_stride + row * part.row_stride +
           stored.four()] = in[n][r];
      }
      stored.Next();
    }
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STATE_CUH_
