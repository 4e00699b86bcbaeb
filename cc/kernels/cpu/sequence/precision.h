// Implements the choice of a forward pass by the precision of its weights.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_

#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/panel_memory.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"

namespace blockrnn::cpu {

// Calls f(an element) of the panels that weights of storage type T have in a
// precision. Only float32 has others than that of its storage.
template <class T, class F>
auto WithPanelElement(Precision precision, const F& f) {
  if constexpr (std::is_same_v<T, float>) {
    if (precision == Precision::kBFloat16) return f(BFloat16Element());
    if (precision == Precision::kInt8) return f(Int8Quad());
  }
  return f(PanelElement<T>());
}

// Cell: of a storage type, activations and the elements of panels.
template <template <class, class, class> class Cell, class T,
          class Activations, class Args>
Status ForwardInPrecision(const Args& args, const Executor& executor) {
  const Precision precision = args.frozen == nullptr ? Precision::kStorage
                                                     : args.frozen->precision;
  return WithPanelElement<T>(precision, [&](auto element) {
    using P = decltype(element);
    return SequenceForward<Cell<T, Activations, P>>(args, executor).Run();
  });
}

// Panels: a cell's struct of them, of a storage type and their elements.
template <template <class, class> class Panels, class T, class Args>
Status FreezeInPrecision(const Args& args, const Executor& executor) {
  PanelMemory memory(executor, args.packed);
  WithPanelElement<T>(args.precision, [&](auto element) {
    const Panels<T, decltype(element)> packed(args.layer, &memory, Packing());
  });
  *args.bytes = memory.bytes();
  return Status::kOk;
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_PRECISION_H_
