// Declares the passes over a sequence that need no equation: gathering rows in
// the order of steps and scattering them back, initial and final states, sums
// over rows, and zeros past the rows' lengths.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The states of a sequence in memory.
template <class T>
struct States {
  const T* h = nullptr;  // [steps, batch, ld]
  int64_t ld = 0;
  const T* first = nullptr;  // [B, width], before the first step
  int64_t width = 0;
};

// One end of a row's steps, and what arrays of the rows' states are of.
enum class RowEnd { kFirst, kLast };

// The passes of one call. An output that is nullptr is not computed.
template <class T>
struct SequencePasses {
  using C = ComputeType<T>;

  const HostInterface& host;
  const RowOrder& order;

  // out[block rows, width] = the rows of x[steps, batch, width], zeros where a
  // step is masked.
  Error GatherInput(const StepBlock& block, const T* x, int64_t width,
                    T* out) const;

  // out[block rows, width] = the previous states of the steps, times factors[B,
  // width] if not nullptr; zeros where a step is masked.
  Error GatherStates(const StepBlock& block, const States<T>& states,
                     const T* factors, T* out) const;

  // The block's rows of out[steps, batch, width] = rows[block rows, width].
  Error ScatterRows(const StepBlock& block, const C* rows, int64_t width,
                    T* out) const;

  // x_grad without w_x, from gates[block rows, count · units]: a copy with
  // projected_input, the sums over the gates with skip_input.
  Error StoreGates(const StepBlock& block, const SequenceShape& shape,
                   const T* gates, int64_t count, T* x_grad) const;

  // Zeroes the first `width` elements of the rows of out[steps, batch, ld] past
  // each row's length.
  Error ZeroPadding(T* out, int64_t width, int64_t ld) const;

  // to[B, width] and stored[B, width] = the rows' states in `from`, zeros for
  // rows that have none there and if it is nullptr.
  Error LoadStates(RowEnd end, const T* from, int64_t width, C* to,
                   T* stored = nullptr) const;

  // The states of `to`, of rows that have one there = from[length % 2][B,
  // width].
  Error StoreStates(RowEnd end, const C* even, const C* odd, int64_t width,
                    T* to) const;
};

// Sums of rows in an order that depends on their number alone.
template <class T>
struct RowSums {
  using C = ComputeType<T>;

  // sums[width] += Σ rows[count, ld]; slices[Slices(count), width] is scratch.
  static int64_t Slices(int64_t count);
  static Error Add(const HostInterface& host, const T* rows, int64_t ld,
                   int64_t count, int64_t width, C* slices, C* sums);

  // out[rows, ld] = sums[rows, width], rounded.
  static Error RoundTo(const HostInterface& host, const C* sums, int64_t rows,
                       int64_t width, T* out, int64_t ld);
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_
