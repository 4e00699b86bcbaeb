// Implements the kernels of RNNSequence and RNNSequenceGrad.

#include <string>

#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

struct Activation : OpMapping {
  explicit Activation(KernelNode* node) {
    std::string activation;
    node->GetAttr("activation", &activation);
    relu = activation == "relu";
  }

  template <class Args>
  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->relu = relu;
  }

  bool relu = false;
};

template <class T>
struct RnnSequence : Activation {
  using Activation::Activation;
  using Args = SimpleRnnForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("RNNSequence");
};

template <class T>
struct RnnSequenceGrad : Activation {
  using Activation::Activation;
  using Args = SimpleRnnBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("RNNSequenceGrad");
};

namespace {

[[maybe_unused]] const bool rnn_sequence_registered =
    RegisterEngineKernels<RnnSequence, RnnSequenceGrad>();

}  // namespace
}  // namespace blockrnn
