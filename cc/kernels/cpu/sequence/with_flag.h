// Implements branches that are taken outside of a loop.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_WITH_FLAG_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_WITH_FLAG_H_

#include <type_traits>

#include "cc/kernels/cpu/gemm/simd.h"

namespace blockrnn::cpu {

// Calls f with a std::bool_constant. The branch is taken for each tile or run
// of units: a loop over them is compiled for either value, and nothing around
// it is.
template <class F>
EIGEN_ALWAYS_INLINE void WithFlag(bool flag, const F& f) {
  if (flag) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_WITH_FLAG_H_
