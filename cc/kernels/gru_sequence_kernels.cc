// Implements the kernels of GRUSequence, GRUAfterSequence and their gradients.

#include <string>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

template <class T>
struct GruSequence : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUSequence");
};

template <class T>
struct GruSequenceGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUSequenceGrad");
};

// The attr of the ops with reset after.
struct GateOrder : OpMapping {
  explicit GateOrder(KernelNode* node) {
    std::string order;
    node->GetAttr("gate_order", &order);
    layout = order == "urc" ? kGruUrc : kGruRuc;
  }

  template <class Args>
  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->layout = layout;
  }

  GruAfterGateLayout layout = kGruRuc;
};

template <class T>
struct GruAfterSequence : GateOrder {
  using GateOrder::GateOrder;
  using Args = GruAfterSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUAfterSequence");
};

template <class T>
struct GruAfterSequenceGrad : GateOrder {
  using GateOrder::GateOrder;
  using Args = GruAfterSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUAfterSequenceGrad");
};

namespace {

[[maybe_unused]] const bool gru_sequence_registered =
    RegisterEngineKernels<GruSequence, GruSequenceGrad, GruAfterSequence,
                          GruAfterSequenceGrad>();

}  // namespace
}  // namespace blockrnn
