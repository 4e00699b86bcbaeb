// Defines the C function through which the checks in tests/gpu call the
// engine's whole sequences: one call; null for success, else the error.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/cells/gru_after_sequence.cuh"
#include "cc/kernels/cuda/cells/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"
#include "cc/kernels/cuda/cells/simple_rnn_sequence.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "tests/gpu/plain_blas.cuh"
#include "tests/gpu/scratch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

// All arguments of a call except its pointers. NOLINTNEXTLINE: sequences.py
// mirrors it.
struct PlainSequence {
  int64_t function, dtype;
  int64_t steps, batch, input, units, proj;
  int64_t time_major, backwards, skip_input, projected_input;
  int64_t state_stride, h_width, weights_by_unit, saved_in_steps;
  int64_t relu, layout, use_peephole;
  int64_t identity;  // forward alone: activations that do nothing
  int64_t with_blas, persistent, allow_tf32;
  int64_t block_bytes;  // 0: the engine's own
  int64_t blas_step_work;
  int64_t scratch_calls;  // allocations that succeed
  int64_t span_steps;     // backward alone: the biases follow the inputs
  int64_t norm_output_only;
  double forget_bias, cell_clip;
  double zoneout_rate_h, zoneout_rate_c;
  double epsilon;
};

namespace blockrnn::cuda {
namespace {

// One value for each type of the engine, in the order of device_engine.py.
enum DType { kHalf, kBfloat16, kFloat, kDouble };

enum Function {
  kRnnForward,
  kRnnBackward,
  kLstmForward,
  kLstmBackward,
  kGruForward,
  kGruBackward,
  kGruAfterForward,
  kGruAfterBackward,
  kLayerNormLstmForward,
  kLayerNormLstmBackward,
  kLayerNormGruForward,
  kLayerNormGruBackward,
};

struct Call {
  const PlainSequence& plain;
  void* const* pointers;  // in the order of the fields
  const int64_t* lengths;

  template <class... Fields>
  void Fill(Fields*... fields) {
    (Next(fields), ...);
  }
  template <class P>
  void Next(P** field) {
    *field = static_cast<P*>(*pointers++);
  }

  SequenceShape Shape() const {
    SequenceShape s;
    s.steps = plain.steps;
    s.batch = plain.batch;
    s.input = plain.input;
    s.units = plain.units;
    s.time_major = plain.time_major != 0;
    s.backwards = plain.backwards != 0;
    s.lengths = lengths;
    s.skip_input = plain.skip_input != 0;
    s.projected_input = plain.projected_input != 0;
    s.state_stride = plain.state_stride;
    s.h_width = plain.h_width;
    s.weights_by_unit = plain.weights_by_unit != 0;
    s.saved_in_steps = plain.saved_in_steps != 0;
    return s;
  }
};

template <class T>
Error RnnForwardCall(Call call, const HostInterface& host) {
  SimpleRnnForwardArgs<T> a;
  a.shape = call.Shape();
  a.relu = call.plain.relu != 0;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.w_x, &a.w_h,
            &a.b, &a.b_h, &a.h, &a.h_last);
  if (call.plain.identity != 0) {
    return SequenceFunction<SimpleRnnForwardCall<T, IdentityActivations>>::Run(
        a, host);
  }
  return Run(a, host);
}

template <class T>
Error RnnBackwardCall(Call call, const HostInterface& host) {
  SimpleRnnBackwardArgs<T> a;
  a.shape = call.Shape();
  a.relu = call.plain.relu != 0;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.w_x, &a.w_h,
            &a.h, &a.h_grad, &a.h_last_grad, &a.x_grad, &a.h_prev_grad,
            &a.w_x_grad, &a.w_h_grad, &a.b_grad);
  return RunAny(a, host);
}

