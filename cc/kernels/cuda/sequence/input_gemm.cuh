// Implements x · w_x + b, which every step of a sequence adds to its recurrent
// GEMM: one large GEMM for a block of steps, to which the steps' epilogues add
// the bias; or, without w_x, x itself.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_INPUT_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_INPUT_GEMM_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What an epilogue reads.
template <class T>
struct StepInput {
  using C = ComputeType<T>;

  const C* gemms = nullptr;  // [block rows, width]; nullptr: no w_x
  int64_t width = 0;         // gates · H
  int64_t first = 0;         // rows of all steps before the block
  const T* x = nullptr;      // [steps, batch, I], read only without w_x
  int64_t input = 0;         // I
  int64_t column = 0;        // of the first gate in x
  int64_t gate_stride = 0;   // from a gate to the next one in x
  int64_t units = 0;         // H
  const T* b = nullptr;      // [gates · H]
  const T* b_h = nullptr;    // [gates · H]; nullptr: zeros

  // x · w_x of all gates. All loads are issued together: a branch for each gate
  // would wait for the previous one.
  template <int kGates>
  __device__ __forceinline__ void ReadSums(const StepRow& row, int64_t unit,
                                           C (&out)[kGates]) const {
    if (gemms != nullptr) {
      const C* const from = gemms + (row.packed - first) * width + unit;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) out[gate] = from[gate * units];
    } else {
      const int64_t from = row.memory * input + column + unit;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        out[gate] = Load(x, from + gate * gate_stride);
      }
    }
  }
  // x · w_x + b of all gates.
  template <int kGates>
  __device__ __forceinline__ void Read(const StepRow& row, int64_t unit,
                                       C (&out)[kGates]) const {
    ReadSums(row, unit, out);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      out[gate] += Load(b, gate * units + unit);
    }
  }
  __device__ __forceinline__ C StateBias(int gate, int64_t unit) const {
    return b_h == nullptr ? C(0) : Load(b_h, gate * units + unit);
  }
};

// The rows of x of a block, in the order of its steps: in place, or gathered.
template <class T>
class BlockInput {
 public:
  // zero_masked: the x of masked steps is replaced by zeros.
  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const SequenceRows& rows, const T* x, bool zero_masked) {
    rows_ = &rows;
    x_ = x;
    input_ = shape.input;
    in_place_ =
        rows.IsPacked() && !(zero_masked && rows.order().mask != nullptr);
    if (in_place_ || !shape.HasInputWeights()) return nullptr;
    return AllocateStored(host, rows.MaxRowsInBlock() * input_, &gathered_);
  }
  Error LoadBlock(const HostInterface& host, const StepBlock& block) {
    if (in_place_) {
      block_x_ = Offset(x_, rows_->RowsBefore(block.first) * input_);
      return nullptr;
    }
    block_x_ = gathered_;
    if (gathered_ == nullptr) return nullptr;
    return SequencePasses<T>{host, rows_->order()}.GatherInput(
        block, x_, input_, gathered_);
  }

  // [block rows, I]
  const T* data() const { return block_x_; }

 private:
  const SequenceRows* rows_ = nullptr;
  const T* x_ = nullptr;
  int64_t input_ = 0;
  bool in_place_ = false;
  T* gathered_ = nullptr;
  const T* block_x_ = nullptr;
};

// The input's weights and biases.
template <class T>
struct InputWeights {
  const T* w = nullptr;    // [I, gates · H], or transposed
  const T* b = nullptr;    // [gates · H]
  const T* b_h = nullptr;  // [gates · H], or nullptr
  int gates = 0;
  int64_t column = 0;  // of the first gate, with projected_input
  int64_t ld = 0;      // elements from row to row of w, unless transposed; 0:
                       // gates · H
};

template <class T>
class InputGemm {
 public:
  using C = ComputeType<T>;

  // Scratch for a row of a block, for all gates together.
  static int64_t RowBytes(const SequenceShape& shape, int64_t gates) {
    if (!shape.HasInputWeights()) return 0;
    return gates * shape.units * static_cast<int64_t>(sizeof(C)) +
           shape.input * static_cast<int64_t>(sizeof(C));
  }

  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const SequenceRows& rows, const T* x,
                const InputWeights<T>& weights) {
    rows_ = &rows;
    multiplies_ = shape.HasInputWeights();
    input_.width = weights.gates * shape.units;
    input_.x = x;
    input_.input = shape.input;
    input_.units = shape.units;
    input_.b = weights.b;
    input_.b_h = weights.b_h;
    if (!multiplies_) {
      if (shape.projected_input) {
        input_.gate_stride = shape.units;
        input_.column = weights.column;
      }
      return nullptr;
    }
    gemm_.columns = input_.width;
    gemm_.depth = shape.input;
    gemm_.a.stride = shape.input;
    const int64_t ld = weights.ld > 0 ? weights.ld : input_.width;
    gemm_.b = {weights.w, shape.weights_by_unit ? shape.input : ld,
               shape.weights_by_unit};
    gemm_.c_stride = input_.width;
    return Allocate(host, rows.MaxRowsInBlock() * input_.width, &gemm_.c);
  }

  // x: the block's rows.
  Error RunBlock(const HostInterface& host, const StepBlock& block,
                 const T* x) {
    input_.first = rows_->RowsBefore(block.first);
    if (!multiplies_) return nullptr;
    input_.gemms = gemm_.c;
    gemm_.rows = block.rows;
    gemm_.a.data = x;
    return RunLargeGemm(host, gemm_);
  }

  const StepInput<T>& input() const { return input_; }
  // The block's x · w_x, [block rows, gates · H]; nullptr: no w_x.
  C* sums() const { return gemm_.c; }

 private:
  const SequenceRows* rows_ = nullptr;
  bool multiplies_ = false;
  LargeGemm<T> gemm_;
  StepInput<T> input_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_INPUT_GEMM_CUH_
