// Implements the backward pass of an LSTM with layer normalisation over a
// sequence on the GPU. The equations are in cc/core/layer_norm.h; this file has
// the order of the passes and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cells/layer_norm.cuh"
#include "cc/kernels/cuda/cells/layer_norm_backward.cuh"
#include "cc/kernels/cuda/cells/lstm_common.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
struct LayerNormLstmGradArrays {
  using C = ComputeType<T>;
  LayerNormLstmBackwardArgs<T> args;
  C epsilon;   // that of args
  C* cs_grad;  // [B, H], from the next step
  C* gates;    // [B, 4H], i, ci, f and o, then their gradients
  C* c;        // [B, H], before its norm, then c_hat
  C* g;        // [B, H], gamma_c ∘ dn
  C* z_sums;   // [B, 4H], Σ dz: of the biases
  C* x_sums;   // [B, 4H], Σ dz ∘ x_hat: of gamma_x
  C* h_sums;   // [B, 4H], Σ dz ∘ h_hat: of gamma_h
  C* c_sums;   // [B, H], Σ dn ∘ c_hat: of gamma_c
  C* cs_sums;  // [B, H], Σ dn: of beta_c
};

// d_h of a row  →  the gradients of the gates, which are computed once more,
// and from them those before the norms
template <class T>
struct LayerNormLstmGradRow {
  using C = ComputeType<T>;
  NormalizedGradStep<T, kLstmGates> norms;
  LayerNormLstmGradArrays<T> arrays;
  int64_t step;

  __device__ void operator()(int64_t b) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const StepRow row = FindStepRow(norms.common.rows, step, b);
    const int64_t units = args.shape.units;
    const int64_t state = b * units;
    if (row.masked) {
      ForEachUnit(units, [&](int64_t unit) {
        arrays.cs_grad[state + unit] = CsGradAt(row, b, unit);
      });
      norms.StoreZeros(row, step, b);
      return;
    }
    Gates(row, b);
    const RowNorm<C> norm_c =
        NormOfRow<1>(units, arrays.epsilon, [&](int64_t unit, C(&numbers)[1]) {
          numbers[0] = arrays.c[state + unit];
        });
    C of_c[2] = {};  // the means of g and g ∘ c_hat
    OutputGrads(row, b, norm_c, of_c);
    const SavedNorms<T> saved = SavedNorms<T>::Of(args, row, norms.width());
    C of_gates[4] = {};  // the means of both other norms
    GateGrads(row, b, saved, norm_c.rstd, of_c, of_gates);
    norms.StoreBeforeNorms(row, step, b, saved, arrays.gates, arrays.gates,
                           of_gates);
  }

 private:
  __device__ __forceinline__ C PreviousCsAt(int64_t b, int64_t unit) const {
    return PreviousCs(arrays.args, norms.common.rows, step, b, unit);
  }
  __device__ __forceinline__ C CsGradAt(const StepRow& row, int64_t b,
                                        int64_t unit) const {
    const int64_t at = b * arrays.args.shape.units + unit;
    return CsGrad(arrays.args, row, unit, arrays.cs_grad[at]);
  }

  // The gates, and the cell state before its norm.
  __device__ __forceinline__ void Gates(const StepRow& row, int64_t b) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    const NormVectors<T> of_x = {args.gamma_x,
                                 {args.beta_x, args.beta_h, args.b}};
    ForEachUnit(units, [&](int64_t unit) {
      C bars[kLstmGates];
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        const int64_t column = gate * units + unit;
        const int64_t at = row.saved * kLstmGates * units + column;
        bars[gate] = Load(args.h_hat, at) * Load(args.gamma_h, column) +
                     of_x.Apply(Load(args.x_hat, at), column);
      }
      const LayerNormLstmGates<C> out =
          blockrnn::LayerNormLstmForward<StandardActivations>(
              SelectGates(args.layout, bars), PreviousCsAt(b, unit));
      C* const gates = arrays.gates + b * kLstmGates * units + unit;
      gates[args.layout.i * units] = out.i;
      gates[args.layout.ci * units] = out.ci;
      gates[args.layout.f * units] = out.f;
      gates[args.layout.o * units] = out.o;
      arrays.c[b * units + unit] = out.c;
    });
  }

  // The gradients of ō and of the cell state's norm.
  __device__ __forceinline__ void OutputGrads(const StepRow& row, int64_t b,
                                              const RowNorm<C>& norm_c,
                                              C (&sums)[2]) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    ForEachUnit(units, [&](int64_t unit) {
      const int64_t at = b * units + unit;
      C* const o =
          arrays.gates + (b * kLstmGates + args.layout.o) * units + unit;
      const C gamma = Load(args.gamma_c, unit);
      const C hat = norm_c(arrays.c[at]);
      const C normalized = hat * gamma + Load(args.beta_c, unit);
      const C n_grad = args.norm_output_only ? C(0) : CsGradAt(row, b, unit);
      const LayerNormLstmOutputGrad<C> out = LayerNormLstmOutputBackward(
          *o, Tanh(normalized), n_grad, norms.d_h[at]);
      const C g = gamma * out.dn;
      *o = out.d_o;
      arrays.c[at] = hat;
      arrays.g[at] = g;
      arrays.c_sums[at] += out.dn * hat;
      arrays.cs_sums[at] += out.dn;
      sums[0] += g;
      sums[1] += g * hat;
    });
    MeansOverBlock(units, sums);
  }

  // Those of the other gates.
  __device__ __forceinline__ void GateGrads(const StepRow& row, int64_t b,
                                            const SavedNorms<T>& saved, C rstd,
                                            const C (&means)[2],
                                            C (&sums)[4]) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    ForEachUnit(units, [&](int64_t unit) {
      const int64_t at = b * units + unit;
      C* const gates = arrays.gates + b * kLstmGates * units + unit;
      C dc = LayerNormBackward(arrays.g[at], arrays.c[at], means[0], means[1],
                               rstd);
      if (args.norm_output_only) dc += CsGradAt(row, b, unit);
      const LayerNormLstmGateGrad<C> out = LayerNormLstmGateBackward(
          gates[args.layout.i * units], gates[args.layout.f * units],
          gates[args.layout.ci * units], PreviousCsAt(b, unit), dc);
      arrays.cs_grad[at] = out.cs_prev_grad;
      gates[args.layout.i * units] = out.di;
      gates[args.layout.ci * units] = out.dci;
      gates[args.layout.f * units] = out.df;
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        const int64_t column = gate * units + unit;
        const int64_t sum = b * kLstmGates * units + column;
        const C dz = gates[gate * units];
        arrays.z_sums[sum] += dz;
        arrays.x_sums[sum] += dz * Load(saved.x_hat, column);
        arrays.h_sums[sum] += dz * Load(saved.h_hat, column);
        saved.Add(column, dz, dz, sums);
      }
    });
    MeansOverBlock(kLstmGates * units, sums);
  }
};

