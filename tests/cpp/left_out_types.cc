// Tables of no functions for the types that are not under test: a call of one
// crashes.

#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/storage.h"

namespace blockrnn::cpu {

template <class T>
EngineFunctions<T> MakeEngineFunctions();

#if defined(BLOCKRNN_FLOAT_ONLY)
template <>
EngineFunctions<Eigen::bfloat16> MakeEngineFunctions() {
  return {};
}
#endif

#if defined(BLOCKRNN_FLOAT_ONLY) || defined(BLOCKRNN_FLOAT_AND_BFLOAT16)
template <>
EngineFunctions<Eigen::half> MakeEngineFunctions() {
  return {};
}

template <>
EngineFunctions<double> MakeEngineFunctions() {
  return {};
}
#endif

}  // namespace blockrnn::cpu
