// Defines the interface between the CPU engine and its caller: a table of
// functions, and the callbacks through which the caller provides threads,
// memory and cancellation. The engine is compiled once per instruction set into
// a library of its own, which exports nothing but kEngineSymbol; so no inline
// function of one instruction set can be linked in place of another's.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_H_

#include <cstddef>
#include <cstdint>

#include "cc/core/engine_args.h"

namespace blockrnn::cpu {

enum class Status : int {
  kOk = 0,
  // HostInterface::allocate gave nothing; the outputs are undefined.
  kOutOfMemory = 1,
  // HostInterface::cancelled said so; the outputs are undefined.
  kCancelled = 2,
};

// What the caller provides to an engine call. Any of the engine's threads may
// call any of the functions, several at a time. None of them throws: an
// exception would leave a frame that other threads still read. Results have the
// same bits whichever thread does what, if all threads round alike and all, or
// none, flush subnormal numbers to zero.
struct HostInterface {
  void* context = nullptr;
  // Threads worth using, the calling one included.
  int num_threads = 1;
  // Queues run(arg) on another thread. It may start late, even after the engine
  // call has returned, but runs once: where it cannot be queued, `schedule`
  // runs it itself. A host may do so when its pool throws: Eigen's, which is
  // that of TensorFlow, XLA and sessions, allocates the task before it queues
  // it, so it has queued nothing then. Not called when num_threads is 1.
  void (*schedule)(void* context, void (*run)(void* arg) noexcept,
                   void* arg) noexcept = nullptr;
  // Scratch of that many bytes, aligned to 64, which the caller frees after the
  // call; nullptr when there is no memory.
  void* (*allocate)(void* context, std::size_t bytes) noexcept = nullptr;
  // Whether to give up early; may be nullptr.
  bool (*cancelled)(void* context) noexcept = nullptr;
  // Whether the threads behind `schedule` are spinning, so that one begins
  // within a microsecond or so; one that sleeps takes tens of them.
  bool workers_awake = false;
};

// One function of an engine.
template <class Args>
struct EngineFunction {
  Status (*run)(const Args& args, const HostInterface& host) noexcept;
};

// The functions for storage type T; Run(args, host) calls the one that takes
// these arguments.
template <class T>
using EngineFunctions = FunctionTable<EngineFunction, T, CpuEngineArgs>;

struct Engine {
  using Host = HostInterface;
  using Args = CpuEngineArgs;

  std::uint64_t version;  // cc/core/engine_version.h
  const char* isa;        // "generic", "x86-64-v2", … (engine.bzl)
  EngineFunctions<Eigen::half> f16;
  EngineFunctions<Eigen::bfloat16> bf16;
  EngineFunctions<float> f32;
  EngineFunctions<double> f64;
};

// The one exported symbol: extern "C" const Engine* blockrnn_cpu_engine().
inline constexpr char kEngineSymbol[] = "blockrnn_cpu_engine";

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_H_
