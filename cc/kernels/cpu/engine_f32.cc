// The engine for float.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

BLOCKRNN_OTHER_ACTIVATIONS()

template EngineFunctions<float> MakeEngineFunctions<float>();

}  // namespace blockrnn::cpu
