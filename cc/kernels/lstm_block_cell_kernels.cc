// Implements the kernels of LSTMBlockCell and LSTMBlockCellGrad.

#include "cc/core/lstm_cell.h"
#include "cc/kernels/engine_kernel.h"
#include "cc/kernels/lstm_attrs.h"

namespace blockrnn {

template <class T>
struct LstmBlockCell : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmCellForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMBlockCell");

  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->options = options;
  }
};

template <class T>
struct LstmBlockCellGrad : LstmMapping {
  using LstmMapping::LstmMapping;
  using Args = LstmCellBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("LSTMBlockCellGrad");
  static constexpr FieldNames kNames = {"", "x h_prev w b"};

  void Complete(const OpCall&, const Bindings&, Args* args) const {
    args->options = options;
  }
};

namespace {

[[maybe_unused]] const bool lstm_block_cell_registered =
    RegisterEngineKernels<LstmBlockCell, LstmBlockCellGrad>();

}  // namespace
}  // namespace blockrnn
