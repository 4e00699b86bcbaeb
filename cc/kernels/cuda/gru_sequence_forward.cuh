// Owns the forward pass of a GRU, reset before the product, over a whole
// sequence on the GPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_FORWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
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

// Gates of the factors of dropout and of gradients: r, u, then the candidate.
inline constexpr int kGruCandidate = kGruGates;
inline constexpr int kGruAllGates = kGruGates + 1;

// The candidate's factor of dropout; 1 without any.
template <class Args>
__device__ __forceinline__ auto CandidateFactor(const Args& args,
                                                const RowMap& rows, int64_t b,
                                                int64_t unit) {
  using C = decltype(Load(args.recurrent_dropout, 0));
  if (args.recurrent_dropout == nullptr) return C(1);
  const int64_t row = kGruCandidate * rows.batch + rows.BatchRow(b);
  return Load(args.recurrent_dropout, row * args.shape.units + unit);
}

// What both stages of a step have.
template <class T>
struct GruSequenceStep {
  using C = ComputeType<T>;
  GruSequenceForwardArgs<T> args;
  RowMap rows;
  StepInput<T> input_ru;
  StepInput<T> input_c;
  C* h;    // [B, H]
  C* u;    // [B, H]
  C* h_r;  // [B, H], h ∘ r, times the candidate's factors
};

// x · w_ru_x + b_ru + h · w_ru_h  →  r, u, h ∘ r
template <class T>
struct GruSequenceGates {
  using C = ComputeType<T>;
  GruSequenceStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[kGruGates]) const {
    const int64_t units = of.args.shape.units;
    const int64_t state = b * units + unit;
    GruGates<C> out = {C(0), C(0), C(0)};
    if (!of.rows.Skipped(step, b)) {
      const auto bar = [&](int gate) {
        return of.input_ru.Of(of.rows, step, b, gate, unit) + sums[gate];
      };
      out = GruForwardGates<StandardActivations>(bar(kGruRu.r), bar(kGruRu.u),
                                                 of.h[state]);
      out.h_prev_r *= CandidateFactor(of.args, of.rows, b, unit);
    }
    const int64_t at = of.rows.Saved(step, b) * units + unit;
    StoreIf(of.args.r, at, out.r);
    StoreIf(of.args.u, at, out.u);
    of.u[state] = out.u;
    of.h_r[state] = out.h_prev_r;
  }
};

// x · w_c_x + b_c + (h ∘ r) · w_c_h  →  c, h, which is written in place: the
// step's first stage has read it.
template <class T>
struct GruSequenceCandidate {
  using C = ComputeType<T>;
  GruSequenceStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const int64_t units = of.args.shape.units;
    const int64_t state = b * units + unit;
    GruState<C> out = {C(0), of.h[state]};
    if (!of.rows.Skipped(step, b)) {
      out = GruForwardState<StandardActivations>(
          of.input_c.Of(of.rows, step, b, 0, unit) + sums[0], of.u[state],
          of.h[state]);
    }
    StoreIf(of.args.c, of.rows.Saved(step, b) * units + unit, out.c);
    StoreIf(of.args.h, of.rows.InMemory(step, b) * units + unit, out.h);
    of.h[state] = out.h;
  }
};

template <class T>
class GruSequenceForwardCall {
 public:
  using C = ComputeType<T>;

  GruSequenceForwardCall(const GruSequenceForwardArgs<T>& args,
                         const Host& host)
      : args_(args), host_(host), shape_(args.shape) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    Error error = nullptr;
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      if ((error = x_.Enter(host_, block)) ||
          (error = ru_.Enter(host_, block, x_.data())) ||
          (error = c_.Enter(host_, block, x_.data()))) {
        return error;
      }
      step_.input_ru = ru_.input();
      step_.input_c = c_.input();
      error = loop_.Run(host_, rows_, block, false,
                        Work(w_ru_h_, GruSequenceGates<T>{step_}),
                        Work(w_c_h_, GruSequenceCandidate<T>{step_}, true));
      if (error != nullptr) return error;
    }
    return SequencePasses<T>::EndStates(host_, rows_.map(), step_.h, step_.h,
                                        shape_.units, args_.h_last);
  }

 private:
  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    const int64_t units = shape_.units;
    return loop_.Plan(host_, rows_.steps(),
                      Planned{&w_ru_h_, units, units, shape_.batch},
                      Planned{&w_c_h_, units, units, shape_.batch});
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    Error error = nullptr;
    if ((error =
             rows_.Prepare(host_, shape_, args_.mask,
                           InputProduct<T>::RowBytes(shape_, kGruAllGates))) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false)) ||
        (error = ru_.Prepare(host_, shape_, rows_, args_.x,
                             {args_.w_ru_x, args_.b_ru, nullptr, kGruGates})) ||
        (error = c_.Prepare(
             host_, shape_, rows_, args_.x,
             {args_.w_c_x, args_.b_c, nullptr, 1, kGruGates * units})) ||
        (error = Plan()) ||
        (error = w_ru_h_.Prepare(
             host_, {args_.w_ru_h, 1, units, kGruGates * units}, units, units,
             batch, args_.recurrent_dropout != nullptr)) ||
        (error = w_c_h_.Prepare(host_, {args_.w_c_h, 1, 0, units}, units, units,
                                batch, false)) ||
        (error = Allocate(host_, batch * units, &step_.h)) ||
        (error = Allocate(host_, batch * units, &step_.u)) ||
        (error = Allocate(host_, batch * units, &step_.h_r)) ||
        (error = SequencePasses<T>::BeginStates(
             host_, rows_.map(), args_.h_prev, units, step_.h))) {
      return error;
    }
    T* const outputs[] = {args_.r, args_.u, args_.c, args_.h};
    for (T* out : outputs) {
      error =
          SequencePasses<T>::ZeroPast(host_, rows_.map(), out, units, units);
      if (error != nullptr) return error;
    }
    step_.args = args_;
    step_.rows = rows_.map();
    w_c_h_.product().state = {step_.h_r, step_.h_r};
    StepProduct<T>& product = w_ru_h_.product();
    product.state = {step_.h, step_.h};
    product.order = rows_.map().order;
    product.state_factors = args_.recurrent_dropout;
    product.factors_stride = batch * units;
    return nullptr;
  }

  const GruSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputProduct<T> ru_;
  InputProduct<T> c_;
  StepMatrix<T, kGruGates, false> w_ru_h_;
  StepMatrix<T, kSlices, true> w_c_h_;
  StepLoop loop_;
  GruSequenceStep<T> step_ = {};
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_FORWARD_CUH_
