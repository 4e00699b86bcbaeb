// Owns the forward pass of an LSTM over a whole sequence on the GPU. The
// equations are in cc/core/lstm_cell.h; here stand the order of the products
// and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_FORWARD_CUH_

#include <cstdint>
#include <limits>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/input_product.cuh"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence_rows.cuh"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The peephole weights of a unit.
template <class Args>
__device__ __forceinline__ auto SequencePeepholes(const Args& args,
                                                  int64_t unit) {
  using C = decltype(Load(args.wci, unit));
  return LstmPeepholes<C>{Load(args.wci, unit), Load(args.wcf, unit),
                          Load(args.wco, unit)};
}

// What both stages of a step have.
template <class T>
struct LstmSequenceStep {
  using C = ComputeType<T>;
  LstmSequenceForwardArgs<T> args;
  RowMap rows;
  StepInput<T> input;
  C cell_clip;       // infinity where nothing is clipped
  Alternating<C> h;  // [B, P], before a step and after it
  C* cs;             // [B, H]
  C* m;              // [B, H], what is projected; nullptr: no projection
  int64_t width;     // P
  int64_t ld_h;

  __device__ __forceinline__ void StoreH(int64_t step, int64_t b, int64_t unit,
                                         C value) const {
    StoreIf(args.h, rows.InMemory(step, b) * ld_h + unit, value);
    h.At(step + 1)[b * width + unit] = value;
  }
  // h as it was.
  __device__ __forceinline__ void CarryH(int64_t step, int64_t b,
                                         int64_t unit) const {
    StoreH(step, b, unit, h.At(step)[b * width + unit]);
  }
};

// x · w_x + b + h · w_h  →  the gates, cs, m = o ∘ tanh(cs), which is h
// without a projection
template <class T>
struct LstmSequenceCell {
  using C = ComputeType<T>;
  LstmSequenceStep<T> step_of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[kLstmGates]) const {
    const LstmSequenceForwardArgs<T>& args = step_of.args;
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    const int64_t at = step_of.rows.Saved(step, b) * units + unit;
    if (step_of.rows.Skipped(step, b)) {
      StoreIf(args.i, at, C(0));
      StoreIf(args.f, at, C(0));
      StoreIf(args.o, at, C(0));
      StoreIf(args.ci, at, C(0));
      StoreIf(args.co, at, C(0));
      StoreIf(args.cs, at, step_of.cs[state]);
      if (step_of.m == nullptr) step_of.CarryH(step, b, unit);
      return;
    }
    const LstmStep<C> out = Compute(step, b, unit, sums, step_of.cs[state]);
    StoreIf(args.i, at, out.i);
    StoreIf(args.cs, at, out.cs);
    StoreIf(args.f, at, out.f);
    StoreIf(args.o, at, out.o);
    StoreIf(args.ci, at, out.ci);
    StoreIf(args.co, at, out.co);
    step_of.cs[state] = out.cs;
    if (step_of.m != nullptr) {
      step_of.m[state] = out.h;
    } else {
      step_of.StoreH(step, b, unit, out.h);
    }
  }

 private:
  __device__ __forceinline__ LstmStep<C> Compute(int64_t step, int64_t b,
                                                 int64_t unit,
                                                 const C (&sums)[kLstmGates],
                                                 C cs_prev) const {
    const LstmSequenceForwardArgs<T>& args = step_of.args;
    C bars[kLstmGates];
#pragma unroll
    for (int gate = 0; gate < kLstmGates; ++gate) {
      bars[gate] = step_of.input.Of(step_of.rows, step, b, gate, unit) +
                   step_of.input.StateBias(gate, unit) + sums[gate];
    }
    // Not an index: the gates are in registers. o is the last, i the first in
    // both layouts.
    const bool icfo = args.layout.ci == kLstmIcfo.ci;
    LstmPreActivations<C> bar;
    bar.i_bar = bars[kLstmIcfo.i];
    bar.ci_bar = icfo ? bars[kLstmIcfo.ci] : bars[kLstmIfco.ci];
    bar.f_bar = icfo ? bars[kLstmIcfo.f] : bars[kLstmIfco.f];
    bar.o_bar = bars[kLstmIcfo.o];
    const C forget_bias = C(args.options.forget_bias);
    if (args.options.use_peephole) {
      return blockrnn::LstmForward<StandardActivations, true, true>(
          bar, cs_prev, SequencePeepholes(args, unit), forget_bias,
          step_of.cell_clip);
    }
    return blockrnn::LstmForward<StandardActivations, false, true>(
        bar, cs_prev, LstmPeepholes<C>{0, 0, 0}, forget_bias,
        step_of.cell_clip);
  }
};
static_assert(kLstmIcfo.i == kLstmIfco.i && kLstmIcfo.o == kLstmIfco.o);

// m · w_pᵀ  →  h
template <class T>
struct LstmSequenceProjection {
  using C = ComputeType<T>;
  LstmSequenceStep<T> step_of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    if (step_of.rows.Skipped(step, b)) {
      step_of.CarryH(step, b, unit);
    } else {
      step_of.StoreH(step, b, unit, sums[0]);
    }
  }
};

