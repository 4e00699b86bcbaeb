// Implements the kernels of BlockLSTM, BlockLSTMV2 and their gradients, whose
// weights hold the rows of x and those of h_prev in one array. V2 has another
// order of the gates and no forget bias.

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

template <class T, bool kV2>
struct BlockLstmOf : OpMapping {
  using Args = LstmSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row(kV2 ? "BlockLSTMV2" : "BlockLSTM");
  static constexpr auto kFields = Fields<Args, T>(kRow,
                                                  {{&Args::x, "x"},
                                                   {&Args::cs_prev, "cs_prev"},
                                                   {&Args::h_prev, "h_prev"},
                                                   {&Args::w_x, "w"},
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

  explicit BlockLstmOf(tensorflow::OpKernelConstruction* ctx)
      : options(LstmOptionsOf(ctx)) {}

  void Complete(tensorflow::OpKernelContext*, const Bindings& bound,
                Args* args) const {
    args->layout = kV2 ? kLstmIfco : kLstmIcfo;
    args->options = options;
    args->w_h = args->w_x + bound['I'] * kLstmGates * bound['H'];
  }

  LstmOptions options;
};

template <class T, bool kV2>
struct BlockLstmGradOf : OpMapping {
  using Args = LstmSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow =
      Row(kV2 ? "BlockLSTMGradV2" : "BlockLSTMGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::x, "x"},
                       {&Args::cs_prev, "cs_prev"},
                       {&Args::h_prev, "h_prev"},
                       {&Args::w_x, "w"},
                       {&Args::wci, "wci"},
                       {&Args::wcf, "wcf"},
                       {&Args::wco, "wco"},
                       {&Args::i, "i"},
                       {&Args::cs, "cs"},
                       {&Args::f, "f"},
                       {&Args::o, "o"},
                       {&Args::ci, "ci"},
                       {&Args::co, "co"},
                       {&Args::h, "h"},
                       {&Args::cs_grad, "cs_grad"},
                       {&Args::h_grad, "h_grad"}},
                      {{&Args::x_grad, "x_grad"},
                       {&Args::cs_prev_grad, "cs_prev_grad"},
                       {&Args::h_prev_grad, "h_prev_grad"},
                       {&Args::w_x_grad, "w_grad"},
                       {&Args::wci_grad, "wci_grad"},
                       {&Args::wcf_grad, "wcf_grad"},
                       {&Args::wco_grad, "wco_grad"},
                       {&Args::b_grad, "b_grad"}});

  explicit BlockLstmGradOf(tensorflow::OpKernelConstruction* ctx)
      : options(LstmOptionsOf(ctx)) {}

  void Complete(tensorflow::OpKernelContext*, const Bindings& bound,
                Args* args) const {
    args->layout = kV2 ? kLstmIfco : kLstmIcfo;
    args->use_peephole = options.use_peephole;
    const int64_t of_x = bound['I'] * kLstmGates * bound['H'];
    args->w_h = args->w_x + of_x;
    args->w_h_grad = args->w_x_grad + of_x;
  }

  LstmOptions options;
};

template <class T>
using BlockLstm = BlockLstmOf<T, false>;
template <class T>
using BlockLstmV2 = BlockLstmOf<T, true>;
template <class T>
using BlockLstmGrad = BlockLstmGradOf<T, false>;
template <class T>
using BlockLstmGradV2 = BlockLstmGradOf<T, true>;

namespace {

[[maybe_unused]] const bool block_lstm_registered =
    RegisterEngineKernels<BlockLstm, BlockLstmV2, BlockLstmGrad,
                          BlockLstmGradV2>();

}  // namespace
}  // namespace blockrnn
