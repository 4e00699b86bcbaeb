// Implements the gradients of a sequence's input and weights, which are large
// GEMMs over all rows of a block of steps: their left operands, and sums that
// continue from block to block.
//
// With 16-bit types the gates' gradients are rounded before these GEMMs, as
// tensor cores require; the sums are in float32. From step to step nothing is
// rounded.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_GRADIENTS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_GRADIENTS_CUH_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The gradient of weights, accumulated in the compute type: in the output
// itself if it has that type.
template <class T>
class WeightGrad {
 public:
  using C = ComputeType<T>;

  // out: [rows, width], rows of `ld` elements, or, if these are `width`, its
  // transpose; nullptr: not computed.
  Error Prepare(const HostInterface& host, T* out, int64_t rows, int64_t width,
                int64_t ld) {
    out_ = out;
    rows_ = rows;
    width_ = width;
    ld_out_ = ld;
    ld_ = kInPlace ? ld : width;
    const int64_t count = rows * width;
    if (out == nullptr || count == 0) return nullptr;
    if (Error error = ComputedInPlace(host, out, count, &sums_)) return error;
    if (ld_ == width) {
      return FillZero(sums_, static_cast<std::size_t>(count) * sizeof(C), host);
    }
    return ToError(cudaMemset2DAsync(sums_, ld_ * sizeof(C), 0,
                                     width * sizeof(C), rows,
                                     static_cast<cudaStream_t>(host.stream)));
  }
  Error Finish(const HostInterface& host) const {
    if (kInPlace || sums_ == nullptr) return nullptr;
    return RowSums<T>::RoundTo(host, sums_, rows_, width_, out_, ld_out_);
  }

  // nullptr if nothing is to be computed.
  C* sums() const { return sums_; }
  // Elements from row to row of the sums.
  int64_t ld() const { return ld_; }

 private:
  static constexpr bool kInPlace = std::is_same_v<T, C>;

  T* out_ = nullptr;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  int64_t ld_out_ = 0;
  int64_t ld_ = 0;
  C* sums_ = nullptr;
};

// Rows of a block in the storage type.
template <class T>
struct BlockArray {
  T* data = nullptr;
  int64_t stride = 0;

  Error Prepare(const HostInterface& host, const SequenceRows& rows,
                int64_t width) {
    stride = width;
    return AllocateStored(host, rows.MaxRowsInBlock() * width, &data);
  }
};

// Some columns of the gates' gradients.
template <class T>
struct GateColumns {
  const T* data = nullptr;  // [block rows, stride], from the first one on
  int64_t stride = 0;
  int64_t width = 0;
};

template <class T>
GateColumns<T> ColumnsOf(const BlockArray<T>& array, int64_t first,
                         int64_t width) {
  return {Offset(array.data, first), array.stride, width};
}

// grad += leftᵀ · gates over a block's rows, in the columns from `first` on, or
// in those of its transpose with by_unit.
template <class T>
struct WeightSum {
  int64_t rows = 0;
  const T* left = nullptr;  // [block rows, left_width]
  int64_t left_width = 0;
  GateColumns<T> gates;
  int64_t first = 0;
  bool by_unit = false;
};

template <class T>
Error AddWeights(const HostInterface& host, const WeightSum<T>& sum,
                 const WeightGrad<T>& grad) {
  if (grad.sums() == nullptr) return nullptr;
  const BlasMatrix<T> left = {sum.left, sum.left_width};
  const BlasMatrix<T> gates = {sum.gates.data, sum.gates.stride};
  LargeGemm<T> gemm;
  gemm.rows = sum.by_unit ? sum.gates.width : sum.left_width;
  gemm.columns = sum.by_unit ? sum.left_width : sum.gates.width;
  gemm.depth = sum.rows;
  gemm.a = sum.by_unit ? gates : left;
  gemm.a.transposed = true;
  gemm.b = sum.by_unit ? left : gates;
  gemm.c = grad.sums() + sum.first * (sum.by_unit ? sum.left_width : 1);
  gemm.c_stride = sum.by_unit ? sum.left_width : grad.ld();
  gemm.accumulate = true;
  return RunLargeGemm(host, gemm);
}

