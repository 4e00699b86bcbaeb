// Defines how the kernels of an LSTM read its arguments: the gates in the order
// of the weights, the cell state and its gradient, the peephole weights and the
// clip. Neither of the last two is a template argument: that would compile four
// kernels instead of one, whose time is its GEMM's.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_COMMON_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_COMMON_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

static_assert(kLstmIcfo.i == kLstmIfco.i && kLstmIcfo.o == kLstmIfco.o);

// Selected, not indexed: the gates stay in registers. i is the first and o the
// last one in both layouts.
template <class C>
__device__ __forceinline__ LstmPreActivations<C> SelectGates(
    const LstmGateLayout& layout, const C (&bars)[kLstmGates]) {
  const bool icfo = layout.ci == kLstmIcfo.ci;
  LstmPreActivations<C> bar;
  bar.i_bar = bars[kLstmIcfo.i];
  bar.ci_bar = icfo ? bars[kLstmIcfo.ci] : bars[kLstmIfco.ci];
  bar.f_bar = icfo ? bars[kLstmIcfo.f] : bars[kLstmIfco.f];
  bar.o_bar = bars[kLstmIcfo.o];
  return bar;
}

// Reads nothing without peepholes.
template <class Args>
__device__ __forceinline__ auto LoadPeepholes(const Args& args, int64_t unit,
                                              bool use_peephole) {
  LstmPeepholes<decltype(Load(args.wci, unit))> out = {0, 0, 0};
  if (use_peephole) {
    out.wci = Load(args.wci, unit);
    out.wcf = Load(args.wcf, unit);
    out.wco = Load(args.wco, unit);
  }
  return out;
}

// The bound of the cell state: infinity if it is not clipped.
template <class C>
C CellClip(const LstmOptions& options) {
  const C bound = static_cast<C>(options.cell_clip);
  return bound > 0  // false for NaN
             ? bound
             : std::numeric_limits<C>::infinity();
}

// The cell state before a step, as backward reads it.
template <class Args>
__device__ __forceinline__ auto PreviousCs(const Args& args,
                                           const RowOrder& rows, int64_t step,
                                           int64_t b, int64_t unit) {
  using C = decltype(Load(args.cs_prev, 0));
  const int64_t units = args.shape.units;
  if (step > 0) return Load(args.cs, rows.SavedRow(step - 1, b) * units + unit);
  const int64_t row = rows.FirstStateRow(b);
  return row < 0 ? C(0) : Load(args.cs_prev, row * units + unit);
}

// The gradient of the cell state after a step: `later`, from the next step, and
// its own.
template <class Args, class C>
__device__ __forceinline__ C CsGrad(const Args& args, const StepRow& row,
                                    int64_t unit, C later) {
  if (args.cs_grad == nullptr) return later;
  return later + Load(args.cs_grad, row.memory * args.shape.units + unit);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_COMMON_CUH_
