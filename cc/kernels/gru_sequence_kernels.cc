// Implements the kernels of GRUSequence, GRUAfterSequence and their gradients.

#include <string>

#include "cc/core/gate_layout.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

template <class T>
struct GruSequence : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUSequence");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_ru_x, "w_ru_x"},
                       {&Args::w_ru_h, "w_ru_h"},
                       {&Args::w_c_x, "w_c_x"},
                       {&Args::w_c_h, "w_c_h"},
                       {&Args::b_ru, "b_ru"},
                       {&Args::b_c, "b_c"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::h, "h"},
                       {&Args::h_last, "h_last"},
                       {&Args::r, "r"},
                       {&Args::u, "u"},
                       {&Args::c, "c"}});
};

template <class T>
struct GruSequenceGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUSequenceGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_ru_x, "w_ru_x"},
                       {&Args::w_ru_h, "w_ru_h"},
                       {&Args::w_c_x, "w_c_x"},
                       {&Args::w_c_h, "w_c_h"},
                       {&Args::h, "h"},
                       {&Args::r, "r"},
                       {&Args::u, "u"},
                       {&Args::c, "c"},
                       {&Args::h_grad, "h_grad"},
                       {&Args::h_last_grad, "h_last_grad"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::x_grad, "x_grad"},
                       {&Args::h_prev_grad, "h_prev_grad"},
                       {&Args::w_ru_x_grad, "w_ru_x_grad"},
                       {&Args::w_ru_h_grad, "w_ru_h_grad"},
                       {&Args::w_c_x_grad, "w_c_x_grad"},
                       {&Args::w_c_h_grad, "w_c_h_grad"},
                       {&Args::b_ru_grad, "b_ru_grad"},
                       {&Args::b_c_grad, "b_c_grad"}});
};

// The attr that both ops have whose reset gate is applied after the GEMM.
struct GateOrder : OpMapping {
  explicit GateOrder(tensorflow::OpKernelConstruction* ctx) {
    std::string order;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("gate_order", &order));
    layout = order == "urc" ? kGruUrc : kGruRuc;
  }

  template <class Args>
  void Complete(tensorflow::OpKernelContext*, const Bindings&,
                Args* args) const {
    args->layout = layout;
  }

  GruAfterGateLayout layout = kGruRuc;
};

template <class T>
struct GruAfterSequence : GateOrder {
  using GateOrder::GateOrder;
  using Args = GruAfterSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUAfterSequence");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::b_x, "b_x"},
                       {&Args::b_h, "b_h"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::h, "h"},
                       {&Args::h_last, "h_last"},
                       {&Args::r, "r"},
                       {&Args::u, "u"},
                       {&Args::c, "c"},
                       {&Args::hc, "hc"}});
};

template <class T>
struct GruAfterSequenceGrad : GateOrder {
  using GateOrder::GateOrder;
  using Args = GruAfterSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUAfterSequenceGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_x, "w_x"},
                       {&Args::w_h, "w_h"},
                       {&Args::h, "h"},
                       {&Args::r, "r"},
                       {&Args::u, "u"},
                       {&Args::c, "c"},
                       {&Args::hc, "hc"},
                       {&Args::h_grad, "h_grad"},
                       {&Args::h_last_grad, "h_last_grad"},
                       {&Args::recurrent_dropout, "recurrent_dropout"}},
                      {{&Args::x_grad, "x_grad"},
                       {&Args::h_prev_grad, "h_prev_grad"},
                       {&Args::w_x_grad, "w_x_grad"},
                       {&Args::w_h_grad, "w_h_grad"},
                       {&Args::b_x_grad, "b_x_grad"},
                       {&Args::b_h_grad, "b_h_grad"}});
};

namespace {

[[maybe_unused]] const bool gru_sequence_registered =
    RegisterEngineKernels<GruSequence, GruSequenceGrad, GruAfterSequence,
                          GruAfterSequenceGrad>();

}  // namespace
}  // namespace blockrnn
