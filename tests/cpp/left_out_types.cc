// Defines empty function tables for the types that are not under test; a call
// through one crashes.

#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/storage.h"

namespace blockrnn::cpu {

template <class T>
EngineFunctions<T> MakeEngineFunctions();

#if !defined(BLOCKRNN_TEST_F16)
template <>
EngineFunctions<Eigen::half> MakeEngineFunctions() {
  return {};
}
#endif

#if !defined(BLOCKRNN_TEST_BF16)
template <>
EngineFunctions<Eigen::bfloat16> MakeEngineFunctions() {
  return {};
}
#endif

#if !defined(BLOCKRNN_TEST_F32)
template <>
EngineFunctions<float> MakeEngineFunctions() {
  return {};
}
#endif

#if !defined(BLOCKRNN_TEST_F64)
template <>
EngineFunctions<double> MakeEngineFunctions() {
  return {};
}
#endif

}  // namespace blockrnn::cpu
