// Implements what the cells with layer normalisation share on the GPU: the norm
// of a row; forward both GEMMs, the pass that normalises x · w_x of a block of
// steps, and what is saved of both norms; backward the gradient of the state,
// the way from the gradients behind the norms to those before them, and sums
// for the gradients of gammas, betas and biases. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/layer_norm.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

__device__ __forceinline__ float SquareRoot(float v) { return sqrtf(v); }
__device__ __forceinline__ double SquareRoot(double v) { return sqrt(v); }

// Turns a number of a row into a normalised one, s_hat.
template <class C>
struct RowNorm {
  C mean;
  C rstd;  // 1 / √(variance + epsilon)

  __device__ __forceinline__ C operator()(C s) const {
    return (s - mean) * rstd;
  }
};

// Of a row that has kCount numbers for each unit: read(unit, numbers), which
// is called twice for each, by the same thread. All threads of the block must
// call this.
template <int kCount, class C, class Read>
__device__ __forceinline__ RowNorm<C> NormOfRow(int64_t units, C epsilon,
                                                const Read& read) {
  const C count = static_cast<C>(units == 0 ? 1 : kCount * units);
  C sum[1] = {C(0)};
  ForEachUnit(units, [&](int64_t unit) {
    C numbers[kCount];
    read(unit, numbers);
#pragma unroll
    for (int n = 0; n < kCount; ++n) sum[0] += numbers[n];
  });
  SumOverBlock(sum);
  const C mean = sum[0] / count;
  C squares[1] = {C(0)};
  ForEachUnit(units, [&](int64_t unit) {
    C numbers[kCount];
    read(unit, numbers);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const C deviation = numbers[n] - mean;
      squares[0] += deviation * deviation;
    }
  });
  SumOverBlock(squares);
  return {mean, C(1) / SquareRoot(squares[0] / count + epsilon)};
}

// Of h · w_h, the row sums[gates · H].
template <int kGates, class C>
__device__ __forceinline__ RowNorm<C> NormOfStateSums(int64_t units, C epsilon,
                                                      const C* sums) {
  return NormOfRow<kGates>(units, epsilon,
                           [&](int64_t unit, C(&numbers)[kGates]) {
#pragma unroll
                             for (int gate = 0; gate < kGates; ++gate) {
                               numbers[gate] = sums[gate * units + unit];
                             }
                           });
}

// Vectors behind a norm, [gates · H] each.
template <class T>
struct NormVectors {
  using C = ComputeType<T>;

  const T* gamma = nullptr;
  const T* biases[3] = {};  // that are added to each other; nullptr: zeros

  // gamma ∘ s_hat + the biases
  __device__ __forceinline__ C Apply(C s_hat, int64_t column) const {
    C bias = C(0);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (biases[n] != nullptr) bias += Load(biases[n], column);
    }
    return s_hat * Load(gamma, column) + bias;
  }
};

// A row of x · w_x  →  norm_x of it, with the biases behind it
template <class T, int kGates>
struct InputNormPass {
  using C = ComputeType<T>;

  StepInput<T> input;
  NormVectors<T> vectors;
  C epsilon;
  C* out;    // [block rows, gates · H], which may be the sums
  T* x_hat;  // [steps, batch, gates · H], or nullptr
  T* rstd;   // [steps, batch, 2], or nullptr; the first of the two is written

  // Nothing is written to the rows of masked steps, which no step reads; what
  // is saved of them is zeros.
  __device__ void operator()(const StepRow& row) const {
    const int64_t units = input.units;
    const int64_t saved = row.saved * kGates * units;
    RowNorm<C> norm = {C(0), C(0)};
    if (!row.masked) {
      norm = NormOfRow<kGates>(units, epsilon,
                               [&](int64_t unit, C(&numbers)[kGates]) {
                                 input.ReadSums(row, unit, numbers);
                               });
    }
    if (threadIdx.x == 0) StoreIf(rstd, 2 * row.saved, norm.rstd);
    ForEachUnit(units, [&](int64_t unit) {
      C numbers[kGates] = {};
      if (!row.masked) input.ReadSums(row, unit, numbers);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t column = gate * units + unit;
        const C hat = norm(numbers[gate]);
        StoreIf(x_hat, saved + column, hat);
        if (row.masked) continue;
        out[(row.packed - input.first) * kGates * units + column] =
            vectors.Apply(hat, column);
      }
    });
  }
};

// The forward call of a cell with these norms: the operations of
// SequenceForward with a pass over whole rows in each step. Args has x_hat,
// h_hat and rstd.
template <class T, class Args, int kGates>
class NormalizedForward {
 public:
  using C = ComputeType<T>;

  NormalizedForward(const Args& args, const HostInterface& host)
      : args_(args), host_(host), sequence_(args, host, Cell(args)) {}

  Error Prepare() {
    const int64_t width = kGates * args_.shape.units;
    Error error = nullptr;
    if ((error = sequence_.Prepare()) ||
        (error = Allocate(host_, args_.shape.batch * width, &sums_)) ||
        (error = sequence_.ZeroSaved({args_.x_hat, args_.h_hat}, width)) ||
        (error = sequence_.ZeroSaved({args_.rstd}, 2))) {
      return error;
    }
    x_norm_ = sequence_.input_sums();
    if (args_.shape.HasInputWeights()) return nullptr;
    return Allocate(host_, sequence_.rows().MaxRowsInBlock() * width, &x_norm_);
  }

