// Loads the peepholes of an LSTM, in code that is compiled with and without.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_

#include <cstdint>

#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/gemm/simd.h"

namespace blockrnn::cpu {

// Of the units from `unit` on; zeros without peepholes, at compile or run time.
template <bool kPeephole, class C, class Args, class Lanes>
EIGEN_ALWAYS_INLINE LstmPeepholes<Vec<C>> LoadPeepholes(const Args& args,
                                                        int64_t unit,
                                                        Lanes lanes,
                                                        bool use = true) {
  LstmPeepholes<Vec<C>> out = {Vec<C>(0), Vec<C>(0), Vec<C>(0)};
  if (kPeephole && use) {
    out.wci = Load<C>(args.wci + unit, lanes);
    out.wcf = Load<C>(args.wcf + unit, lanes);
    out.wco = Load<C>(args.wco + unit, lanes);
  }
  return out;
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_PEEPHOLES_H_
