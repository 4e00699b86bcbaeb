// Defines the C functions through which the checks in tests/gpu call stacks of
// layers: one call (null for success, else the error), and the size of a
// reserve space.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "tests/gpu/plain_blas.cuh"
#include "tests/gpu/scratch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

// Numbers of a call. NOLINTNEXTLINE: device_stack.py mirrors it.
struct PlainStack {
  int64_t dtype;  // half, bfloat16, float, double
  int64_t mode, layers, directions, input, units, proj, projected, skip_input;
  int64_t steps, batch, time_major;
  int64_t philox[6];  // key, counter
  int64_t with_blas, allow_tf32;
  int64_t block_bytes;    // 0: the engine's own
  int64_t scratch_calls;  // allocations that succeed
  double dropout;
};

namespace blockrnn::cuda {
namespace {

RnnGeometry GeometryOf(const PlainStack& plain) {
  RnnGeometry g;
  g.mode = static_cast<RnnMode>(plain.mode);
  g.layers = plain.layers;
  g.directions = plain.directions;
  g.input = plain.input;
  g.units = plain.units;
  g.proj = plain.proj;
  g.projected = plain.projected != 0;
  g.skip_input = plain.skip_input != 0;
  return g;
}

// Returns pointers in the order of the fields.
class Pointers {
 public:
  explicit Pointers(void* const* next) : next_(next) {}

  template <class... Fields>
  void Fill(Fields*... fields) {
    (Next(fields), ...);
  }

 private:
  template <class T>
  void Next(T** field) {
    *field = static_cast<T*>(*next_++);
  }

  void* const* next_;
};

template <class T, class Args>
void FillCommon(const PlainStack& plain, const int64_t* lengths,
                Pointers* pointers, Args* args) {
  args->geometry = GeometryOf(plain);
  args->steps = plain.steps;
  args->batch = plain.batch;
  args->time_major = plain.time_major != 0;
  args->lengths = lengths;
  args->dropout = static_cast<float>(plain.dropout);
  pointers->Fill(&args->input, &args->input_h, &args->input_c, &args->params);
}

template <class T>
Error Forward(const PlainStack& plain, const int64_t* lengths,
              Pointers pointers, const HostInterface& host) {
  RnnStackForwardArgs<T> args;
  FillCommon<T>(plain, lengths, &pointers, &args);
  pointers.Fill(&args.output, &args.output_h, &args.output_c, &args.reserve);
  for (int n = 0; n < 2; ++n) {
    args.philox.key[n] = static_cast<uint32_t>(plain.philox[n]);
  }
  for (int n = 0; n < 4; ++n) {
    args.philox.counter[n] = static_cast<uint32_t>(plain.philox[2 + n]);
  }
  return Run(args, host);
}

template <class T>
Error Backward(const PlainStack& plain, const int64_t* lengths,
               Pointers pointers, const HostInterface& host) {
  RnnStackBackwardArgs<T> args;
  FillCommon<T>(plain, lengths, &pointers, &args);
  pointers.Fill(&args.output, &args.output_backprop, &args.output_h_backprop,
                &args.output_c_backprop, &args.reserve, &args.input_backprop,
                &args.input_h_backprop, &args.input_c_backprop,
                &args.params_backprop);
  return Run(args, host);
}

template <class T>
Error RunTyped(bool backward, const PlainStack& plain, const int64_t* lengths,
               void* const* pointers, const HostInterface& host) {
  const auto run = backward ? &Backward<T> : &Forward<T>;
  return run(plain, lengths, Pointers(pointers), host);
}

Error RunTyped(bool backward, const PlainStack& plain, const int64_t* lengths,
               void* const* pointers, const HostInterface& host) {
  switch (plain.dtype) {
    case 0:
      return RunTyped<Eigen::half>(backward, plain, lengths, pointers, host);
    case 1:
      return RunTyped<Eigen::bfloat16>(backward, plain, lengths, pointers,
                                       host);
    case 2:
      return RunTyped<float>(backward, plain, lengths, pointers, host);
    default:
      return RunTyped<double>(backward, plain, lengths, pointers, host);
  }
}

// A stream that the default stream does not wait for, like TensorFlow's.
Error TheStream(cudaStream_t* stream) {
  static cudaStream_t the_stream = nullptr;
  if (the_stream == nullptr) {
    const cudaError_t code =
        cudaStreamCreateWithFlags(&the_stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) return ToError(code);
  }
  *stream = the_stream;
  return nullptr;
}

}  // namespace
}  // namespace blockrnn::cuda

using blockrnn::cuda::Error;

// pointers: to device memory, in the order of the argument struct's fields.
EXPORT Error blockrnn_stack(int backward, const PlainStack* plain,
                            const int64_t* lengths, void* const* pointers) {
  using namespace blockrnn::cuda;  // NOLINT: of this function alone
  Scratch scratch;
  scratch.alignment = 256;
  scratch.calls_left = plain->scratch_calls;
  if (Error error = TheStream(&scratch.stream)) return error;
  const CublasCall cublas(plain->allow_tf32 != 0);
  HostInterface host;
  host.context = &scratch;
  host.stream = scratch.stream;
  host.allocate = &Scratch::Allocate;
  host.persistent_kernels = &persistent_kernels;
  host.allow_tf32 = plain->allow_tf32 != 0;
  host.blas = plain->with_blas != 0 ? cublas.blas() : &kPlainBlas;
  if (plain->block_bytes > 0) host.block_bytes = plain->block_bytes;
  // The previous copies ran on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  const Error error = RunTyped(backward != 0, *plain, lengths, pointers, host);
  // Waits for the call's own stream only: work on another stream that nothing
  // waits for comes too late.
  const Error later = ToError(cudaStreamSynchronize(scratch.stream));
  return error != nullptr ? error : later;
}

EXPORT int64_t blockrnn_stack_reserve_bytes(const PlainStack* plain,
                                            const int64_t* lengths) {
  using namespace blockrnn;  // NOLINT: of this function alone
  constexpr int64_t kBytes[] = {2, 2, 4, 8};
  return ReserveLayout::Bytes(cuda::GeometryOf(*plain), plain->steps,
                              plain->batch,
                              ValidRows(plain->steps, plain->batch, lengths),
                              kBytes[plain->dtype], plain->dropout > 0)
      .value_or(-1);
}
