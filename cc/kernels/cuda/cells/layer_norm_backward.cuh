// Implements what the backward calls of cells with layer normalisation share on
// the GPU: the gradient of the state, and the path from the gradients behind
// the norms to those before them. The equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_BACKWARD_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/layer_norm.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

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

// What the passes over a row (row_steps.cuh) of all cells share.
template <class T, int kGates>
struct NormalizedGradStep {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  C* d_h;  // [B, H], of the step

  __device__ __forceinline__ int64_t width() const {
    return kGates * common.width;
  }

  // The gradients of h · w_h and of x · w_x.
  __device__ __forceinline__ void StoreDz(const StepRow& row, int64_t step,
                                          int64_t b, int64_t column, C from_h,
                                          C from_x) const {
    common.StoreDz(row, step, b, column, from_h);
    common.StoreBlockDzX(row, column, from_x);
  }

  // Of a masked step.
  __device__ __forceinline__ void StoreZeros(const StepRow& row, int64_t step,
                                             int64_t b) const {
    ForEachUnit(common.width, [&](int64_t unit) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        StoreDz(row, step, b, gate * common.width + unit, C(0), C(0));
      }
    });
  }

  // Given the gradients behind the norms, [B, gates · H] each, and the means of
  // what SavedNorms::Add has summed.
  __device__ __forceinline__ void StoreBeforeNorms(
      const StepRow& row, int64_t step, int64_t b, const SavedNorms<T>& saved,
      const C* d_x_gates, const C* d_h_gates, const C (&means)[4]) const {
    ForEachUnit(common.width, [&](int64_t unit) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t column = gate * common.width + unit;
        const int64_t at = b * width() + column;
        StoreDz(row, step, b, column, saved.OfH(column, d_h_gates[at], means),
                saved.OfX(column, d_x_gates[at], means));
      }
    });
  }
};

// The base of a backward call of a cell with these norms: SequenceBackward with
// a pass over whole rows in each step. For each block of steps, the last one
// first: its steps, then
//   x_grad = dz_x · w_xᵀ    w_x_grad += xᵀ · dz_x
//   w_h_grad += h of the previous stepᵀ · dz
// The gradients of gammas, betas and biases are the cell's.
template <class T, class Args, int kGates>
class NormalizedBackward : public SequenceBackward<T, Args, kGates> {
  using Base = SequenceBackward<T, Args, kGates>;
  using C = ComputeType<T>;

 public:
  NormalizedBackward(const Args& args, const HostInterface& host)
      : Base(args, host,
             {args.w_x, args.w_h, args.w_x_grad, args.w_h_grad,
              /*b_grad=*/nullptr, args.shape.units, /*more_gates=*/0,
              /*own_columns=*/0, /*by_rows=*/true, /*sides_differ=*/true}) {}

  Error Prepare() {
    if (Error error = Base::Prepare()) return error;
    return Allocate(this->host_, this->shape_.batch * this->shape_.units,
                    &d_h_);
  }

  Error Finish() const {
    if (Error error = this->RunBeforeFirst(StateGrad())) return error;
    return Base::Finish();
  }

 protected:
  // row_pass(step, n): the pass over the rows of step n.
  template <class RowPass>
  Error RunNormalized(const StepBlock& block, const RowPass& row_pass) const {
    const NormalizedGradStep<T, kGates> step = {this->step(), d_h_};
    return this->RunRowSteps(block, StateGrad(),
                             [&](int64_t n) { return row_pass(step, n); });
  }

 private:
  LayerNormStateGrad<T> StateGrad() const { return {this->step(), d_h_}; }

  C* d_h_ = nullptr;  // [B, H]
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

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_BACKWARD_CUH_
