// The engine for bfloat16.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template CellFunctions<Eigen::bfloat16> MakeCellFunctions<Eigen::bfloat16>();

}  // namespace blockrnn::cpu
