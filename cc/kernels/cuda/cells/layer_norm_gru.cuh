// Implements a GRU with layer normalisation over a sequence on the GPU, forward
// and backward. The equations are in cc/core/layer_norm.h and cc/core/
// gru_cell.h; this file has the order of the passes and what is handed from
// step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_GRU_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_GRU_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/cuda/cells/layer_norm.cuh"
#include "cc/kernels/cuda/cells/layer_norm_backward.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

static_assert(kGruRuc.c == 2 && kGruUrc.c == 2);

// The vectors behind both norms.
template <template <class> class Args, class T>
BLOCKRNN_HOST_DEVICE NormVectors<T> GruVectorsOfX(const Args<T>& args) {
  return {args.gamma_x, {args.beta_x, args.b_x}};
}
template <template <class> class Args, class T>
BLOCKRNN_HOST_DEVICE NormVectors<T> GruVectorsOfH(const Args<T>& args) {
  return {args.gamma_h, {args.beta_h, args.b_h}};
}

// What a unit's gates are made of, in their order: norm_x(x · w_x) + b_x and
// norm_h(h · w_h) + b_h.
template <class Activations, class C>
__device__ __forceinline__ GruAfterStep<C> NormalizedGruStep(
    const GruGateLayout& layout, const C (&of_x)[kGruAfterGates],
    const C (&of_h)[kGruAfterGates], C h_prev) {
  const C first = of_x[0] + of_h[0];
  const C second = of_x[1] + of_h[1];
  const bool r_first = layout.r == 0;
  return GruAfterForward<Activations>(r_first ? first : second,
                                      r_first ? second : first, of_x[2],
                                      of_h[2], h_prev);
}

// h · w_h of a row  →  its norm, the gates, h
template <class T, class Activations>
struct LayerNormGruRow {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  LayerNormGruForwardArgs<T> args;
  C epsilon;        // that of args
  const C* x_norm;  // NormalizedForward's, as the next one
  const C* sums;
  int64_t step;

  // A masked step has no gates, and carries the state.
  __device__ void operator()(int64_t b) const {
    const StepRow row = FindStepRow(common.rows, step, b);
    const int64_t units = args.shape.units;
    const int64_t width = kGruAfterGates * units;
    const C* const of_row = sums + b * width;
    const C* const x = x_norm + (row.packed - common.input.first) * width;
    RowNorm<C> norm = {C(0), C(0)};
    if (!row.masked) {
      norm = NormOfStateSums<kGruAfterGates>(units, epsilon, of_row);
    }
    if (threadIdx.x == 0) StoreIf(args.rstd, 2 * row.saved + 1, norm.rstd);
    const NormVectors<T> vectors = GruVectorsOfH(args);
    ForEachUnit(units, [&](int64_t unit) {
      C of_x[kGruAfterGates];
      C of_h[kGruAfterGates];
#pragma unroll
      for (int gate = 0; gate < kGruAfterGates; ++gate) {
        const int64_t column = gate * units + unit;
        const C hat = row.masked ? C(0) : norm(of_row[column]);
        StoreIf(args.h_hat, row.saved * width + column, hat);
        of_x[gate] = x[column];
        of_h[gate] = vectors.Apply(hat, column);
      }
      C h = common.PreviousH(step, b, unit);
      if (!row.masked) {
        h = NormalizedGruStep<Activations>(args.layout, of_x, of_h, h).h;
      }
      common.StoreH(row, step, b, unit, h);
    });
  }
};

template <class T, class Activations = StandardActivations>
class LayerNormGruForwardCall
    : public NormalizedForward<T, LayerNormGruForwardArgs<T>, kGruAfterGates> {
  using Base = NormalizedForward<T, LayerNormGruForwardArgs<T>, kGruAfterGates>;

 public:
  using Base::Base;

  Error RunBlock(const StepBlock& block) const {
    return this->RunNormalized(
        block, GruVectorsOfX(this->args_),
        [&](const ForwardStep<T>& step, int64_t n) {
          return LayerNormGruRow<T, Activations>{
              step,           this->args_,  this->epsilon(),
              this->x_norm(), this->sums(), n};
        });
  }
};

template <class T>
struct LayerNormGruGradArrays {
  using C = ComputeType<T>;
  LayerNormGruBackwardArgs<T> args;
  C* d_x_gates;  // [B, 3H], gradients behind norm_x
  C* d_h_gates;  // [B, 3H], gradients behind norm_h
  // Σ over the steps, [B, 3H] each.
  C* x_bias;   // of b_x and beta_x
  C* h_bias;   // of b_h and beta_h
  C* x_gamma;  // of gamma_x
  C* h_gamma;  // of gamma_h
};

// d_h of a row  →  the gradients of the gates, which are computed once more,
// and from them those before the norms
template <class T>
struct LayerNormGruGradRow {
  using C = ComputeType<T>;
  NormalizedGradStep<T, kGruAfterGates> norms;
  LayerNormGruGradArrays<T> arrays;
  int64_t step;