template <class T>
Error LstmForwardCall(Call call, const HostInterface& host) {
  LstmSequenceForwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  a.zoneout_c.rate = call.plain.zoneout_rate_c;
  a.layout = call.plain.layout == 0 ? kLstmIcfo : kLstmIfco;
  a.options.forget_bias = static_cast<float>(call.plain.forget_bias);
  a.options.cell_clip = static_cast<float>(call.plain.cell_clip);
  a.options.use_peephole = call.plain.use_peephole != 0;
  a.proj = call.plain.proj;
  call.Fill(&a.mask, &a.x, &a.cs_prev, &a.h_prev, &a.recurrent_dropout,
            &a.zoneout_h.kept, &a.zoneout_c.kept, &a.w_x, &a.w_h, &a.w_p,
            &a.wci, &a.wcf, &a.wco, &a.b, &a.b_h);
  call.Fill(&a.i, &a.cs, &a.f, &a.o, &a.ci, &a.co, &a.h, &a.cs_last, &a.h_last);
  if (call.plain.identity != 0) {
    return SequenceFunction<
        LstmSequenceForwardCall<T, IdentityActivations>>::Run(a, host);
  }
  return Run(a, host);
}

template <class T>
Error LstmBackwardCall(Call call, const HostInterface& host) {
  LstmSequenceBackwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  a.zoneout_c.rate = call.plain.zoneout_rate_c;
  a.layout = call.plain.layout == 0 ? kLstmIcfo : kLstmIfco;
  a.options.cell_clip = static_cast<float>(call.plain.cell_clip);
  a.options.use_peephole = call.plain.use_peephole != 0;
  a.proj = call.plain.proj;
  call.Fill(&a.mask, &a.x, &a.cs_prev, &a.h_prev, &a.recurrent_dropout,
            &a.zoneout_h.kept, &a.zoneout_c.kept, &a.w_x, &a.w_h, &a.w_p,
            &a.wci, &a.wcf, &a.wco);
  call.Fill(&a.i, &a.cs, &a.f, &a.o, &a.ci, &a.co, &a.h);
  call.Fill(&a.cs_grad, &a.h_grad, &a.cs_last_grad, &a.h_last_grad);
  a.span_steps = call.plain.span_steps;
  if (a.span_steps > 0) {
    a.options.forget_bias = static_cast<float>(call.plain.forget_bias);
    call.Fill(&a.b);
  }
  call.Fill(&a.x_grad, &a.cs_prev_grad, &a.h_prev_grad, &a.w_x_grad,
            &a.w_h_grad, &a.w_p_grad, &a.wci_grad, &a.wcf_grad, &a.wco_grad,
            &a.b_grad);
  return RunAny(a, host);
}

template <class T>
Error GruForwardCall(Call call, const HostInterface& host) {
  GruSequenceForwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.zoneout_h.kept,
            &a.w_ru_x, &a.w_ru_h, &a.w_c_x, &a.w_c_h, &a.b_ru, &a.b_c);
  call.Fill(&a.r, &a.u, &a.c, &a.h, &a.h_last);
  if (call.plain.identity != 0) {
    return SequenceFunction<
        GruSequenceForwardCall<T, IdentityActivations>>::Run(a, host);
  }
  return Run(a, host);
}

template <class T>
Error GruBackwardCall(Call call, const HostInterface& host) {
  GruSequenceBackwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.zoneout_h.kept,
            &a.w_ru_x, &a.w_ru_h, &a.w_c_x, &a.w_c_h);
  call.Fill(&a.r, &a.u, &a.c, &a.h, &a.h_grad, &a.h_last_grad);
  a.span_steps = call.plain.span_steps;
  if (a.span_steps > 0) call.Fill(&a.b_ru, &a.b_c);
  call.Fill(&a.x_grad, &a.h_prev_grad, &a.w_ru_x_grad, &a.w_ru_h_grad,
            &a.w_c_x_grad, &a.w_c_h_grad, &a.b_ru_grad, &a.b_c_grad);
  return RunAny(a, host);
}

template <class T>
Error GruAfterForwardCall(Call call, const HostInterface& host) {
  GruAfterSequenceForwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  a.layout = call.plain.layout == 0 ? kGruRuc : kGruUrc;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.zoneout_h.kept,
            &a.w_x, &a.w_h, &a.b_x, &a.b_h);
  call.Fill(&a.r, &a.u, &a.c, &a.hc, &a.h, &a.h_last);
  if (call.plain.identity != 0) {
    return SequenceFunction<
        GruAfterSequenceForwardCall<T, IdentityActivations>>::Run(a, host);
  }
  return Run(a, host);
}

