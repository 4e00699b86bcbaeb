// Implements the choice of a forward pass by the precision of its weights.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_

#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// For frozen weights of float in another precision than its own, with the
// standard activations: engine_low_precision.cc.
template <class Args>
Status LowPrecisionForward(const Args& args, const Executor& executor);
template <class Args>
Status LowPrecisionFreeze(const Args& args, const Executor& executor);

// Cell: of a storage type, activations and the elements of panels.
template <template <class, class, class> class Cell, class T, class Activations,
          class Args>
Status ForwardInPrecision(const Args& args, const Executor& executor) {
  if constexpr (std::is_same_v<T, float>) {
    if (args.frozen != nullptr &&
        args.frozen->precision != Precision::kStorage) {
      return LowPrecisionForward(args, executor);
    }
  }
  return SequenceForward<Cell<T, Activations, PanelElement<T>>>(args, executor)
      .Run();
}

// Panels: a cell's struct of its weights.
template <class Panels, class Args>
Status FreezeIn(const Args& args, const Executor& executor) {
  PanelMemory memory(executor, args.packed);
  const Panels packed(args.layer, &memory, Packing());
  *args.bytes = memory.bytes();
  return Status::kOk;
}

template <template <class, class> class Panels, class T, class Args>
Status FreezeInPrecision(const Args& args, const Executor& executor) {
  if constexpr (std::is_same_v<T, float>) {
    if (args.precision != Precision::kStorage) {
      return LowPrecisionFreeze(args, executor);
    }
  }
  return FreezeIn<Panels<T, PanelElement<T>>>(args, executor);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_
