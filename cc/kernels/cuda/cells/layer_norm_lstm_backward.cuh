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
#include "cc/kernels/cuda/cells/lstm_gates.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
struct LayerNormLstmGradArrays {
  using C = ComputeType<T>;
  LayerNormLstmBackwardArgs<T> args;
  T* dz_x;     // [block rows, 4H], gradient of x · w_x
  C* d_h;      // [B, H], of the step
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

// d_h of a row  →  the gradients of the gates, and from them those before the
// norms, of h · w_h (dz) and of x · w_x (dz_x)
template <class T>
struct LayerNormLstmGradRow {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  LayerNormLstmGradArrays<T> arrays;
  int64_t step;

  __device__ void operator()(int64_t b) const {
    const StepRow row = FindStepRow(common.rows, step, b);
    if (row.masked) {
      Carry(row, b);
      return;
    }
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    const int64_t state = b * units;
    // 1. The gates and the cell state before its norm, once more.
    Gates(row, b);
    const RowNorm<C> norm_c = NormOfRow<1>(
        units, static_cast<C>(args.epsilon), [&](int64_t unit, C(&numbers)[1]) {
          numbers[0] = arrays.c[state + unit];
        });
    // 2. The gradients of ō and of the cell state's norm.
    C of_c[2] = {};  // the means of g and g ∘ c_hat
    OutputGrads(row, b, norm_c, of_c);
    // 3. Those of the other gates.
    const SavedNorms<T> saved =
        SavedNorms<T>::Of(args, row, kLstmGates * units);
    C of_gates[4] = {};  // the means of both other norms
    GateGrads(row, b, saved, norm_c.rstd, of_c, of_gates);
    // 4. Those before the norms.
    NormGrads(row, b, saved, of_gates);
  }

 private:
  __device__ __forceinline__ C PreviousCs(int64_t b, int64_t unit) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    return step == 0
               ? Load(args.cs_prev, common.rows.StateRow(b) * units + unit)
               : Load(args.cs,
                      common.rows.SavedRow(step - 1, b) * units + unit);
  }
  __device__ __forceinline__ C CsGrad(const StepRow& row, int64_t b,
                                      int64_t unit) const {
    const LayerNormLstmBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    C grad = arrays.cs_grad[b * units + unit];
    if (args.cs_grad != nullptr) {
      grad += Load(args.cs_grad, row.memory * units + unit);
    }
    return grad;
  }

