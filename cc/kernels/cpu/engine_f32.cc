// The engine for float.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template CellFunctions<float> MakeCellFunctions<float>();

}  // namespace blockrnn::cpu
