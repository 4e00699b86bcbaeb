// The table that the engine's library exports.

#include "cc/kernels/cpu/engine.h"

#include "cc/core/engine_version.h"
#include "cc/kernels/cpu/engine_functions.h"

#if !defined(BLOCKRNN_ISA)
#error \
    "define BLOCKRNN_ISA as the instruction set's name, for example \"generic\""
#endif

extern "C" __attribute__((visibility("default"))) const blockrnn::cpu::Engine*
blockrnn_cpu_engine() {
  using blockrnn::cpu::MakeEngineFunctions;
  static const blockrnn::cpu::Engine engine = {
      blockrnn::kEngineVersion<blockrnn::cpu::Engine>,
      BLOCKRNN_ISA,
      MakeEngineFunctions<Eigen::half>(),
      MakeEngineFunctions<Eigen::bfloat16>(),
      MakeEngineFunctions<float>(),
      MakeEngineFunctions<double>(),
  };
  return &engine;
}