// The gradient of a bias.
template <class T>
class BiasGrad {
 public:
  using C = ComputeType<T>;

  Error Prepare(const HostInterface& host, const SequenceRows& rows, T* out,
                int64_t width) {
    if (Error error = grad_.Prepare(host, out, 1, width, width)) return error;
    if (grad_.sums() == nullptr) return nullptr;
    const int64_t slices = RowSums<T>::Slices(rows.MaxRowsInBlock());
    return Allocate(host, slices * width, &slices_);
  }
  // += Σ gates over a block's rows.
  Error Add(const HostInterface& host, const StepBlock& block,
            const GateColumns<T>& gates) const {
    if (grad_.sums() == nullptr) return nullptr;
    return RowSums<T>::Add(host, gates.data, gates.stride, block.rows,
                           gates.width, slices_, grad_.sums());
  }
  Error Finish(const HostInterface& host) const { return grad_.Finish(host); }

 private:
  WeightGrad<T> grad_;
  C* slices_ = nullptr;
};

// The gradients of some gates' weights for x and of their bias.
template <class T>
class InputWeightsGrad {
 public:
  // w_grad: [I, width], rows of `ld` elements, or its transpose; b_grad:
  // [width]; nullptr: not computed.
  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const SequenceRows& rows, T* w_grad, T* b_grad, int64_t width,
                int64_t ld) {
    shape_ = &shape;
    if (Error error =
            w_grad_.Prepare(host, shape.HasInputWeights() ? w_grad : nullptr,
                            shape.input, width, ld)) {
      return error;
    }
    return b_grad_.Prepare(host, rows, b_grad, width);
  }
  // x: the block's rows.
  Error Add(const HostInterface& host, const StepBlock& block, const T* x,
            const GateColumns<T>& gates) const {
    const WeightSum<T> sum = {block.rows, x, shape_->input,
                              gates,      0, shape_->weights_by_unit};
    if (Error error = AddWeights(host, sum, w_grad_)) return error;
    return b_grad_.Add(host, block, gates);
  }
  Error Finish(const HostInterface& host) const {
    if (Error error = w_grad_.Finish(host)) return error;
    return b_grad_.Finish(host);
  }

 private:
  const SequenceShape* shape_ = nullptr;
  WeightGrad<T> w_grad_;
  BiasGrad<T> b_grad_;
};

// The gradient of x: gates · w_xᵀ, scattered to the rows in memory.
template <class T>
class InputGrad {
 public:
  using C = ComputeType<T>;

  // Scratch for a row of a block.
  static int64_t RowBytes(const SequenceShape& shape) {
    return shape.HasInputWeights()
               ? shape.input * static_cast<int64_t>(sizeof(C))
               : 0;
  }

  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const SequenceRows& rows, T* x_grad) {
    shape_ = &shape;
    rows_ = &rows;
    x_grad_ = x_grad;
    if (Error error = SequencePasses<T>{host, rows.order()}.ZeroPadding(
            x_grad, shape.input, shape.input)) {
      return error;
    }
    in_place_ = std::is_same_v<T, C> && rows.IsPacked();
    if (!Wanted() || in_place_) return nullptr;
    return Allocate(host, rows.MaxRowsInBlock() * shape.input, &sums_);
  }

  // Adds the GEMM with the weights of some gates, w[I, gates.width] with rows
  // of `ld` elements, or w[gates.width, I] with weights_by_unit. `first` and
  // `last`: whether it is the block's first and last one.
  Error Add(const HostInterface& host, const StepBlock& block,
            const GateColumns<T>& gates, const T* w, int64_t ld, bool first,
            bool last) const {
    if (!Wanted()) return nullptr;
    const int64_t input = shape_->input;
    LargeGemm<T> gemm;
    gemm.rows = block.rows;
    gemm.columns = input;
    gemm.depth = gates.width;
    gemm.a = {gates.data, gates.stride};
    gemm.b = {w, shape_->weights_by_unit ? input : ld,
              !shape_->weights_by_unit};
    gemm.c = Sums(block);
    gemm.c_stride = input;
    gemm.accumulate = !first;
    if (Error error = RunLargeGemm(host, gemm)) return error;
    if (in_place_ || !last) return nullptr;
    return SequencePasses<T>{host, rows_->order()}.ScatterRows(block, sums_,
                                                               input, x_grad_);
  }

 private:
  bool Wanted() const {
    return x_grad_ != nullptr && shape_->HasInputWeights();
  }
  C* Sums(const StepBlock& block) const {
    if constexpr (std::is_same_v<T, C>) {
      if (in_place_)
        return x_grad_ + rows_->RowsBefore(block.first) * shape_->input;
    }
    return sums_;
  }

  const SequenceShape* shape_ = nullptr;
  const SequenceRows* rows_ = nullptr;
  T* x_grad_ = nullptr;
  bool in_place_ = false;
  C* sums_ = nullptr;  // [block rows, I]
};

