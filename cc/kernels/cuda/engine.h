// Declares the interface of the CUDA engine: a table of functions, which a
// library of its own exports (libblockrnn_cuda<major version of CUDA>.so).
// Includes neither TensorFlow nor CUDA, so that any host compiler can read it
// and the engine can be built without TensorFlow. All work is queued on the
// caller's stream; nothing but CopyToHost waits for the device.

#ifndef BLOCKRNN_KERNELS_CUDA_ENGINE_H_
#define BLOCKRNN_KERNELS_CUDA_ENGINE_H_

#include <cstddef>
#include <cstdint>

#include "cc/core/engine_args.h"

namespace blockrnn::cuda {

// nullptr for success, else a static message. Nothing here throws.
using Error = const char*;

struct Blas;  // cc/kernels/cuda/blas/blas.cuh

// The stream, memory and libraries that an engine call uses.
struct HostInterface {
  void* context = nullptr;
  void* stream = nullptr;  // a cudaStream_t; device memory below belongs to it
  // Returns that many bytes of device scratch, aligned to 256, which must stay
  // valid until the work queued on the stream is done; nullptr if out of
  // memory.
  void* (*allocate)(void* context, std::size_t bytes) noexcept = nullptr;
  // Whether persistent kernels may be used, whose blocks must all be resident
  // at once (cooperative launches).
  bool persistent = true;
  // Calls that share each such kernel: each has only its share of the
  // multiprocessors.
  int concurrent_calls = 1;
  // Large GEMMs. The functions of the table set it themselves, to cuBLAS.
  const Blas* blas = nullptr;
  // The inputs of float32 GEMMs may be rounded to TF32's 10 bits of mantissa:
  // in the persistent kernels and, of the table's functions, by cuBLAS.
  bool allow_tf32 = false;
  // Approximate scratch for a block of steps. More of it makes the large GEMMs,
  // of which each block has a few, larger.
  std::size_t block_bytes = std::size_t{128} << 20;
  // Multiply-adds from which on the GEMM of a step is left to the BLAS, where
  // its launches cost less than it gains; half as many of TF32, which it has
  // tensor cores for and StepKernel has not. Measured on an H200.
  std::int64_t blas_step_work = std::int64_t{1} << 26;
  // If not nullptr, counts the persistent kernels that were launched.
  std::int64_t* persistent_kernels = nullptr;
  // If not nullptr, counts those whose launch was refused, for lack of room.
  std::int64_t* refused_kernels = nullptr;
};

// The engine's functions within its library, each identified by the struct of
// its arguments (cc/core/engine_args.h). The element type is float, double,
// Eigen::half or Eigen::bfloat16; all pointers are to device memory, except for
// the lengths of rows, which are in host memory and need not outlive the call.
// A backward call has what forward saved; one with spans goes through RunAny
// (cc/kernels/cuda/sequence/calls.cuh).
template <class Args>
Error Run(const Args& args, const HostInterface& host);
template <class T>
Error Run(const RnnStackForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const RnnStackBackwardArgs<T>& args, const HostInterface& host);

// Runs both directions of a layer of a stack in common launches for their
// steps, each on half of the device that `host` has, if that is large enough;
// else sets *ran to false and queues nothing. Both have the same shape, but for
// the direction, and the same lengths.
template <class Args>
Error RunDirections(const Args& first, const Args& second,
                    const HostInterface& host, bool* ran);

// Sets `bytes` bytes of device memory to zero.
Error FillZero(void* device, std::size_t bytes,
               const HostInterface& host) noexcept;
// Copies `bytes` bytes within device memory.
Error Copy(const void* from, std::size_t bytes, void* to,
           const HostInterface& host) noexcept;
// Copies `bytes` bytes to host memory: the only function that waits for the
// stream.
Error CopyToHost(const void* from, std::size_t bytes, void* to,
                 const HostInterface& host) noexcept;

// The Error when HostInterface::allocate returns nullptr.
inline constexpr char kOutOfMemory[] = "out of device memory";
// The Error when the engine itself has no memory.
inline constexpr char kOutOfHostMemory[] = "out of host memory";

// Strings that live as long as the process; one of the two is nullptr.
struct CublasFound {
  const char* path = nullptr;     // of the library
  const char* problem = nullptr;  // why there is none
};

// One function of the table.
template <class Args>
struct EngineFunction {
  Error (*run)(const Args& args, const HostInterface& host) noexcept;
};

// The functions for storage type T; Run(args, host) calls the one that takes
// these arguments.
template <class T>
using EngineFunctions = FunctionTable<EngineFunction, T, EngineArgs>;

struct Engine {
  using Host = HostInterface;
  using Args = EngineArgs;

  std::uint64_t version;  // cc/core/engine_version.h
  EngineFunctions<Eigen::half> f16;
  EngineFunctions<Eigen::bfloat16> bf16;
  EngineFunctions<float> f32;
  EngineFunctions<double> f64;
  Error (*fill_zero)(void* device, std::size_t bytes,
                     const HostInterface& host) noexcept;
  Error (*copy)(const void* from, std::size_t bytes, void* to,
                const HostInterface& host) noexcept;
  Error (*copy_to_host)(const void* from, std::size_t bytes, void* to,
                        const HostInterface& host) noexcept;
  CublasFound (*find_cublas)() noexcept;
};

// The one exported symbol: extern "C" const Engine* blockrnn_cuda_engine().
inline constexpr char kEngineSymbol[] = "blockrnn_cuda_engine";

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_ENGINE_H_
