// Implements the kernels of BlockLSTM, BlockLSTMV2 and their gradients, whose
// weights hold the rows of x and those of h_prev in one array. V2 has another
// order of the gates and no forget bias.

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

template <class T, bool kV2>
struct BlockLstmOf : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row(kV2 ? "BlockLSTMV2" : "BlockLSTM");
  static constexpr FieldNames kNames = {"w_x=w", ""};

  void Complete(const OpCall&, const Bindings& bound, Args* args) const {
    args->layout = kV2 ? kLstmIfco : kLstmIcfo;
    args->options = options;
    args->w_h = args->w_x + bound['I'] * kLstmGates * bound['H'];
  }
};

template <class T, bool kV2>
struct BlockLstmGradOf : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow =
      Row(kV2 ? "BlockLSTMGradV2" : "BlockLSTMGrad");
  static constexpr FieldNames kNames = {"w_x=w w_x_grad=w_grad", "b"};

  void Complete(const OpCall&, const Bindings& bound, Args* args) const {
    args->layout = kV2 ? kLstmIfco : kLstmIcfo;
    args->options = options;
    const int64_t of_x = bound['I'] * kLstmGates * bound['H'];
    args->w_h = args->w_x + of_x;
    args->w_h_grad = args->w_x_grad + of_x;
  }
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
