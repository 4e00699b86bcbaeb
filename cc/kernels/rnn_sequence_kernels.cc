// Implements the kernels of RNNSequence and RNNSequenceGrad.

#include <string>

#include "cc/core/sequence_args.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

struct Activation : OpMapping {
  explicit Activation(tensorflow::OpKernelConstruction* ctx) {
    std::string activation;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("activation", &activation));
    relu = activation == "relu";
  }

  template <class Args>
  void Complete(tensorflow::OpKernelContext*, const Bindings&,
                Args* args) const {
    args->relu = relu;
  }

  bool relu = false;
};

template <class T>
struct RnnSequence : Activation {
  using Activation::Activation;
  using Args = SimpleRnnForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("RNNSequence");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::b, "b"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::h, "h"}, {&Args::h_last, "h_last"}});
};

template <class T>
struct RnnSequenceGrad : Activation {
  using Activation::Activation;
  using Args = SimpleRnnBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("RNNSequenceGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::h, "h"},
                       {&Args::h_grad, "h_grad"},
                       {&Args::h_last_grad, "h_last_grad"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::x_grad, "x_grad"},
                       {&Args::h_prev_grad, "h_prev_grad"},
                       {&Args::w_x_grad, "w_x_grad"},
                       {&Args::w_h_grad, "w_h_grad"},
                       {&Args::b_grad, "b_grad"}});
};

namespace {

[[maybe_unused]] const bool rnn_sequence_registered =
    RegisterEngineKernels<RnnSequence, RnnSequenceGrad>();

}  // namespace
}  // namespace blockrnn