  // of_x: the vectors behind norm_x. row_pass(step, n): the pass over the rows
  // of step n.
  template <class RowPass>
  Error RunBlock(const StepBlock& block, const NormVectors<T>& of_x,
                 const RowPass& row_pass) const {
    const ForwardStep<T> step = sequence_.step();
    const InputNormPass<T, kGates> normalize = {
        step.input, of_x,        static_cast<C>(args_.epsilon),
        x_norm_,    args_.x_hat, args_.rstd};
    if (Error error = RunBlockRows(host_, step.rows, block, normalize)) {
      return error;
    }
    return sequence_.RunRowSteps(block, sums_,
                                 [&](int64_t n) { return row_pass(step, n); });
  }

  SequenceForward<T, Args, kGates>& sequence() { return sequence_; }
  const SequenceForward<T, Args, kGates>& sequence() const { return sequence_; }
  C* x_norm() const { return x_norm_; }
  C* sums() const { return sums_; }

 private:
  static ForwardCell<T> Cell(const Args& args) {
    ForwardCell<T> cell;
    cell.input.w = args.w_x;
    cell.input.gates = kGates;
    cell.w_h = args.w_h;
    cell.width = args.shape.units;
    cell.in_place = true;
    cell.by_rows = true;
    if (!args.shape.HasInputWeights()) {
      cell.own_columns = kGates * args.shape.units;
    }
    return cell;
  }

  const Args& args_;
  const HostInterface& host_;
  SequenceForward<T, Args, kGates> sequence_;
  C* x_norm_ = nullptr;  // [block rows, gates · H], norm_x(x · w_x) + biases
  C* sums_ = nullptr;    // [B, gates · H], h · w_h
};

// dz · w_hᵀ of the next step  →  d_h; as step -1, the gradient of the initial
// state. A masked step passes d_h on to the previous one.
template <class T>
struct LayerNormStateGrad {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  C* d_h;  // [B, H]

  struct Operands {
    StepRow row;
    typename BackwardStep<T>::HGrads h_grads;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in = {};
    common.ReadRow(step, b, unit, &in.row, &in.h_grads);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    C of_h = C(0);
    if (!common.GradOfH(step, b, unit, sums[0], in.h_grads, &of_h)) return;
    const int64_t state = b * common.width + unit;
    common.d_h_direct[state] = in.row.masked ? of_h : C(0);
    d_h[state] = of_h;
  }
};

// What backward reads of the norms of x · w_x and of h · w_h of a row.
template <class T>
struct SavedNorms {
  using C = ComputeType<T>;

  const T* gamma_x;  // [gates · H], as all others
  const T* gamma_h;
  const T* x_hat;
  const T* h_hat;
  C x_rstd;
  C h_rstd;

  // Args has gamma_x, gamma_h, x_hat, h_hat and rstd; width: gates · H.
  template <class Args>
  static __device__ __forceinline__ SavedNorms Of(const Args& args,
                                                  const StepRow& row,
                                                  int64_t width) {
    return {args.gamma_x,
            args.gamma_h,
            Offset(args.x_hat, row.saved * width),
            Offset(args.h_hat, row.saved * width),
            Load(args.rstd, 2 * row.saved),
            Load(args.rstd, 2 * row.saved + 1)};
  }

  // Adds to the sums of g and g ∘ s_hat of both norms. d_x, d_h: the gradients
  // behind the norms.
  __device__ __forceinline__ void Add(int64_t column, C d_x, C d_h,
                                      C (&sums)[4]) const {
    const C of_x = Load(gamma_x, column) * d_x;
    const C of_h = Load(gamma_h, column) * d_h;
    sums[0] += of_x;
    sums[1] += of_x * Load(x_hat, column);
    sums[2] += of_h;
    sums[3] += of_h * Load(h_hat, column);
  }

  // The gradients before the norms; means: those over the row of what Add
  // has summed.
  __device__ __forceinline__ C OfX(int64_t column, C d_x,
                                   const C (&means)[4]) const {
    return LayerNormBackward(Load(gamma_x, column) * d_x, Load(x_hat, column),
                             means[0], means[1], x_rstd);
  }
  __device__ __forceinline__ C OfH(int64_t column, C d_h,
                                   const C (&means)[4]) const {
    return LayerNormBackward(Load(gamma_h, column) * d_h, Load(h_hat, column),
                             means[2], means[3], h_rstd);
  }
};

// The means of a row of `width` numbers, given each thread's sums.
template <class C, int kCount>
__device__ __forceinline__ void MeansOverBlock(int64_t width,
                                               C (&sums)[kCount]) {
  SumOverBlock(sums);
#pragma unroll
  for (int n = 0; n < kCount; ++n) sums[n] /= static_cast<C>(width);
}

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

// Copies a gradient that two vectors share, if both are wanted.
template <class T>
Error CopyGrad(const HostInterface& host, const T* from, int64_t count, T* to) {
  if (from == nullptr || to == nullptr || from == to) return nullptr;
  return Copy(
      from,
      static_cast<std::size_t>(count) * sizeof(typename StorageOf<T>::Type), to,
      host);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_
