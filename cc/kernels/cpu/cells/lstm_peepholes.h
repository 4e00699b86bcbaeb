// Loads the peepholes of an LSTM, in code that is compiled with and without.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_

#include <cstdint>
#include <type_traits>

#include "cc/core/lstm_cell.h"
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

// Of the units from `unit` on; zeros without peepholes.
template <bool kPeephole, class C, class Args, class Lanes>
EIGEN_ALWAYS_INLINE LstmPeepholes<Vec<C>> LoadPeepholes(const Args& args,
                                                        int64_t unit,
                                                        Lanes lanes) {
  LstmPeepholes<Vec<C>> out = {Vec<C>(0), Vec<C>(0), Vec<C>(0)};
  if constexpr (kPeephole) {
    out.wci = Load<C>(args.wci + unit, lanes);
    out.wcf = Load<C>(args.wcf + unit, lanes);
    out.wco = Load<C>(args.wco + unit, lanes);
  }
  return out;
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_
