// The forward passes for frozen weights of float in bfloat16 and int8: a source
// of their own, because their inner loops differ between instruction sets that
// have the engine of float in common.

#include "cc/core/activations.h"
#include "cc/kernels/cpu/cells/gru.h"
#include "cc/kernels/cpu/cells/gru_after.h"
#include "cc/kernels/cpu/cells/layer_norm_gru.h"
#include "cc/kernels/cpu/cells/layer_norm_lstm.h"
#include "cc/kernels/cpu/cells/lstm_forward.h"
#include "cc/kernels/cpu/cells/simple_rnn.h"

namespace blockrnn::cpu {
namespace {

template <template <class, class, class> class Cell, class Args>
Status Forward(const Args& args, const Executor& executor) {
  if (args.frozen->precision == Precision::kBFloat16) {
    using LowCell = Cell<float, StandardActivations, BFloat16Element>;
    return SequenceForward<LowCell>(args, executor).Run();
  }
  using LowCell = Cell<float, StandardActivations, Int8Quad>;
  return SequenceForward<LowCell>(args, executor).Run();
}

template <template <class, class> class Panels, class Args>
Status Freeze(const Args& args, const Executor& executor) {
  if (args.precision == Precision::kBFloat16) {
    return FreezeIn<Panels<float, BFloat16Element>>(args, executor);
  }
  return FreezeIn<Panels<float, Int8Quad>>(args, executor);
}

}  // namespace

template <>
Status LowPrecisionForward(const LstmSequenceForwardArgs<float>& args,
                           const Executor& executor) {
  return Forward<LstmForwardCell>(args, executor);
}
template <>
Status LowPrecisionForward(const GruSequenceForwardArgs<float>& args,
                           const Executor& executor) {
  return Forward<GruForwardCell>(args, executor);
}
template <>
Status LowPrecisionForward(const GruAfterSequenceForwardArgs<float>& args,
                           const Executor& executor) {
  return Forward<GruAfterForwardCell>(args, executor);
}
template <>
Status LowPrecisionForward(const SimpleRnnForwardArgs<float>& args,
                           const Executor& executor) {
  return args.relu ? Forward<ReluForwardCell>(args, executor)
                   : Forward<TanhForwardCell>(args, executor);
}
template <>
Status LowPrecisionForward(const LayerNormLstmForwardArgs<float>& args,
                           const Executor& executor) {
  return Forward<LayerNormLstmForwardCell>(args, executor);
}
template <>
Status LowPrecisionForward(const LayerNormGruForwardArgs<float>& args,
                           const Executor& executor) {
  return Forward<LayerNormGruForwardCell>(args, executor);
}

template <>
Status LowPrecisionFreeze(const LstmFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<LstmPanels>(args, executor);
}
template <>
Status LowPrecisionFreeze(const GruFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<GruPanels>(args, executor);
}
template <>
Status LowPrecisionFreeze(const GruAfterFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<GruAfterPanels>(args, executor);
}
template <>
Status LowPrecisionFreeze(const SimpleRnnFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<SimpleRnnPanels>(args, executor);
}
template <>
Status LowPrecisionFreeze(const LayerNormLstmFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<LayerNormLstmPanels>(args, executor);
}
template <>
Status LowPrecisionFreeze(const LayerNormGruFreezeArgs<float>& args,
                          const Executor& executor) {
  return Freeze<LayerNormGruPanels>(args, executor);
}

}  // namespace blockrnn::cpu
