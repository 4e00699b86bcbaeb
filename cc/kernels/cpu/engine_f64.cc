// The engine for double.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template CellFunctions<double> MakeCellFunctions<double>();

}  // namespace blockrnn::cpu
