// Implements one LSTM step on the GPU. The equations are in
// cc/core/lstm_cell.h; this file has the kernels and the inputs and outputs of
// each.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_BLOCK_CELL_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_BLOCK_CELL_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cuda/cells/block_cell_gemm.cuh"
#include "cc/kernels/cuda/cells/lstm_common.cuh"
#include "cc/kernels/cuda/pointwise.cuh"

namespace blockrnn::cuda {

// [x, h_prev] · w  →  all seven outputs
template <class T, class Activations>
struct LstmElement {
  using C = ComputeType<T>;
  LstmCellForwardArgs<T> args;
  const C* sums;  // [B, 4H]
  C forget_bias;
  C cell_clip;  // infinity: not clipped

  __device__ void operator()(int64_t row, int64_t unit) const {
    constexpr LstmGateLayout kLayout = kLstmIcfo;
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    C bars[kLstmGates];
#pragma unroll
    for (int gate = 0; gate < kLstmGates; ++gate) {
      bars[gate] = sums[(row * kLstmGates + gate) * units + unit] +
                   Load(args.b, gate * units + unit);
    }
    const bool use_peephole = args.options.use_peephole;
    const LstmStep<C> out = blockrnn::LstmForward<Activations, true, true>(
        SelectGates(kLayout, bars), Load(args.cs_prev, at),
        LoadPeepholes(args, unit, use_peephole), forget_bias, cell_clip,
        use_peephole);
    Store(args.i, at, out.i);
    Store(args.cs, at, out.cs);
    Store(args.f, at, out.f);
    Store(args.o, at, out.o);
    Store(args.ci, at, out.ci);
    Store(args.co, at, out.co);
    Store(args.h, at, out.h);
  }
};

template <class T, class Activations>
Error LstmForward(const LstmCellForwardArgs<T>& args,
                  const HostInterface& host) {
  using C = ComputeType<T>;
  C* sums = nullptr;
  if (Error error = MultiplyBoth(host, args.dims, args.x, args.h_prev, args.w,
                                 kLstmGates * args.dims.units, &sums)) {
    return error;
  }
  return RunPointwise(host, args.dims.batch, args.dims.units,
                      LstmElement<T, Activations>{
                          args, sums, static_cast<C>(args.options.forget_bias),
                          CellClip<C>(args.options)});
}

// cs_grad, h_grad  →  dicfo, cs_prev_grad, and the terms of the peepholes' sums
template <class T, bool kPeephole>
struct LstmGradElement {
  using C = ComputeType<T>;
  LstmCellBackwardArgs<T> args;

  __device__ void operator()(int64_t row, int64_t unit) const {
    Step(row, unit, nullptr);
  }

  __device__ void operator()(int64_t row, int64_t unit, C (&sums)[3]) const {
    Step(row, unit, sums);
  }

  // wci_grad = Σ di∘cs_prev   wcf_grad = Σ df∘cs_prev   wco_grad = Σ do∘cs
  __device__ __forceinline__ void Step(int64_t row, int64_t unit,
                                       C* sums) const {
    constexpr LstmGateLayout kLayout = kLstmIcfo;
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    LstmStep<C> step;
    step.i = Load(args.i, at);
    step.cs = Load(args.cs, at);
    step.f = Load(args.f, at);
    step.o = Load(args.o, at);
    step.ci = Load(args.ci, at);
    step.co = Load(args.co, at);
    step.h = C(0);  // the equations do not read it
    const C cs_prev = Load(args.cs_prev, at);
    const LstmStepGrad<C> out = blockrnn::LstmBackward<kPeephole>(
        step, cs_prev, Load(args.cs_grad, at), Load(args.h_grad, at),
        LoadPeepholes(args, unit, kPeephole));
    const int64_t at_gates = row * kLstmGates * units + unit;
    Store(args.dicfo, at_gates + kLayout.i * units, out.di);
    Store(args.dicfo, at_gates + kLayout.ci * units, out.dci);
    Store(args.dicfo, at_gates + kLayout.f * units, out.df);
    Store(args.dicfo, at_gates + kLayout.o * units, out.d_o);
    Store(args.cs_prev_grad, at, out.cs_prev_grad);
    if constexpr (kPeephole) {
      sums[0] += out.di * cs_prev;
      sums[1] += out.df * cs_prev;
      sums[2] += out.d_o * step.cs;
    }
  }
};

// Pointwise: the GEMMs with wᵀ are done by the caller of the op.
template <class T>
Error LstmBackward(const LstmCellBackwardArgs<T>& args,
                   const HostInterface& host) {
  const int64_t rows = args.dims.batch;
  const int64_t units = args.dims.units;
  if (!args.options.use_peephole) {
    return RunPointwise(host, rows, units, LstmGradElement<T, false>{args});
  }
  const SumOutputs<T, 3> sums = {{args.wci_grad, args.wcf_grad, args.wco_grad}};
  return RunPointwiseWithSums(host, rows, units, LstmGradElement<T, true>{args},
                              sums);
}

template <class T>
struct FunctionOf<LstmCellForwardArgs<T>> {
  static constexpr auto Run = &LstmForward<T, StandardActivations>;
};
template <class T>
struct FunctionOf<LstmCellBackwardArgs<T>> {
  static constexpr auto Run = &LstmBackward<T>;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_BLOCK_CELL_CUH_
