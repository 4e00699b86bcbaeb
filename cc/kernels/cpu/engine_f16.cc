// The engine for half.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template EngineFunctions<Eigen::half> MakeEngineFunctions<Eigen::half>();

}  // namespace blockrnn::cpu
