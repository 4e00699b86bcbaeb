// The engine for bfloat16.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template EngineFunctions<Eigen::bfloat16>
MakeEngineFunctions<Eigen::bfloat16>();

}  // namespace blockrnn::cpu