template <class T>
class LayerNormLstmBackwardCall
    : public NormalizedBackward<T, LayerNormLstmBackwardArgs<T>, kLstmGates> {
  using Base = NormalizedBackward<T, LayerNormLstmBackwardArgs<T>, kLstmGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  LayerNormLstmBackwardCall(const LayerNormLstmBackwardArgs<T>& args,
                            const HostInterface& host)
      : Base(args, host), columns_(kLstmGates * args.shape.units) {}

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t size = shape_.batch * units;
    arrays_.args = args_;
    arrays_.epsilon = static_cast<ComputeType<T>>(args_.epsilon);
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = Allocate(host_, size, &arrays_.cs_grad)) ||
        (error = Allocate(host_, kLstmGates * size, &arrays_.gates)) ||
        (error = Allocate(host_, size, &arrays_.c)) ||
        (error = Allocate(host_, size, &arrays_.g)) ||
        (error = gate_vectors_.Prepare(host_, shape_.batch, columns_)) ||
        (error = state_vectors_.Prepare(host_, shape_.batch, units))) {
      return error;
    }
    arrays_.z_sums = gate_vectors_.array(0);
    arrays_.x_sums = gate_vectors_.array(1);
    arrays_.h_sums = gate_vectors_.array(2);
    arrays_.c_sums = state_vectors_.array(0);
    arrays_.cs_sums = state_vectors_.array(1);
    return this->passes().LoadStates(RowEnd::kLast, args_.cs_last_grad, units,
                                     arrays_.cs_grad);
  }

  Error RunBlock(const StepBlock& block) const {
    return this->RunNormalized(block, [&](const auto& step, int64_t n) {
      return LayerNormLstmGradRow<T>{step, arrays_, n};
    });
  }

  // beta_x, beta_h and b have the same gradient.
  Error Finish() const {
    T* const of_bias = args_.b_grad != nullptr        ? args_.b_grad
                       : args_.beta_x_grad != nullptr ? args_.beta_x_grad
                                                      : args_.beta_h_grad;
    Error error = nullptr;
    if ((error = Base::Finish()) ||
        (error = this->passes().StoreStates(RowEnd::kFirst, arrays_.cs_grad,
                                            arrays_.cs_grad, shape_.units,
                                            args_.cs_prev_grad)) ||
        (error = gate_vectors_.Finish(
             host_, {{of_bias, args_.gamma_x_grad, args_.gamma_h_grad}})) ||
        (error = CopyGrad(host_, of_bias, columns_, args_.beta_x_grad)) ||
        (error = CopyGrad(host_, of_bias, columns_, args_.beta_h_grad))) {
      return error;
    }
    return state_vectors_.Finish(host_,
                                 {{args_.gamma_c_grad, args_.beta_c_grad}});
  }

 private:
  const int64_t columns_;            // 4H
  VectorGrads<T, 3> gate_vectors_;   // of the biases, gamma_x and gamma_h
  VectorGrads<T, 2> state_vectors_;  // of gamma_c and beta_c
  LayerNormLstmGradArrays<T> arrays_ = {};
};

template <class T>
struct FunctionOf<LayerNormLstmBackwardArgs<T>>
    : SequenceFunction<LayerNormLstmBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_BACKWARD_CUH_
