// Defines the C functions through which the checks in tests/gpu call the CUDA
// engine: device memory, single calls, and errors as text (null for success).
// Compiled by nvcc for a GPU, or by a host compiler for the emulation.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cells/gru_block_cell.cuh"
#include "cc/kernels/cuda/cells/lstm_block_cell.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "tests/gpu/scratch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace blockrnn::cuda {
namespace {

// One value for each type of the engine, in the order of device_engine.py.
enum class DType : int { kHalf, kBfloat16, kFloat, kDouble };

enum class Function : int {
  kGruForward,
  kGruBackward,
  kLstmForward,
  kLstmBackward,
  kGruForwardIdentity,
  kLstmForwardIdentity,
};

// The arguments of a call: pointers in the order of the fields.
struct Call {
  Function function;
  CellDims dims;
  LstmOptions options;
  void* const* pointers;

  template <class T>
  void Next(T** field) {
    *field = static_cast<T*>(*pointers++);
  }
  template <class T>
  void Next(const T** field) {
    *field = static_cast<const T*>(*pointers++);
  }
  template <class... Fields>
  void Fill(Fields*... fields) {
    (Next(fields), ...);
  }
};

template <class T>
GruCellForwardArgs<T> GruForwardArgs(Call call) {
  GruCellForwardArgs<T> a;
  a.dims = call.dims;
  call.Fill(&a.x, &a.h_prev, &a.w_ru, &a.w_c, &a.b_ru, &a.b_c);
  call.Fill(&a.r, &a.u, &a.c, &a.h);
  return a;
}

template <class T>
GruCellBackwardArgs<T> GruBackwardArgs(Call call) {
  GruCellBackwardArgs<T> a;
  a.dims = call.dims;
  call.Fill(&a.h_prev, &a.w_ru, &a.w_c, &a.r, &a.u, &a.c, &a.d_h);
  call.Fill(&a.d_x, &a.d_h_prev, &a.d_c_bar, &a.d_r_bar_u_bar);
  return a;
}

template <class T>
LstmCellForwardArgs<T> LstmForwardArgs(Call call) {
  LstmCellForwardArgs<T> a;
  a.dims = call.dims;
  a.options = call.options;
  call.Fill(&a.x, &a.cs_prev, &a.h_prev, &a.w, &a.wci, &a.wcf, &a.wco, &a.b);
  call.Fill(&a.i, &a.cs, &a.f, &a.o, &a.ci, &a.co, &a.h);
  return a;
}

template <class T>
LstmCellBackwardArgs<T> LstmBackwardArgs(Call call) {
  LstmCellBackwardArgs<T> a;
  a.dims = call.dims;
  a.options = call.options;
  call.Fill(&a.cs_prev, &a.wci, &a.wcf, &a.wco);
  call.Fill(&a.i, &a.cs, &a.f, &a.o, &a.ci, &a.co, &a.cs_grad, &a.h_grad);
  call.Fill(&a.cs_prev_grad, &a.dicfo, &a.wci_grad, &a.wcf_grad, &a.wco_grad);
  return a;
}

template <class T>
Error RunTyped(const Call& call, const HostInterface& host) {
  switch (call.function) {
    case Function::kGruForward:
      return Run(GruForwardArgs<T>(call), host);
    case Function::kGruBackward:
      return Run(GruBackwardArgs<T>(call), host);
    case Function::kLstmForward:
      return Run(LstmForwardArgs<T>(call), host);
    case Function::kLstmBackward:
      return Run(LstmBackwardArgs<T>(call), host);
    case Function::kGruForwardIdentity:
      return GruForward<T, IdentityActivations>(GruForwardArgs<T>(call), host);
    case Function::kLstmForwardIdentity:
      return LstmForward<T, IdentityActivations>(LstmForwardArgs<T>(call),
                                                 host);
  }
  return "unknown function";
}

Error RunCall(DType dtype, const Call& call, const HostInterface& host) {
  switch (dtype) {
    case DType::kHalf:
      return RunTyped<Eigen::half>(call, host);
    case DType::kBfloat16:
      return RunTyped<Eigen::bfloat16>(call, host);
    case DType::kFloat:
      return RunTyped<float>(call, host);
    case DType::kDouble:
      return RunTyped<double>(call, host);
  }
  return "unknown type";
}

// A stream that the default stream does not wait for, like TensorFlow's.
Error TheStream(void** stream) {
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
using blockrnn::cuda::ToError;

// 0 if CUDA finds no driver or no device.
EXPORT int blockrnn_device_count() {
  int count = 0;
  return ToError(cudaGetDeviceCount(&count)) == nullptr ? count : 0;
}

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
  if (Error error = blockrnn::cuda::TheStream(&the_host.stream)) return error;
  // The memory may have been written on another stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  return blockrnn::cuda::CopyToHost(device, bytes, host, the_host);
}

EXPORT Error blockrnn_fill_zero(void* device, std::size_t bytes) {
  blockrnn::cuda::HostInterface host;
  if (Error error = blockrnn::cuda::TheStream(&host.stream)) return error;
  // The memory was filled on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  if (Error error = blockrnn::cuda::FillZero(device, bytes, host)) return error;
  return ToError(cudaStreamSynchronize(static_cast<cudaStream_t>(host.stream)));
}

// dims: B, I, H. pointers: to device memory, in the order of the argument
// struct's fields. scratch_calls: allocations that succeed.
EXPORT Error blockrnn_call(int function, int dtype, const int64_t* dims,
                           const blockrnn::LstmOptions* options,
                           void* const* pointers, int64_t scratch_calls) {
  using blockrnn::cuda::Call;
  blockrnn::cuda::Scratch scratch;
  scratch.calls_left = scratch_calls;
  blockrnn::cuda::HostInterface host;
  host.context = &scratch;
  host.allocate = &blockrnn::cuda::Scratch::Allocate;
  if (Error error = blockrnn::cuda::TheStream(&host.stream)) return error;
  scratch.stream = static_cast<cudaStream_t>(host.stream);
  // The previous copies and fills ran on the default stream.
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  const Call call = {static_cast<blockrnn::cuda::Function>(function),
                     {dims[0], dims[1], dims[2]},
                     *options,
                     pointers};
  const Error error = blockrnn::cuda::RunCall(
      static_cast<blockrnn::cuda::DType>(dtype), call, host);
  const Error later =
      ToError(cudaStreamSynchronize(static_cast<cudaStream_t>(host.stream)));
  return error != nullptr ? error : later;
}
