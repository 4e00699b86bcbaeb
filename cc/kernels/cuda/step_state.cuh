// Owns the way of a step's state from device memory to shared memory, for every
// kernel that multiplies it.
//
// What another multiprocessor has just stored comes from the second-level cache
// at best, so a thread asks for all rows of its depths before it waits for any.

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

// What is brought of a product's states, one or one for each of its slices or
// gates, and where it stands there. All but row0 in Fours of depths.
struct StatePart {
  int64_t row0 = 0;
  int64_t first = 0;  // of a column
  int fours = 0;
  int row_stride = 0;
  int state_stride = 0;
};

// Four depths of a tile's rows in device memory.
template <class T>
struct StateFours {
  const T* state = nullptr;    // of the batch's first row
  const T* factors = nullptr;  // likewise; nullptr: none
  int64_t row0 = 0;            // of the tile
  int rows = 0;
  int64_t count = 0;  // how many of the depths there are
};

// Brings them to every row_stride-th of `to`, zeros for depths that are not
// there. kAtOnce: rows that are on their way together; kWhole: the depths can
// be read at once, all are there, and there are no factors.
template <int kAtOnce, bool kWhole, class T>
__device__ __forceinline__ void BringFours(const StepProduct<T>& product,
                                           const StateFours<T>& fours,
                                           int row_stride, StateFour<T>* to) {
  using S = typename StorageOf<T>::Type;
  const int64_t depth = product.weights.depth;
#pragma unroll 1
  for (int first = 0; first < fours.rows; first += kAtOnce) {
    StateFour<T> in[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      in[n] = {};
      if (first + n >= fours.rows) continue;
      const S* const from = reinterpret_cast<const S*>(fours.state) +
                            (fours.row0 + first + n) * depth;
      if constexpr (kWhole) {
        in[n] = *reinterpret_cast<const StateFour<T>*>(from);
      } else {
#pragma unroll
        for (int j = 0; j < kFour; ++j) {
          if (j < fours.count) in[n].value[j] = from[j];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (first + n >= fours.rows) continue;
      if (!kWhole && fours.factors != nullptr) {
        const int64_t at = product.BatchRow(fours.row0 + first + n) * depth;
#pragma unroll
        for (int j = 0; j < kFour; ++j) {
          if (j >= fours.count) continue;
          Round(Widen(in[n].value[j]) * Load(fours.factors, at + j),
                &in[n].value[j]);
        }
      }
      to[(first + n) * row_stride] = in[n];
    }
  }
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
  // Of 32 registers; fewer where each takes more to read.
  constexpr int kMany =
      std::min(kRows, 128 / static_cast<int>(sizeof(StateFour<T>)));
  constexpr int kFew = std::min(kRows, 4);
  const PackedWeights<T>& weights = product.weights;
  const T* const state = product.state.At(range.state);
  const bool aligned =
      weights.depth % kFour == 0 && weights.slice % kFour == 0 &&
      reinterpret_cast<uintptr_t>(state) % sizeof(StateFour<T>) == 0;
  StateFours<T> fours;
  fours.row0 = part.row0;
  fours.rows =
      static_cast<int>(std::min<int64_t>(kRows, range.state_rows - part.row0));
  for (int i = static_cast<int>(threadIdx.x); i < states * part.fours;
       i += kThreads) {
    const int which = i / part.fours;
    const int four = i % part.fours;
    const int64_t in_column = (part.first + four) * kFour;
    const int64_t depth = which * weights.slice + in_column;
    fours.state = Offset(state, depth);
    fours.count = std::min(weights.column - in_column, weights.depth - depth);
    if (kFactors && product.state_factors != nullptr) {
      fours.factors =
          Offset(product.state_factors, which * product.factors_stride + depth);
    }
    StateFour<T>* const mine = to + which * part.state_stride + four;
    if (aligned && fours.count >= kFour && fours.factors == nullptr) {
      BringFours<kMany, true>(product, fours, part.row_stride, mine);
    } else {
      BringFours<kFew, false>(product, fours, part.row_stride, mine);
    }
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STATE_CUH_
