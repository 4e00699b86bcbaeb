// Owns the border between the CPU engine and whoever calls it: a table of
// functions, and what the engine borrows from its host. The engine is compiled
// once per instruction set into a library of its own, which exports nothing but
// kEngineSymbol; so no inline function of one instruction set can be linked in
// place of another's.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_H_

#include <cstddef>

#include "cc/core/cell_args.h"
#include "cc/core/rnn_args.h"
#include "cc/core/sequence_args.h"

namespace Eigen {
struct half;
struct bfloat16;
}  // namespace Eigen

namespace blockrnn::cpu {

enum class Status : int {
  kOk = 0,
  kOutOfMemory = 1,  // Host::allocate gave nothing; the outputs are undefined
  kCancelled = 2,    // Host::cancelled said so; the outputs are undefined
};

// What an engine call borrows. Any of the engine's threads may call any of the
// functions, several at a time: the directions of a layer run side by side, and
// each takes threads and scratch of its own. Bits are the same whichever thread
// does what if all round alike and all, or none, take subnormal numbers for
// zero.
struct Host {
  void* context = nullptr;
  // Threads worth using, the calling one counted.
  int num_threads = 1;
  // Queues run(arg) on another thread. It may start late, even after the engine
  // call has returned, but runs once. Not called when num_threads is 1.
  void (*schedule)(void* context, void (*run)(void* arg), void* arg) = nullptr;
  // Scratch of that many bytes, aligned to 64, which the host frees after the
  // call; nullptr when there is none to be had.
  void* (*allocate)(void* context, std::size_t bytes) = nullptr;
  // Whether to give up early; may be nullptr.
  bool (*cancelled)(void* context) = nullptr;
  // Sequences that share the caches at a time, that of the call counted.
  int sequences_at_once = 1;
};

template <class T>
struct EngineFunctions {
  Status (*gru_cell_forward)(const GruCellForwardArgs<T>&, const Host&);
  Status (*gru_cell_backward)(const GruCellBackwardArgs<T>&, const Host&);
  Status (*lstm_cell_forward)(const LstmCellForwardArgs<T>&, const Host&);
  Status (*lstm_cell_backward)(const LstmCellBackwardArgs<T>&, const Host&);
  Status (*gru_sequence_forward)(const GruSequenceForwardArgs<T>&, const Host&);
  Status (*gru_sequence_backward)(const GruSequenceBackwardArgs<T>&,
                                  const Host&);
  Status (*gru_after_sequence_forward)(const GruAfterSequenceForwardArgs<T>&,
                                       const Host&);
  Status (*gru_after_sequence_backward)(const GruAfterSequenceBackwardArgs<T>&,
                                        const Host&);
  Status (*lstm_sequence_forward)(const LstmSequenceForwardArgs<T>&,
                                  const Host&);
  Status (*lstm_sequence_backward)(const LstmSequenceBackwardArgs<T>&,
                                   const Host&);
  Status (*rnn_sequence_forward)(const RnnSequenceForwardArgs<T>&, const Host&);
  Status (*rnn_sequence_backward)(const RnnSequenceBackwardArgs<T>&,
                                  const Host&);
  Status (*rnn_forward)(const RnnForwardArgs<T>&, const Host&);
  Status (*rnn_backward)(const RnnBackwardArgs<T>&, const Host&);
};

// Raised with every change to this file or to the argument structs.
inline constexpr int kEngineVersion = 5;

struct Engine {
  int version;
  const char* isa;  // "generic", "x86-64-v2", … (engine.bzl)
  EngineFunctions<Eigen::half> f16;
  EngineFunctions<Eigen::bfloat16> bf16;
  EngineFunctions<float> f32;
  EngineFunctions<double> f64;
};

// The one exported symbol: extern "C" const Engine* blockrnn_cpu_engine().
inline constexpr char kEngineSymbol[] = "blockrnn_cpu_engine";
using EngineFunction = const Engine* (*)();

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_H_
