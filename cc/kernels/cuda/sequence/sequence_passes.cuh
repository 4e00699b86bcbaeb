// Owns the passes over a sequence that need no equation: rows gathered in the
// order of steps and brought back, states at both ends, sums over rows, and
// zeros past the rows' lengths. All that is stated here for an array does
// nothing where the array is nullptr and not wanted.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Where the states of a sequence stand.
template <class T>
struct States {
  const T* h = nullptr;  // [steps, batch, ld]
  int64_t ld = 0;
  const T* first = nullptr;  // [B, width], before the first step
  int64_t width = 0;
};

template <class T>
struct SequencePasses {
  // out[block rows, width] = the rows of x[steps, batch, width], zeros where a
  // step is skipped.
  static Error GatherInput(const HostInterface& host, const RowMap& map,
                           const StepBlock& block, const T* x, int64_t width,
                           T* out);

  // out[block rows, width] = the states before the steps, times factors[B,
  // width] where there are any; zeros where a step is skipped.
  static Error GatherStates(const HostInterface& host, const RowMap& map,
                            const StepBlock& block, const States<T>& states,
                            const T* factors, T* out);

  // out[steps, batch, width], the block's rows of it = rows[block rows, width].
  static Error ScatterRows(const HostInterface& host, const RowMap& map,
                           const StepBlock& block, const ComputeType<T>* rows,
                           int64_t width, T* out);

  // x_grad without w_x, from gates[block rows, count · units]: the same with
  // projected_input, with skip_input the sums over the gates.
  static Error StoreGates(const HostInterface& host, const RowMap& map,
                          const StepBlock& block, const SequenceShape& shape,
                          const T* gates, int64_t count, T* x_grad);

  // Zeros where rows of out[steps, batch, ld] are past their length, in the
  // first `width` elements.
  static Error ZeroPast(const HostInterface& host, const RowMap& map, T* out,
                        int64_t width, int64_t ld);

  // to[B, width] and stored[B, width] = the rows' states in `from`; zeros where
  // that is nullptr.
  static Error BeginStates(const HostInterface& host, const RowMap& map,
                           const T* from, int64_t width, ComputeType<T>* to,
                           T* stored = nullptr);

  // The states of `to` = what the rows end with: from[length % 2][B, width].
  static Error EndStates(const HostInterface& host, const RowMap& map,
                         const ComputeType<T>* even, const ComputeType<T>* odd,
                         int64_t width, T* to);

  // sums[width] += Σ rows[count, ld] in an order that follows from the count;
  // slices[Slices(count), width] is scratch.
  static int64_t Slices(int64_t count);
  static Error AddRows(const HostInterface& host, const T* rows, int64_t ld,
                       int64_t count, int64_t width, ComputeType<T>* slices,
                       ComputeType<T>* sums);

  // out[count] = sums[count], rounded.
  static Error RoundTo(const HostInterface& host, const ComputeType<T>* sums,
                       int64_t count, T* out);
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_PASSES_CUH_
