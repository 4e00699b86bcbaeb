// Implements the kernels of LayerNormGRUSequence and its gradients.

#include <string>

#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/ops/contract_rules.h"

namespace blockrnn {

struct LayerNormGruMapping : OpMapping {
  explicit LayerNormGruMapping(KernelNode* node) {
    std::string order;
    node->GetAttr("gate_order", &order);
    layout = order == "urc" ? kGruUrc : kGruRuc;
    node->GetAttr("epsilon", &epsilon);
    node->Check(CheckEpsilon(node->op(), epsilon));
  }

  template <class Args>
  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->layout = layout;
    args->epsilon = epsilon;
  }

  GruAfterGateLayout layout = kGruRuc;
  float epsilon = 0;
};

template <class T>
struct LayerNormGruSequence : LayerNormGruMapping {
  using LayerNormGruMapping::LayerNormGruMapping;
  using Args = LayerNormGruForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LayerNormGRUSequence");
};

template <class T>
struct LayerNormGruSequenceGrad : LayerNormGruMapping {
  using LayerNormGruMapping::LayerNormGruMapping;
  using Args = LayerNormGruBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LayerNormGRUSequenceGrad");
};

namespace {

[[maybe_unused]] const bool layer_norm_gru_registered =
    RegisterEngineKernels<LayerNormGruSequence, LayerNormGruSequenceGrad>();

}  // namespace
}  // namespace blockrnn
