// Implements the kernels of GRUBlockCell and GRUBlockCellGrad.

#include "cc/core/cell_args.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

template <class T>
struct GruBlockCell : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruCellForwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUBlockCell");
  static constexpr auto kFields = Fields<Args, T>(
      kRow,
      {{&Args::x, "x"},
       {&Args::h_prev, "h_prev"},
       {&Args::w_ru, "w_ru"},
       {&Args::w_c, "w_c"},
       {&Args::b_ru, "b_ru"},
       {&Args::b_c, "b_c"}},
      {{&Args::r, "r"}, {&Args::u, "u"}, {&Args::c, "c"}, {&Args::h, "h"}});
};

template <class T>
struct GruBlockCellGrad : OpMapping {
  using OpMapping::OpMapping;
  using Args = GruCellBackwardArgs<T>;
  static constexpr const OpSpec& kRow = Row("GRUBlockCellGrad");
  static constexpr auto kFields =
      Fields<Args, T>(kRow,
                      {{&Args::h_prev, "h_prev"},
                       {&Args::w_ru, "w_ru"},
                       {&Args::w_c, "w_c"},
                       {&Args::r, "r"},
                       {&Args::u, "u"},
                       {&Args::c, "c"},
                       {&Args::d_h, "d_h"}},
                      {{&Args::d_x, "d_x"},
                       {&Args::d_h_prev, "d_h_prev"},
                       {&Args::d_c_bar, "d_c_bar"},
                       {&Args::d_r_bar_u_bar, "d_r_bar_u_bar"}});
};

namespace {

[[maybe_unused]] const bool gru_block_cell_registered =
    RegisterEngineKernels<GruBlockCell, GruBlockCellGrad>();

}  // namespace
}  // namespace blockrnn