template <class T>
class LstmSequenceForwardCall {
 public:
  using C = ComputeType<T>;

  LstmSequenceForwardCall(const LstmSequenceForwardArgs<T>& args,
                          const Host& host)
      : args_(args), host_(host), shape_(args.shape) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    Error error = nullptr;
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      if ((error = x_.Enter(host_, block)) ||
          (error = product_.Enter(host_, block, x_.data()))) {
        return error;
      }
      step_.input = product_.input();
      if ((error = Steps(block))) return error;
    }
    if ((error = SequencePasses<T>::EndStates(host_, rows_.map(), step_.h.even,
                                              step_.h.odd, step_.width,
                                              args_.h_last))) {
      return error;
    }
    return SequencePasses<T>::EndStates(host_, rows_.map(), step_.cs, step_.cs,
                                        shape_.units, args_.cs_last);
  }

 private:
  Error Steps(const StepBlock& block) const {
    const auto cell = Work(w_h_, LstmSequenceCell<T>{step_});
    if (args_.proj == 0) return loop_.Run(host_, rows_, block, false, cell);
    return loop_.Run(host_, rows_, block, false, cell,
                     Work(w_p_, LstmSequenceProjection<T>{step_}, true));
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    const int64_t steps = rows_.steps();
    const int64_t batch = shape_.batch;
    const Planned cell = {&w_h_, shape_.units, step_.width, batch};
    if (args_.proj == 0) return loop_.Plan(host_, steps, cell);
    return loop_.Plan(host_, steps, cell,
                      Planned{&w_p_, args_.proj, shape_.units, batch});
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    step_.args = args_;
    step_.width = args_.proj > 0 ? args_.proj : units;
    step_.ld_h = shape_.h_width > 0 ? shape_.h_width : step_.width;
    step_.cell_clip = args_.options.cell_clip > 0  // false for NaN
                          ? C(args_.options.cell_clip)
                          : std::numeric_limits<C>::infinity();
    Error error = nullptr;
    if ((error =
             rows_.Prepare(host_, shape_, args_.mask,
                           InputProduct<T>::RowBytes(shape_, kLstmGates))) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false)) ||
        (error =
             product_.Prepare(host_, shape_, rows_, args_.x,
                              {args_.w_x, args_.b, args_.b_h, kLstmGates})) ||
        (error = Plan()) ||
        (error = w_h_.Prepare(host_, Weights(), units, step_.width, batch,
                              args_.recurrent_dropout != nullptr)) ||
        (error = Allocate(host_, batch * step_.width, &step_.h.even)) ||
        (error = Allocate(host_, batch * step_.width, &step_.h.odd)) ||
        (error = Allocate(host_, batch * units, &step_.cs)) ||
        (error = PrepareProjection())) {
      return error;
    }
    step_.rows = rows_.map();
    StepProduct<T>& product = w_h_.product();
    product.state = step_.h;
    product.order = rows_.map().order;
    product.state_factors = args_.recurrent_dropout;
    product.factors_stride = batch * step_.width;
    return Begin();
  }

  Error PrepareProjection() {
    if (args_.proj == 0) return nullptr;
    const int64_t units = shape_.units;
    if (Error error = Allocate(host_, shape_.batch * units, &step_.m)) {
      return error;
    }
    w_p_.product().state = {step_.m, step_.m};
    return w_p_.Prepare(host_, {args_.w_p, units, 0, 1}, args_.proj, units,
                        shape_.batch, false);
  }

  Error Begin() const {
    const RowMap& map = rows_.map();
    Error error = nullptr;
    if ((error = SequencePasses<T>::BeginStates(host_, map, args_.h_prev,
                                                step_.width, step_.h.even)) ||
        (error = SequencePasses<T>::BeginStates(host_, map, args_.cs_prev,
                                                shape_.units, step_.cs)) ||
        (error = SequencePasses<T>::ZeroPast(host_, map, args_.h, step_.width,
                                             step_.ld_h))) {
      return error;
    }
    if (shape_.saved_in_steps) return nullptr;
    T* const saved[] = {args_.i, args_.cs, args_.f,
                        args_.o, args_.ci, args_.co};
    for (T* out : saved) {
      error = SequencePasses<T>::ZeroPast(host_, map, out, shape_.units,
                                          shape_.units);
      if (error != nullptr) return error;
    }
    return nullptr;
  }

  StepWeights<T> Weights() const {
    const int64_t units = shape_.units;
    if (shape_.weights_by_unit) {
      return {args_.w_h, step_.width, units * step_.width, 1};
    }
    return {args_.w_h, 1, units, kLstmGates * units};
  }

  const LstmSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputProduct<T> product_;
  StepMatrix<T, kLstmGates, false> w_h_;
  StepMatrix<T, kSlices, true> w_p_;
  StepLoop loop_;
  LstmSequenceStep<T> step_ = {};
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_FORWARD_CUH_
