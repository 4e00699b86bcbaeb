// Implements the kernels of BlockGRU and BlockGRUGrad, whose weights hold the
// rows of x and those of h_prev in one array.

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

template <class T>
struct BlockGru : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("BlockGRU");
  static constexpr FieldNames kNames = {"w_ru_x=w_ru w_c_x=w_c", ""};

  void Complete(const OpCall&, const Bindings& bound, Args* args) const {
    const int64_t of_x = bound['I'] * bound['H'];
    args->w_ru_h = args->w_ru_x + of_x * kGruGates;
    args->w_c_h = args->w_c_x + of_x;
  }
};

template <class T>
struct BlockGruGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruSequenceBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("BlockGRUGrad");
  static constexpr FieldNames kNames = {
      "w_ru_x=w_ru w_c_x=w_c w_ru_x_grad=w_ru_grad w_c_x_grad=w_c_grad",
      "b_ru b_c"};

  void Complete(const OpCall&, const Bindings& bound, Args* args) const {
    const int64_t of_x = bound['I'] * bound['H'];
    args->w_ru_h = args->w_ru_x + of_x * kGruGates;
    args->w_c_h = args->w_c_x + of_x;
    args->w_ru_h_grad = args->w_ru_x_grad + of_x * kGruGates;
    args->w_c_h_grad = args->w_c_x_grad + of_x;
  }
};

namespace {

[[maybe_unused]] const bool block_gru_registered =
    RegisterEngineKernels<BlockGru, BlockGruGrad>();

}  // namespace
}  // namespace blockrnn
