// Defines the C functions through which the checks in tests/gpu call the CUDA
// engine: device memory, and any of its functions by the name of the argument
// struct, whose members are set by name. Errors are text, null for success.
// Compiled by nvcc for a GPU, or by a host compiler for the emulation.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cc/core/activations.h"
#include "cc/core/argument_members.h"
#include "cc/core/engine_args.h"
#include "cc/core/reserve_space.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/cells/gru_after_sequence.cuh"
#include "cc/kernels/cuda/cells/gru_block_cell.cuh"
#include "cc/kernels/cuda/cells/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/cells/lstm_block_cell.cuh"
#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"
#include "cc/kernels/cuda/cells/simple_rnn_sequence.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "tests/gpu/plain_blas.cuh"
#include "tests/gpu/scratch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

// A call, except for its function. NOLINTNEXTLINE: device_engine.py mirrors it.
struct PlainCall {
  int64_t dtype;  // half, bfloat16, float, double
  int64_t numbers;
  const char* const* number_names;
  const double* values;
  int64_t pointers;
  const char* const* pointer_names;
  void* const* data;       // in device memory
  int64_t rows;            // that have a length
  const int64_t* lengths;  // in host memory, or null
  int64_t reset_bytes;
  const uint8_t* resets;  // the same
};

namespace blockrnn::cuda {
namespace {

// What a call needs besides the engine's own structs.
struct CallOptions {
  bool identity = false;      // forward alone: activations that do nothing
  bool with_blas = false;     // cuBLAS, else the checks' own BLAS
  int64_t scratch_calls = 0;  // allocations that succeed
  int64_t alignment = 1;      // of scratch (scratch.cuh)
  int64_t repeats = 1;        // of a GEMM, within one call of the BLAS
};

// The members of the structs of a call that are no pointers to elements, each
// with a word for it.
// clang-format off
#define BLOCKRNN_MEMBERS(F)                                                    \
  F(dims_batch, dims.batch) F(dims_input, dims.input)                          \
  F(dims_units, dims.units) F(options_forget_bias, options.forget_bias)        \
  F(options_cell_clip, options.cell_clip)                                      \
  F(options_use_peephole, options.use_peephole) F(shape_steps, shape.steps)    \
  F(shape_batch, shape.batch) F(shape_input, shape.input)                      \
  F(shape_units, shape.units) F(shape_time_major, shape.time_major)            \
  F(shape_backwards, shape.backwards) F(shape_skip_input, shape.skip_input)    \
  F(shape_projected_input, shape.projected_input)                              \
  F(shape_state_stride, shape.state_stride) F(shape_h_width, shape.h_width)    \
  F(shape_weights_by_unit, shape.weights_by_unit)                              \
  F(shape_saved_in_steps, shape.saved_in_steps) F(relu, relu)                  \
  F(layout, layout) F(proj, proj) F(epsilon, epsilon)                          \
  F(norm_output_only, norm_output_only) F(span_steps, span_steps)              \
  F(zoneout_h_rate, zoneout_h.rate) F(zoneout_c_rate, zoneout_c.rate)          \
  F(geometry_mode, geometry.mode) F(geometry_layers, geometry.layers)          \
  F(geometry_directions, geometry.directions)                                  \
  F(geometry_input, geometry.input) F(geometry_units, geometry.units)          \
  F(geometry_proj, geometry.proj) F(geometry_projected, geometry.projected)    \
  F(geometry_skip_input, geometry.skip_input) F(steps, steps) F(batch, batch)  \
  F(time_major, time_major) F(dropout, dropout) F(key0, philox.key[0])         \
  F(key1, philox.key[1]) F(counter0, philox.counter[0])                        \
  F(counter1, philox.counter[1]) F(counter2, philox.counter[2])                \
  F(counter3, philox.counter[3]) F(rows, rows) F(columns, columns)             \
  F(depth, depth) F(type, type) F(a_stride, a.stride)                          \
  F(a_transposed, a.transposed) F(b_stride, b.stride)                          \
  F(b_transposed, b.transposed) F(c_stride, c_stride)                          \
  F(accumulate, accumulate) F(persistent, persistent)                          \
  F(allow_tf32, allow_tf32) F(block_bytes, block_bytes)                        \
  F(blas_step_work, blas_step_work) F(identity, identity)                      \
  F(with_blas, with_blas) F(scratch_calls, scratch_calls)                      \
  F(alignment, alignment) F(repeats, repeats)                                  \
  F(mask, mask) F(resets, resets) F(reserve, reserve) F(lengths, lengths)      \
  F(zoneout_h_kept, zoneout_h.kept) F(zoneout_c_kept, zoneout_c.kept)          \
  F(a_data, a.data) F(b_data, b.data) F(shape_lengths, shape.lengths)
// clang-format on

// Find_<word>(s, 0): where a struct has the member, or nullptr if it has none.
#define BLOCKRNN_FIND(word, path)                        \
  template <class Struct>                                \
  auto Find_##word(Struct* s, int)->decltype(&s->path) { \
    return &s->path;                                     \
  }                                                      \
  template <class Struct>                                \
  std::nullptr_t Find_##word(Struct*, long) {            \
    return nullptr;                                      \
  }