  __device__ void operator()(int64_t b) const {
    const StepRow row = FindStepRow(norms.common.rows, step, b);
    if (row.masked) {
      norms.StoreZeros(row, step, b);
      return;
    }
    const SavedNorms<T> saved =
        SavedNorms<T>::Of(arrays.args, row, norms.width());
    C means[4] = {};
    ForEachUnit(arrays.args.shape.units,
                [&](int64_t unit) { Gates(b, unit, saved, means); });
    MeansOverBlock(norms.width(), means);
    norms.StoreBeforeNorms(row, step, b, saved, arrays.d_x_gates,
                           arrays.d_h_gates, means);
  }

 private:
  // Stores the gradients of a unit's gates, and adds to the sums.
  __device__ __forceinline__ void Gates(int64_t b, int64_t unit,
                                        const SavedNorms<T>& saved,
                                        C (&sums)[4]) const {
    const LayerNormGruBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    const NormVectors<T> x_vectors = GruVectorsOfX(args);
    const NormVectors<T> h_vectors = GruVectorsOfH(args);
    C of_x[kGruAfterGates];
    C of_h[kGruAfterGates];
#pragma unroll
    for (int gate = 0; gate < kGruAfterGates; ++gate) {
      const int64_t column = gate * units + unit;
      of_x[gate] = x_vectors.Apply(Load(saved.x_hat, column), column);
      of_h[gate] = h_vectors.Apply(Load(saved.h_hat, column), column);
    }
    const C h_prev = norms.common.PreviousH(step, b, unit);
    const GruAfterStepGrad<C> out = GruAfterBackward(
        NormalizedGruStep<StandardActivations>(args.layout, of_x, of_h, h_prev),
        of_h[2], h_prev, norms.d_h[b * units + unit]);
    norms.common.d_h_direct[b * units + unit] = out.d_h_prev;
    const auto add = [&](int gate, C d_x, C d_h) {
      const int64_t column = gate * units + unit;
      const int64_t at = b * kGruAfterGates * units + column;
      arrays.d_x_gates[at] = d_x;
      arrays.d_h_gates[at] = d_h;
      arrays.x_bias[at] += d_x;
      arrays.h_bias[at] += d_h;
      arrays.x_gamma[at] += d_x * Load(saved.x_hat, column);
      arrays.h_gamma[at] += d_h * Load(saved.h_hat, column);
      saved.Add(column, d_x, d_h, sums);
    };
    add(args.layout.r, out.d_r_bar, out.d_r_bar);
    add(args.layout.u, out.d_u_bar, out.d_u_bar);
    add(args.layout.c, out.d_c_bar, out.d_hc);
  }
};

template <class T>
class LayerNormGruBackwardCall
    : public NormalizedBackward<T, LayerNormGruBackwardArgs<T>,
                                kGruAfterGates> {
  using Base =
      NormalizedBackward<T, LayerNormGruBackwardArgs<T>, kGruAfterGates>;
  using Base::args_;
  using Base::host_;

 public:
  LayerNormGruBackwardCall(const LayerNormGruBackwardArgs<T>& args,
                           const HostInterface& host)
      : Base(args, host), columns_(kGruAfterGates * args.shape.units) {}

  Error Prepare() {
    const int64_t batch = args_.shape.batch;
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = Allocate(host_, batch * columns_, &arrays_.d_x_gates)) ||
        (error = Allocate(host_, batch * columns_, &arrays_.d_h_gates)) ||
        (error = vectors_.Prepare(host_, batch, columns_))) {
      return error;
    }
    arrays_.args = args_;
    arrays_.x_bias = vectors_.array(0);
    arrays_.h_bias = vectors_.array(1);
    arrays_.x_gamma = vectors_.array(2);
    arrays_.h_gamma = vectors_.array(3);
    return nullptr;
  }

  Error RunBlock(const StepBlock& block) const {
    return this->RunNormalized(block, [&](const auto& step, int64_t n) {
      return LayerNormGruGradRow<T>{step, arrays_, n};
    });
  }

  // b_x and beta_x have the same gradient, and so have b_h and beta_h.
  Error Finish() const {
    T* const of_x =
        args_.b_x_grad != nullptr ? args_.b_x_grad : args_.beta_x_grad;
    T* const of_h =
        args_.b_h_grad != nullptr ? args_.b_h_grad : args_.beta_h_grad;
    Error error = nullptr;
    if ((error = Base::Finish()) ||
        (error = vectors_.Finish(
             host_, {{of_x, of_h, args_.gamma_x_grad, args_.gamma_h_grad}})) ||
        (error = CopyGrad(host_, of_x, columns_, args_.beta_x_grad))) {
      return error;
    }
    return CopyGrad(host_, of_h, columns_, args_.beta_h_grad);
  }

 private:
  const int64_t columns_;  // 3H
  VectorGrads<T, 4> vectors_;
  LayerNormGruGradArrays<T> arrays_ = {};
};

template <class T>
struct FunctionOf<LayerNormGruForwardArgs<T>>
    : SequenceFunction<LayerNormGruForwardCall<T>> {};
template <class T>
struct FunctionOf<LayerNormGruBackwardArgs<T>>
    : SequenceFunction<LayerNormGruBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_GRU_CUH_
