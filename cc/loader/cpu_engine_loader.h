// Declares the choice of the CPU engine: which of the libraries beside this one
// (libblockrnn_cpu_<isa>.so, one per instruction set) is opened. The best one
// that the processor runs, unless the environment variable TF_BLOCKRNN_CPU_ISA
// names another. Used by the kernels of the ops and by sessions, each with a
// copy of its own.

#ifndef BLOCKRNN_LOADER_CPU_ENGINE_LOADER_H_
#define BLOCKRNN_LOADER_CPU_ENGINE_LOADER_H_

#include <string>

#include "cc/kernels/cpu/engine.h"
#include "cc/loader/open_engine.h"

namespace blockrnn {

// The engine, opened on the first call; later calls return the same.
const OpenedEngine<cpu::Engine>& CpuEngine();

}  // namespace blockrnn

#endif  // BLOCKRNN_LOADER_CPU_ENGINE_LOADER_H_
