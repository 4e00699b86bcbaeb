// Tables of no functions for the types that are not under test: a call of one
// crashes.

#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/storage.h"

namespace blockrnn::cpu {

template <class T>
CellFunctions<T> MakeCellFunctions();

#if defined(BLOCKRNN_FLOAT_ONLY)
template <>
CellFunctions<Eigen::bfloat16> MakeCellFunctions() {
  return {};
}
#endif

#if defined(BLOCKRNN_FLOAT_ONLY) || defined(BLOCKRNN_FLOAT_AND_BFLOAT16)
template <>
CellFunctions<Eigen::half> MakeCellFunctions() {
  return {};
}

template <>
CellFunctions<double> MakeCellFunctions() {
  return {};
}
#endif

}  // namespace blockrnn::cpu