  __device__ __forceinline__ void Carry(const StepRow& row, int64_t b) const {
    const int64_t units = arrays.args.shape.units;
    ForEachUnit(units, [&](int64_t unit) {
      arrays.cs_grad[b * units + unit] = CsGrad(row, b, unit);
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        StoreDz(row, b, gate * units + unit, C(0), C(0));
      }
    });
  }

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
              SelectGates(args.layout, bars), PreviousCs(b, unit));
      C* const gates = arrays.gates + b * kLstmGates * units + unit;
      gates[args.layout.i * units] = out.i;
      gates[args.layout.ci * units] = out.ci;
      gates[args.layout.f * units] = out.f;
      gates[args.layout.o * units] = out.o;
      arrays.c[b * units + unit] = out.c;
    });
  }

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
      const C n_grad = args.norm_output_only ? C(0) : CsGrad(row, b, unit);
      const LayerNormLstmOutputGrad<C> out = LayerNormLstmOutputBackward(
          *o, Tanh(normalized), n_grad, arrays.d_h[at]);
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
      if (args.norm_output_only) dc += CsGrad(row, b, unit);
      const LayerNormLstmGateGrad<C> out = LayerNormLstmGateBackward(
          gates[args.layout.i * units], gates[args.layout.f * units],
          gates[args.layout.ci * units], PreviousCs(b, unit), dc);
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

  __device__ __forceinline__ void NormGrads(const StepRow& row, int64_t b,
                                            const SavedNorms<T>& saved,
                                            const C (&means)[4]) const {
    const int64_t units = arrays.args.shape.units;
    ForEachUnit(units, [&](int64_t unit) {
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        const int64_t column = gate * units + unit;
        const C dz = arrays.gates[b * kLstmGates * units + column];
        StoreDz(row, b, column, saved.OfH(column, dz, means),
                saved.OfX(column, dz, means));
      }
    });
  }

  __device__ __forceinline__ void StoreDz(const StepRow& row, int64_t b,
                                          int64_t column, C from_h,
                                          C from_x) const {
    common.StoreDz(row, step, b, column, from_h);
    Store(arrays.dz_x, common.BlockRow(row) * common.columns + column, from_x);
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = dz_x · w_xᵀ    w_x_grad += xᵀ · dz_x
//   w_h_grad += h of the previous stepᵀ · dz
// In the end the sums of gammas, betas and the bias.
template <class T>
class LayerNormLstmBackwardCall {
 public:
  using C = ComputeType<T>;

  LayerNormLstmBackwardCall(const LayerNormLstmBackwardArgs<T>& args,
                            const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        columns_(kLstmGates * args.shape.units),
        sequence_(args, host,
                  {args.w_x, args.w_h, args.w_x_grad, args.w_h_grad,
                   /*b_grad=*/nullptr, args.shape.units, /*more_gates=*/0,
                   /*own_columns=*/columns_, /*by_rows=*/true}) {}

  auto& sequence() { return sequence_; }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t size = shape_.batch * units;
    arrays_.args = args_;
    Error error = nullptr;
    if ((error = sequence_.Prepare()) ||
        (error = dz_x_.Prepare(host_, sequence_.rows(), columns_)) ||
        (error = Allocate(host_, size, &arrays_.d_h)) ||
        (error = Allocate(host_, size, &arrays_.cs_grad)) ||
        (error = Allocate(host_, kLstmGates * size, &arrays_.gates)) ||
        (error = Allocate(host_, size, &arrays_.c)) ||
        (error = Allocate(host_, size, &arrays_.g)) ||
        (error = gate_vectors_.Prepare(host_, shape_.batch, columns_)) ||
        (error = state_vectors_.Prepare(host_, shape_.batch, units))) {
      return error;
    }
    arrays_.dz_x = dz_x_.data;
    arrays_.z_sums = gate_vectors_.array(0);
    arrays_.x_sums = gate_vectors_.array(1);
    arrays_.h_sums = gate_vectors_.array(2);
    arrays_.c_sums = state_vectors_.array(0);
    arrays_.cs_sums = state_vectors_.array(1);
    return SequencePasses<T>::LoadInitialStates(host_, sequence_.rows().order(),
                                                args_.cs_last_grad, units,
                                                arrays_.cs_grad);
  }

  Error RunBlock(const StepBlock& block) {
    const BackwardStep<T> step = sequence_.step();
    const auto pass_of = [&](int64_t n) {
      return LayerNormLstmGradRow<T>{step, arrays_, n};
    };
    if (Error error = sequence_.RunRowSteps(block, StateGrad(), pass_of)) {
      return error;
    }
    return sequence_.AddGradients(block, dz_x_);
  }

  Error Finish() const {
    Error error = nullptr;
    if ((error = sequence_.RunBeforeFirst(StateGrad())) ||
        (error = sequence_.Finish()) ||
        (error = SequencePasses<T>::StoreFinalStates(
             host_, sequence_.rows().order(), arrays_.cs_grad, arrays_.cs_grad,
             shape_.units, args_.cs_prev_grad))) {
      return error;
    }
    return FinishVectors();
  }

 private:
  LayerNormStateGrad<T> StateGrad() const {
    return {sequence_.step(), arrays_.d_h};
  }

  // beta_x, beta_h and b have the same gradient.
  Error FinishVectors() const {
    T* const of_bias = args_.b_grad != nullptr        ? args_.b_grad
                       : args_.beta_x_grad != nullptr ? args_.beta_x_grad
                                                      : args_.beta_h_grad;
    Error error = nullptr;
    if ((error = gate_vectors_.Finish(
             host_, {{of_bias, args_.gamma_x_grad, args_.gamma_h_grad}})) ||
        (error = CopyGrad(host_, of_bias, columns_, args_.beta_x_grad)) ||
        (error = CopyGrad(host_, of_bias, columns_, args_.beta_h_grad))) {
      return error;
    }
    return state_vectors_.Finish(host_,
                                 {{args_.gamma_c_grad, args_.beta_c_grad}});
  }

  const LayerNormLstmBackwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t columns_;  // 4H
  SequenceBackward<T, LayerNormLstmBackwardArgs<T>, kLstmGates> sequence_;
  BlockArray<T> dz_x_;               // [block rows, 4H]
  VectorGrads<T, 3> gate_vectors_;   // of the biases, gamma_x and gamma_h
  VectorGrads<T, 2> state_vectors_;  // of gamma_c and beta_c
  LayerNormLstmGradArrays<T> arrays_ = {};
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_BACKWARD_CUH_
