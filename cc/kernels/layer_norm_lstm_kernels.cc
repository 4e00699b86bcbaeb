// Implements the kernels of LayerNormLSTMSequence and its gradients.

#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/ops/contract_rules.h"

namespace blockrnn {

struct LayerNormLstmMapping : OpMapping {
  explicit LayerNormLstmMapping(KernelNode* node) {
    node->GetAttr("epsilon", &epsilon);
    node->GetAttr("norm_output_only", &norm_output_only);
    node->Check(CheckEpsilon(node->op(), epsilon));
  }

  template <class Args>
  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->layout = kLstmIfco;
    args->epsilon = epsilon;
    args->norm_output_only = norm_output_only;
  }

  float epsilon = 0;
  bool norm_output_only = false;
};

template <class T>
struct LayerNormLstmSequence : LayerNormLstmMapping {
  using LayerNormLstmMapping::LayerNormLstmMapping;
  using Args = LayerNormLstmForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LayerNormLSTMSequence");
};

template <class T>
struct LayerNormLstmSequenceGrad : LayerNormLstmMapping {
  using LayerNormLstmMapping::LayerNormLstmMapping;
  using Args = LayerNormLstmBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LayerNormLSTMSequenceGrad");
};

namespace {

[[maybe_unused]] const bool layer_norm_lstm_registered =
    RegisterEngineKernels<LayerNormLstmSequence, LayerNormLstmSequenceGrad>();

}  // namespace
}  // namespace blockrnn
