// The engine for half.

#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::cpu {

template CellFunctions<Eigen::half> MakeCellFunctions<Eigen::half>();

}  // namespace blockrnn::cpu
