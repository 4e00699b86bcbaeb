// The engine for double.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template EngineFunctions<double> MakeEngineFunctions<double>();

}  // namespace blockrnn::cpu
