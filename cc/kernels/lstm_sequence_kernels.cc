// Implements the kernels of LSTMSequence and LSTMSequenceGrad.

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

namespace {

// The op has the three peephole weights in one array, [3, H], or nullptr. wci
// points to it; the other two are its second and third row.
template <class Weights>
bool SplitPeepholes(int64_t units, Weights* wci, Weights** wcf, Weights** wco) {
  if (wci == nullptr) return false;
  *wcf = wci + units;
  *wco = wci + 2 * units;
  return true;
}

// P, or 0 if w_p is left out, which means no projection to an engine.
int64_t ProjectionSize(const OpCall& call, int w_p) {
  return call.rank(w_p) == 1 ? 0 : call.dim(w_p, 0);
}

// w_p: the index of that input.
template <class T>
void CompleteGrad(const OpCall& call, const Bindings& bound, int w_p,
                  const LstmOptions& options,
                  LstmSequenceBackwardArgs<T>* args) {
  args->layout = kLstmIfco;
  args->options = options;
  args->options.use_peephole =
      SplitPeepholes(bound['H'], args->wci, &args->wcf, &args->wco);
  if (args->options.use_peephole) {
    SplitPeepholes(bound['H'], args->wci_grad, &args->wcf_grad,
                   &args->wco_grad);
  }
  args->proj = ProjectionSize(call, w_p);
}

}  // namespace

template <class T>
struct LstmSequence : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMSequence");
  static constexpr int kWP = InputAt(kRow, "w_p");
  static constexpr FieldNames kNames = {"wci=peepholes", ""};

  void Complete(const OpCall& call, const Bindings& bound, Args* args) const {
    args->layout = kLstmIfco;
    args->options = options;
    args->options.use_peephole =
        SplitPeepholes(bound['H'], args->wci, &args->wcf, &args->wco);
    args->proj = ProjectionSize(call, kWP);
  }
};

template <class T>
struct LstmSequenceGrad : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMSequenceGrad");
  static constexpr int kWP = InputAt(kRow, "w_p");
  static constexpr FieldNames kNames = {"wci=peepholes wci_grad=peepholes_grad",
                                        ""};

  void Complete(const OpCall& call, const Bindings& bound, Args* args) const {
    CompleteGrad(call, bound, kWP, options, args);
  }
};

namespace {

[[maybe_unused]] const bool lstm_sequence_registered =
    RegisterEngineKernels<LstmSequence, LstmSequenceGrad>();

}  // namespace
}  // namespace blockrnn