template <class T>
Error GruAfterBackwardCall(Call call, const HostInterface& host) {
  GruAfterSequenceBackwardArgs<T> a;
  a.shape = call.Shape();
  a.zoneout_h.rate = call.plain.zoneout_rate_h;
  a.layout = call.plain.layout == 0 ? kGruRuc : kGruUrc;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.zoneout_h.kept,
            &a.w_x, &a.w_h);
  call.Fill(&a.r, &a.u, &a.c, &a.hc, &a.h, &a.h_grad, &a.h_last_grad);
  a.span_steps = call.plain.span_steps;
  if (a.span_steps > 0) call.Fill(&a.b_x, &a.b_h);
  call.Fill(&a.x_grad, &a.h_prev_grad, &a.w_x_grad, &a.w_h_grad, &a.b_x_grad,
            &a.b_h_grad);
  return RunAny(a, host);
}

template <class T>
Error LayerNormLstmForwardCall(Call call, const HostInterface& host) {
  LayerNormLstmForwardArgs<T> a;
  a.shape = call.Shape();
  a.layout = call.plain.layout == 0 ? kLstmIcfo : kLstmIfco;
  a.epsilon = call.plain.epsilon;
  a.norm_output_only = call.plain.norm_output_only != 0;
  call.Fill(&a.mask, &a.x, &a.cs_prev, &a.h_prev, &a.recurrent_dropout, &a.w_x,
            &a.w_h, &a.b);
  call.Fill(&a.gamma_x, &a.beta_x, &a.gamma_h, &a.beta_h, &a.gamma_c,
            &a.beta_c);
  call.Fill(&a.x_hat, &a.h_hat, &a.rstd, &a.cs, &a.h, &a.cs_last, &a.h_last);
  return Run(a, host);
}

template <class T>
Error LayerNormLstmBackwardCall(Call call, const HostInterface& host) {
  LayerNormLstmBackwardArgs<T> a;
  a.shape = call.Shape();
  a.layout = call.plain.layout == 0 ? kLstmIcfo : kLstmIfco;
  a.epsilon = call.plain.epsilon;
  a.norm_output_only = call.plain.norm_output_only != 0;
  a.span_steps = call.plain.span_steps;
  call.Fill(&a.mask, &a.x, &a.cs_prev, &a.h_prev, &a.recurrent_dropout, &a.w_x,
            &a.w_h, &a.b);
  call.Fill(&a.gamma_x, &a.beta_x, &a.gamma_h, &a.beta_h, &a.gamma_c,
            &a.beta_c);
  call.Fill(&a.x_hat, &a.h_hat, &a.rstd, &a.cs, &a.h);
  call.Fill(&a.cs_grad, &a.h_grad, &a.cs_last_grad, &a.h_last_grad);
  call.Fill(&a.x_grad, &a.cs_prev_grad, &a.h_prev_grad, &a.w_x_grad,
            &a.w_h_grad, &a.b_grad);
  call.Fill(&a.gamma_x_grad, &a.beta_x_grad, &a.gamma_h_grad, &a.beta_h_grad,
            &a.gamma_c_grad, &a.beta_c_grad);
  return RunAny(a, host);
}

template <class T>
Error LayerNormGruForwardCall(Call call, const HostInterface& host) {
  LayerNormGruForwardArgs<T> a;
  a.shape = call.Shape();
  a.layout = call.plain.layout == 0 ? kGruRuc : kGruUrc;
  a.epsilon = call.plain.epsilon;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.w_x, &a.w_h,
            &a.b_x, &a.b_h);
  call.Fill(&a.gamma_x, &a.beta_x, &a.gamma_h, &a.beta_h);
  call.Fill(&a.x_hat, &a.h_hat, &a.rstd, &a.h, &a.h_last);
  return Run(a, host);
}