// The gradient of the recurrent weights: the previous states, times the dropout
// factors if there are any, and the gates.
template <class T>
class StateWeightsGrad {
 public:
  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const SequenceRows& rows, const States<T>& states,
                const T* factors) {
    shape_ = &shape;
    rows_ = &rows;
    states_ = states;
    factors_ = factors;
    return gathered_.Prepare(host, rows, states.width);
  }

  // gates: [block rows, count · H], the gradient [width, count · H].
  Error Add(const HostInterface& host, const StepBlock& block,
            const BlockArray<T>& gates, int64_t first_column, int count,
            const WeightGrad<T>& grad) const {
    if (grad.sums() == nullptr) return nullptr;
    const int64_t units = shape_->units;
    const int parts = factors_ == nullptr ? 1 : count;
    const int64_t width = count * units / parts;
    for (int part = 0; part < parts; ++part) {
      const T* factors =
          factors_ == nullptr
              ? nullptr
              : Offset(factors_, part * rows_->memory_batch() * states_.width);
      if (Error error = SequencePasses<T>{host, rows_->order()}.GatherStates(
              block, states_, factors, gathered_.data)) {
        return error;
      }
      WeightSum<T> sum;
      sum.rows = block.rows;
      sum.left = gathered_.data;
      sum.left_width = states_.width;
      sum.gates = ColumnsOf(gates, first_column + part * width, width);
      sum.first = part * width;
      sum.by_unit = shape_->weights_by_unit;
      if (Error error = AddWeights(host, sum, grad)) return error;
    }
    return nullptr;
  }

 private:
  const SequenceShape* shape_ = nullptr;
  const SequenceRows* rows_ = nullptr;
  States<T> states_;
  const T* factors_ = nullptr;
  BlockArray<T> gathered_;
};

// arrays[kCount, B, width]  →  the sums over the batch
template <int kCount, class C>
struct BatchSums {
  const C* arrays;
  int64_t batch;
  int64_t width;

  __device__ void operator()(int64_t row, int64_t column,
                             C (&sums)[kCount]) const {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      sums[n] += arrays[(n * batch + row) * width + column];
    }
  }
};

// Sums over the steps for the gradients of kCount vectors, with one sum for
// each row of the batch, which only one thread updates; in the end they are
// added in an order that depends on the size of the batch alone.
template <class T, int kCount>
class VectorGrads {
 public:
  using C = ComputeType<T>;

  Error Prepare(const HostInterface& host, int64_t batch, int64_t width) {
    batch_ = batch;
    width_ = width;
    const int64_t size = kCount * batch * width;
    if (Error error = Allocate(host, size, &arrays_)) return error;
    return FillZero(arrays_, static_cast<std::size_t>(size) * sizeof(C), host);
  }

  // Of the n-th vector, [B, width].
  C* array(int n) const { return arrays_ + n * batch_ * width_; }

  Error Finish(const HostInterface& host,
               const SumOutputs<T, kCount>& out) const {
    return RunPointwiseWithSums(host, batch_, width_,
                                BatchSums<kCount, C>{arrays_, batch_, width_},
                                out);
  }

 private:
  C* arrays_ = nullptr;
  int64_t batch_ = 0;
  int64_t width_ = 0;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_GRADIENTS_CUH_