#define BLOCKRNN_FIND_POINTER(name) \
  BLOCKRNN_FIND(name, name) BLOCKRNN_FIND(name##_grad, name##_grad)
BLOCKRNN_MEMBERS(BLOCKRNN_FIND)
BLOCKRNN_POINTER_NAMES(BLOCKRNN_FIND_POINTER)

// Whether what was found is of the kind of the value.
template <class Number>
bool Set(double value, Number* number) {
  *number = static_cast<Number>(value);
  return true;
}
// As the checks number the orders of gates.
bool Set(double value, LstmGateLayout* layout) {
  *layout = value == 0 ? kLstmIcfo : kLstmIfco;
  return true;
}
bool Set(double value, GruGateLayout* layout) {
  *layout = value == 0 ? kGruRuc : kGruUrc;
  return true;
}
template <class T>
bool Set(double, T**) {
  return false;
}
bool Set(double, std::nullptr_t) { return false; }
template <class T>
bool Set(void* data, T** pointer) {
  *pointer = static_cast<T*>(data);
  return true;
}
template <class Found>
bool Set(void*, Found) {
  return false;
}

#define BLOCKRNN_SET(word, path) \
  if (wanted == #path) return Set(value, Find_##word(members, 0));
#define BLOCKRNN_SET_POINTER(name) \
  BLOCKRNN_SET(name, name) BLOCKRNN_SET(name##_grad, name##_grad)

// Whether the struct has such a number.
template <class Struct>
bool SetNumber(std::string_view wanted, double value, Struct* members) {
  BLOCKRNN_MEMBERS(BLOCKRNN_SET)
  return false;
}

// Whether the struct has such a pointer.
template <class Struct>
bool SetPointer(std::string_view wanted, void* value, Struct* members) {
  BLOCKRNN_MEMBERS(BLOCKRNN_SET)
  BLOCKRNN_POINTER_NAMES(BLOCKRNN_SET_POINTER)
  return false;
}

Error NoSuch(std::string_view name) {
  static std::string message;
  message = "the call has no " + std::string(name);
  return message.c_str();
}

template <class Args>
Error Fill(const PlainCall& plain, int64_t* lengths, uint8_t* resets,
           Args* args, HostInterface* host, CallOptions* options) {
  for (int64_t n = 0; n < plain.numbers; ++n) {
    const std::string_view name = plain.number_names[n];
    const double value = plain.values[n];
    if (!SetNumber(name, value, args) && !SetNumber(name, value, host) &&
        !SetNumber(name, value, options)) {
      return NoSuch(name);
    }
  }
  for (int64_t n = 0; n < plain.pointers; ++n) {
    const std::string_view name = plain.pointer_names[n];
    if (!SetPointer(name, plain.data[n], args)) return NoSuch(name);
  }
  if (plain.resets != nullptr && !SetPointer("resets", resets, args)) {
    return NoSuch("resets");
  }
  if (plain.lengths == nullptr || SetPointer("lengths", lengths, args) ||
      SetPointer("shape.lengths", lengths, args)) {
    return nullptr;
  }
  return NoSuch("lengths");
}

// The function with activations that do nothing, of those that have one.
template <class Args>
struct Identity {
  static Error Run(const Args&, const HostInterface&) {
    return NoSuch("identity");
  }
};
template <class T>
struct Identity<GruCellForwardArgs<T>> {
  static constexpr auto Run = &GruForward<T, IdentityActivations>;
};
template <class T>
struct Identity<LstmCellForwardArgs<T>> {
  static constexpr auto Run = &LstmForward<T, IdentityActivations>;
};
template <class T>
struct Identity<SimpleRnnForwardArgs<T>>
    : SequenceFunction<SimpleRnnForwardCall<T, IdentityActivations>> {};
template <class T>
struct Identity<LstmSequenceForwardArgs<T>>
    : SequenceFunction<LstmSequenceForwardCall<T, IdentityActivations>> {};
template <class T>
struct Identity<GruSequenceForwardArgs<T>>
    : SequenceFunction<GruSequenceForwardCall<T, IdentityActivations>> {};
template <class T>
struct Identity<GruAfterSequenceForwardArgs<T>>
    : SequenceFunction<GruAfterSequenceForwardCall<T, IdentityActivations>> {};

// filled: as for float, with all members at the same places.
template <class Args, class Filled>
Error RunAs(const Filled& filled, const CallOptions& options,
            const HostInterface& host) {
  static_assert(sizeof(Args) == sizeof(Filled));
  Args args;
  std::memcpy(static_cast<void*>(&args), &filled, sizeof(args));
  return options.identity ? Identity<Args>::Run(args, host)
                          : RunAny(args, host);
}

// The arguments of an engine function, for elements of any type.
template <template <class T> class Args>
struct OfAnyType : Args<float> {
  Error Run(int64_t dtype, const CallOptions& options,
            const HostInterface& host) const {
    const Args<float>& filled = *this;
    switch (dtype) {
      case 0:
        return RunAs<Args<Eigen::half>>(filled, options, host);
      case 1:
        return RunAs<Args<Eigen::bfloat16>>(filled, options, host);
      case 2:
        return RunAs<Args<float>>(filled, options, host);
      case 3:
        return RunAs<Args<double>>(filled, options, host);
    }
    return "unknown type";
  }
};

struct Gemm : BlasGemm {
  Error Run(int64_t, const CallOptions& options,
            const HostInterface& host) const {
    for (int64_t n = 0; n < options.repeats; ++n) {
      if (Error error = host.blas->gemm(host.blas->context, *this, host)) {
        return error;
      }
    }
    return nullptr;
  }
};

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

// Returns when the device is done.
template <class Args>
Error RunCall(const PlainCall& plain) {
  Args args;
  HostInterface host;
  CallOptions options;
  // Overwritten once the call is queued, when nothing may read them any more.
  std::vector<int64_t> lengths(plain.lengths, plain.lengths + plain.rows);
  lengths.push_back(-1);  // so that there is memory without rows, too
  std::vector<uint8_t> resets(plain.resets, plain.resets + plain.reset_bytes);
  if (Error error =
          Fill(plain, lengths.data(), resets.data(), &args, &host, &options)) {
    return error;
  }
  Scratch scratch;
  scratch.calls_left = options.scratch_calls;
  scratch.alignment = static_cast<std::size_t>(options.alignment);
  if (Error error = TheStream(&scratch.stream)) return error;
  const CublasCall cublas(host.allow_tf32);
  host.context = &scratch;
  host.stream = scratch.stream;
  host.allocate = &Scratch::Allocate;
  host.persistent_kernels = &persistent_kernels;
  host.refused_kernels = &refused_kernels;
  host.blas = options.with_blas ? cublas.blas() : &kPlainBlas;
  // The previous copies and fills ran on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  const Error error = args.Run(plain.dtype, options, host);
  std::fill(lengths.begin(), lengths.end(), -1);
  std::fill(resets.begin(), resets.end(), 1);
  // Waits for the call's own stream only: work on another stream that nothing
  // waits for comes too late.
  const Error later = ToError(cudaStreamSynchronize(scratch.stream));
  return error != nullptr ? error : later;
}

// clang-format off
#define BLOCKRNN_FUNCTIONS(F)                                                  \
  F(GruCellForwardArgs) F(GruCellBackwardArgs) F(LstmCellForwardArgs)          \
  F(LstmCellBackwardArgs) F(SimpleRnnForwardArgs) F(SimpleRnnBackwardArgs)     \
  F(LstmSequenceForwardArgs) F(LstmSequenceBackwardArgs)                       \
  F(GruSequenceForwardArgs) F(GruSequenceBackwardArgs)                         \
  F(GruAfterSequenceForwardArgs) F(GruAfterSequenceBackwardArgs)               \
  F(LayerNormLstmForwardArgs) F(LayerNormLstmBackwardArgs)                     \
  F(LayerNormGruForwardArgs) F(LayerNormGruBackwardArgs)                       \
  F(RnnStackForwardArgs) F(RnnStackBackwardArgs)
// clang-format on

Error RunNamed(std::string_view function, const PlainCall& plain) {
#define BLOCKRNN_RUN(name) \
  if (function == #name) return RunCall<OfAnyType<name>>(plain);
  BLOCKRNN_FUNCTIONS(BLOCKRNN_RUN)
#undef BLOCKRNN_RUN
  if (function == "BlasGemm") return RunCall<Gemm>(plain);
  return NoSuch(function);
}

// Of a stack's call without its pointers; -1 if it is not to be called.
int64_t ReserveBytes(const PlainCall& plain) {
  OfAnyType<RnnStackForwardArgs> args;
  HostInterface host;
  CallOptions options;
  if (Fill(plain, nullptr, nullptr, &args, &host, &options)) return -1;
  constexpr int64_t kBytes[] = {2, 2, 4, 8};
  const int64_t rows = ValidRows(args.steps, args.batch, plain.lengths);
  return ReserveLayout::Bytes(args.geometry, args.steps, args.batch, rows,
                              kBytes[plain.dtype], args.dropout > 0)
      .value_or(-1);
}

}  // namespace
}  // namespace blockrnn::cuda

using blockrnn::cuda::Error;
using blockrnn::cuda::ToError;

EXPORT int blockrnn_multiprocessors() {
  int count = 0;
  static_cast<void>(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

// The maximum shared memory of a block.
EXPORT int blockrnn_shared_bytes() {
  int bytes = 0;
  static_cast<void>(cudaDeviceGetAttribute(
      &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  return bytes;
}

// Blocks of steps that ran as a persistent kernel, in all calls so far.
EXPORT int64_t blockrnn_persistent_kernels() {
  return blockrnn::cuda::persistent_kernels;
}

// Launches of such kernels that were refused, in all calls so far.
EXPORT int64_t blockrnn_refused_kernels() {
  return blockrnn::cuda::refused_kernels;
}

EXPORT void blockrnn_fill_scratch(int fills) {
  blockrnn::cuda::fills_scratch = fills != 0;
}

EXPORT Error blockrnn_allocate(std::size_t bytes, void** device) {
  *device = nullptr;  // as TensorFlow has it for tensors without elements
  if (bytes == 0) return nullptr;
  return ToError(cudaMalloc(device, bytes));
}

EXPORT Error blockrnn_free(void* device) { return ToError(cudaFree(device)); }

EXPORT Error blockrnn_to_device(void* device, const void* host,
                                std::size_t bytes) {
  return ToError(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

EXPORT Error blockrnn_to_host(void* host, const void* device,
                              std::size_t bytes) {
  blockrnn::cuda::HostInterface the_host;
  cudaStream_t stream;
  if (Error error = blockrnn::cuda::TheStream(&stream)) return error;
  the_host.stream = stream;
  // The memory may have been written on another stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  return blockrnn::cuda::CopyToHost(device, bytes, host, the_host);
}

EXPORT Error blockrnn_fill_zero(void* device, std::size_t bytes) {
  blockrnn::cuda::HostInterface host;
  cudaStream_t stream;
  if (Error error = blockrnn::cuda::TheStream(&stream)) return error;
  host.stream = stream;
  // The memory was filled on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  if (Error error = blockrnn::cuda::FillZero(device, bytes, host)) return error;
  return ToError(cudaStreamSynchronize(stream));
}

// function: the name of its argument struct.
EXPORT Error blockrnn_call(const char* function, const PlainCall* plain) {
  return blockrnn::cuda::RunNamed(function, *plain);
}

EXPORT int64_t blockrnn_reserve_bytes(const PlainCall* plain) {
  return blockrnn::cuda::ReserveBytes(*plain);
}

// The cuBLAS that was found, or why there is none.
EXPORT const char* blockrnn_blas_path() {
  return blockrnn::cuda::FindCublas().path;
}
EXPORT const char* blockrnn_blas_problem() {
  return blockrnn::cuda::FindCublas().problem;
}
