// Implements the kernels of LSTMBlockCell and LSTMBlockCellGrad.

#include "cc/core/cell_args.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

template <class T>
struct LstmBlockCell : OpMapping {
  using Args = LstmCellForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMBlockCell");
  static constexpr auto kFields = Fields<Args, T>(kRow,
                                                  {{&Args::x, "x"},
                                                   {&Args::cs_prev, "cs_prev"},
                                                   {&Args::h_prev, "h_prev"},
                                                   {&Args::w, "w"},
                                                   {&Args::wci, "wci"},
                                                   {&Args::wcf, "wcf"},
                                                   {&Args::wco, "wco"},
                                                   {&Args::b, "b"}},
                                                  {{&Args::i, "i"},
                                                   {&Args::cs, "cs"},
                                                   {&Args::f, "f"},
                                                   {&Args::o, "o"},
                                                   {&Args::ci, "ci"},
                                                   {&Args::co, "co"},
                                                   {&Args::h, "h"}});

  explicit LstmBlockCell(tensorflow::OpKernelConstruction* ctx)
      : options(LstmOptionsOf(ctx)) {}

  void Complete(tensorflow::OpKernelContext*, const Bindings&,
                Args* args) const {
    args->options = options;
  }

  LstmOptions options;
};

template <class T>
struct LstmBlockCellGrad : OpMapping {
  using Args = LstmCellBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMBlockCellGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::cs_prev, "cs_prev"},
                       {&Args::wci, "wci"},
                       {&Args::wcf, "wcf"},
                       {&Args::wco, "wco"},
                       {&Args::i, "i"},
                       {&Args::cs, "cs"},
                       {&Args::f, "f"},
                       {&Args::o, "o"},
                       {&Args::ci, "ci"},
                       {&Args::co, "co"},
                       {&Args::cs_grad, "cs_grad"},
                       {&Args::h_grad, "h_grad"}},
                      {{&Args::cs_prev_grad, "cs_prev_grad"},
                       {&Args::dicfo, "dicfo"},
                       {&Args::wci_grad, "wci_grad"},
                       {&Args::wcf_grad, "wcf_grad"},
                       {&Args::wco_grad, "wco_grad"}});

  explicit LstmBlockCellGrad(tensorflow::OpKernelConstruction* ctx)
      : options(LstmOptionsOf(ctx)) {}

  void Complete(tensorflow::OpKernelContext*, const Bindings&,
                Args* args) const {
    args->use_peephole = options.use_peephole;
  }

  LstmOptions options;
};

namespace {

[[maybe_unused]] const bool lstm_block_cell_registered =
    RegisterEngineKernels<LstmBlockCell, LstmBlockCellGrad>();

}  // namespace
}  // namespace blockrnn