template <class T>
Error LayerNormGruBackwardCall(Call call, const HostInterface& host) {
  LayerNormGruBackwardArgs<T> a;
  a.shape = call.Shape();
  a.layout = call.plain.layout == 0 ? kGruRuc : kGruUrc;
  a.epsilon = call.plain.epsilon;
  a.span_steps = call.plain.span_steps;
  call.Fill(&a.mask, &a.x, &a.h_prev, &a.recurrent_dropout, &a.w_x, &a.w_h,
            &a.b_x, &a.b_h);
  call.Fill(&a.gamma_x, &a.beta_x, &a.gamma_h, &a.beta_h);
  call.Fill(&a.x_hat, &a.h_hat, &a.rstd, &a.h, &a.h_grad, &a.h_last_grad);
  call.Fill(&a.x_grad, &a.h_prev_grad, &a.w_x_grad, &a.w_h_grad, &a.b_x_grad,
            &a.b_h_grad);
  call.Fill(&a.gamma_x_grad, &a.beta_x_grad, &a.gamma_h_grad, &a.beta_h_grad);
  return RunAny(a, host);
}

template <class T>
Error RunFunction(const Call& call, const HostInterface& host) {
  switch (static_cast<Function>(call.plain.function)) {
    case kRnnForward:
      return RnnForwardCall<T>(call, host);
    case kRnnBackward:
      return RnnBackwardCall<T>(call, host);
    case kLstmForward:
      return LstmForwardCall<T>(call, host);
    case kLstmBackward:
      return LstmBackwardCall<T>(call, host);
    case kGruForward:
      return GruForwardCall<T>(call, host);
    case kGruBackward:
      return GruBackwardCall<T>(call, host);
    case kGruAfterForward:
      return GruAfterForwardCall<T>(call, host);
    case kGruAfterBackward:
      return GruAfterBackwardCall<T>(call, host);
    case kLayerNormLstmForward:
      return LayerNormLstmForwardCall<T>(call, host);
    case kLayerNormLstmBackward:
      return LayerNormLstmBackwardCall<T>(call, host);
    case kLayerNormGruForward:
      return LayerNormGruForwardCall<T>(call, host);
    case kLayerNormGruBackward:
      return LayerNormGruBackwardCall<T>(call, host);
  }
  return "unknown function";
}

Error RunTyped(const Call& call, const HostInterface& host) {
  switch (static_cast<DType>(call.plain.dtype)) {
    case kHalf:
      return RunFunction<Eigen::half>(call, host);
    case kBfloat16:
      return RunFunction<Eigen::bfloat16>(call, host);
    case kFloat:
      return RunFunction<float>(call, host);
    case kDouble:
      return RunFunction<double>(call, host);
  }
  return "unknown type";
}

}  // namespace
}  // namespace blockrnn::cuda

// pointers: to device memory, in the order of the argument struct's fields.
// lengths: in host memory, or null; they are overwritten once the call is
// queued.
EXPORT blockrnn::cuda::Error blockrnn_sequence(const PlainSequence* plain,
                                               void* const* pointers,
                                               int64_t* lengths) {
  using namespace blockrnn::cuda;  // NOLINT: of this function alone
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) {
    if (Error error = ToError(
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) {
      return error;
    }
  }
  Scratch scratch;
  scratch.calls_left = plain->scratch_calls;
  scratch.stream = stream;
  HostInterface host;
  host.context = &scratch;
  host.stream = stream;
  host.allocate = &Scratch::Allocate;
  host.persistent = plain->persistent != 0;
  host.allow_tf32 = plain->allow_tf32 != 0;
  host.persistent_kernels = &persistent_kernels;
  if (plain->block_bytes > 0) {
    host.block_bytes = static_cast<std::size_t>(plain->block_bytes);
  }
  host.blas_step_work = plain->blas_step_work;
  const CublasCall cublas(false);
  host.blas = plain->with_blas != 0 ? cublas.blas() : &kPlainBlas;
  // The previous copies and fills ran on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  const Error error = RunTyped({*plain, pointers, lengths}, host);
  for (int64_t b = 0; lengths != nullptr && b < plain->batch; ++b) {
    lengths[b] = -1;
  }
  const Error later = ToError(cudaStreamSynchronize(stream));
  return error != nullptr ? error : later;
}
