// Implements the kernels of GRUBlockCell and GRUBlockCellGrad.

#include "cc/core/gru_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

template <class T>
struct GruBlockCell : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruCellForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUBlockCell");
};

template <class T>
struct GruBlockCellGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruCellBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUBlockCellGrad");
  static constexpr FieldNames kNames = {"", "x b_ru b_c"};
};

namespace {

[[maybe_unused]] const bool gru_block_cell_registered =
    RegisterEngineKernels<GruBlockCell, GruBlockCellGrad>();

}  // namespace
}  // namespace blockrnn
