// Implements the kernels of LSTMSequence and LSTMSequenceGrad.

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

namespace {

// The op has the three peephole weights in one array, [3, H]; nullptr for none.
// wci is set to it; the other two follow.
template <class Weights>
bool SplitPeepholes(int64_t units, Weights* wci, Weights** wcf, Weights** wco) {
  if (wci == nullptr) return false;
  *wcf = wci + units;
  *wco = wci + 2 * units;
  return true;
}

// P, if w_p is not left out; else 0, by which an engine knows that there is no
// projection.
int64_t ProjectionSize(tensorflow::OpKernelContext* ctx, int w_p) {
  return ctx->input(w_p).dims() == 1 ? 0 : ctx->input(w_p).dim_size(0);
}

}  // namespace

template <class T>
struct LstmSequence : OpMapping {
  using Args = LstmSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMSequence");
  static constexpr int kWP = InputAt(kRow, "w_p");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::cs_prev, "cs_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::w_p, "w_p"},
                       {&Args::wci, "peepholes"},
                       {&Args::b, "b"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::h, "h"},
                       {&Args::h_last, "h_last"},
                       {&Args::cs_last, "cs_last"},
                       {&Args::i, "i"},
                       {&Args::cs, "cs"},
                       {&Args::f, "f"},
                       {&Args::o, "o"},
                       {&Args::ci, "ci"}});

  explicit LstmSequence(tensorflow::OpKernelConstruction* ctx)
      : options(LstmOptionsOf(ctx)) {}

  void Complete(tensorflow::OpKernelContext* ctx, const Bindings& bound,
                Args* args) const {
    args->layout = kLstmIfco;
    args->options = options;
    args->options.use_peephole =
        SplitPeepholes(bound['H'], args->wci, &args->wcf, &args->wco);
    args->proj = ProjectionSize(ctx, kWP);
  }

  LstmOptions options;
};

template <class T>
struct LstmSequenceGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = LstmSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMSequenceGrad");
  static constexpr int kWP = InputAt(kRow, "w_p");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::cs_prev, "cs_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::w_p, "w_p"},
                       {&Args::wci, "peepholes"},
                       {&Args::h, "h"},
                       {&Args::i, "i"},
                       {&Args::cs, "cs"},
                       {&Args::f, "f"},
                       {&Args::o, "o"},
                       {&Args::ci, "ci"},
                       {&Args::h_grad, "h_grad"},
                       {&Args::h_last_grad, "h_last_grad"},
                       {&Args::cs_last_grad, "cs_last_grad"},
                       {&Args::cs_grad, "cs_grad"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::x_grad, "x_grad"},
                       {&Args::h_prev_grad, "h_prev_grad"},
                       {&Args::cs_prev_grad, "cs_prev_grad"},
                       {&Args::w_x_grad, "w_x_grad"},
                       {&Args::w_h_grad, "w_h_grad"},
                       {&Args::b_grad, "b_grad"},
                       {&Args::wci_grad, "peepholes_grad"},
                       {&Args::w_p_grad, "w_p_grad"}});

  void Complete(tensorflow::OpKernelContext* ctx, const Bindings& bound,
                Args* args) const {
    args->layout = kLstmIfco;
    args->use_peephole =
        SplitPeepholes(bound['H'], args->wci, &args->wcf, &args->wco);
    if (args->use_peephole) {
      SplitPeepholes(bound['H'], args->wci_grad, &args->wcf_grad,
                     &args->wco_grad);
    }
    args->proj = ProjectionSize(ctx, kWP);
  }
};

namespace {

[[maybe_unused]] const bool lstm_sequence_registered =
    RegisterEngineKernels<LstmSequence, LstmSequenceGrad>();

}  // namespace
}  // namespace blockrnn
