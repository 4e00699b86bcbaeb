// Implements the forward pass of an LSTM with layer normalisation over a
// sequence on the GPU. The equations are in cc/core/layer_norm.h; this file has
// the order of the passes and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_FORWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/cuda/cells/layer_norm.cuh"
#include "cc/kernels/cuda/cells/lstm_common.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
struct LayerNormLstmArrays {
  using C = ComputeType<T>;
  LayerNormLstmForwardArgs<T> args;
  C epsilon;        // that of args
  const C* x_norm;  // NormalizedForward's, as the next one
  const C* sums;
  C* o;   // [B, H]
  C* c;   // [B, H], before its norm
  C* cs;  // [B, H]
};

// h · w_h of a row  →  its norm, the gates, the norm of the cell state, cs, h
template <class T, class Activations>
struct LayerNormLstmRow {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  LayerNormLstmArrays<T> arrays;
  int64_t step;

  __device__ void operator()(int64_t b) const {
    const LayerNormLstmForwardArgs<T>& args = arrays.args;
    const StepRow row = FindStepRow(common.rows, step, b);
    const int64_t units = args.shape.units;
    const int64_t state = b * units;
    if (row.masked) {
      Carry(row, b);
      return;
    }
    const C* const sums = arrays.sums + kLstmGates * state;
    const RowNorm<C> norm_h =
        NormOfStateSums<kLstmGates>(units, arrays.epsilon, sums);
    if (threadIdx.x == 0) StoreIf(args.rstd, 2 * row.saved + 1, norm_h.rstd);
    const C* const x =
        arrays.x_norm + (row.packed - common.input.first) * kLstmGates * units;
    ForEachUnit(units, [&](int64_t unit) {
      C bars[kLstmGates];
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        const int64_t column = gate * units + unit;
        const C hat = norm_h(sums[column]);
        StoreIf(args.h_hat, row.saved * kLstmGates * units + column, hat);
        bars[gate] = hat * Load(args.gamma_h, column) + x[column];
      }
      const LayerNormLstmGates<C> out =
          blockrnn::LayerNormLstmForward<Activations>(
              SelectGates(args.layout, bars), arrays.cs[state + unit]);
      arrays.o[state + unit] = out.o;
      arrays.c[state + unit] = out.c;
    });
    const RowNorm<C> norm_c =
        NormOfRow<1>(units, arrays.epsilon, [&](int64_t unit, C(&numbers)[1]) {
          numbers[0] = arrays.c[state + unit];
        });
    ForEachUnit(units, [&](int64_t unit) {
      const C c = arrays.c[state + unit];
      const C normalized =
          norm_c(c) * Load(args.gamma_c, unit) + Load(args.beta_c, unit);
      const C cs = args.norm_output_only ? c : normalized;
      arrays.cs[state + unit] = cs;
      StoreIf(args.cs, row.saved * units + unit, cs);
      common.StoreH(
          row, step, b, unit,
          arrays.o[state + unit] * Activations::Candidate(normalized));
    });
  }

 private:
  // A masked step has no gates, and carries the states.
  __device__ __forceinline__ void Carry(const StepRow& row, int64_t b) const {
    const LayerNormLstmForwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    if (threadIdx.x == 0) StoreIf(args.rstd, 2 * row.saved + 1, C(0));
    ForEachUnit(units, [&](int64_t unit) {
#pragma unroll
      for (int gate = 0; gate < kLstmGates; ++gate) {
        StoreIf(args.h_hat, (row.saved * kLstmGates + gate) * units + unit,
                C(0));
      }
      StoreIf(args.cs, row.saved * units + unit, arrays.cs[b * units + unit]);
      common.StoreH(row, step, b, unit, common.PreviousH(step, b, unit));
    });
  }
};

template <class T, class Activations = StandardActivations>
class LayerNormLstmForwardCall
    : public NormalizedForward<T, LayerNormLstmForwardArgs<T>, kLstmGates> {
  using Base = NormalizedForward<T, LayerNormLstmForwardArgs<T>, kLstmGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  using Base::Base;

  Error Prepare() {
    const int64_t size = shape_.batch * shape_.units;
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = Allocate(host_, size, &arrays_.o)) ||
        (error = Allocate(host_, size, &arrays_.c)) ||
        (error = Allocate(host_, size, &arrays_.cs)) ||
        (error = this->passes().LoadStates(RowEnd::kFirst, args_.cs_prev,
                                           shape_.units, arrays_.cs))) {
      return error;
    }
    arrays_.args = args_;
    arrays_.epsilon = this->epsilon();
    arrays_.x_norm = this->x_norm();
    arrays_.sums = this->sums();
    return this->ZeroSaved({args_.cs});
  }

  Error RunBlock(const StepBlock& block) const {
    const NormVectors<T> of_x = {args_.gamma_x,
                                 {args_.beta_x, args_.beta_h, args_.b}};
    return this->RunNormalized(
        block, of_x, [&](const ForwardStep<T>& step, int64_t n) {
          return LayerNormLstmRow<T, Activations>{step, arrays_, n};
        });
  }

  Error Finish() const {
    if (Error error = Base::Finish()) return error;
    return this->passes().StoreStates(RowEnd::kLast, arrays_.cs, arrays_.cs,
                                      shape_.units, args_.cs_last);
  }

 private:
  LayerNormLstmArrays<T> arrays_ = {};
};

template <class T>
struct FunctionOf<LayerNormLstmForwardArgs<T>>
    : SequenceFunction<LayerNormLstmForwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_LSTM_FORWARD_CUH_
