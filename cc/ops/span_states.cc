#include "cc/ops/span_states.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace blockrnn {

int64_t SpanSteps(int64_t recompute, int64_t steps) {
  if (recompute >= 0) return recompute;
  const auto root = std::sqrt(static_cast<double>(steps));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(root / 2)));
}

absl::Status BindSpanStates(const OpContract& contract, int64_t recompute,
                            int64_t element_bytes, Bindings* bound) {
  const OpSpec& row = contract.row();
  const bool has_cell_state = HasInput(row, "cs_prev");
  const int64_t steps = (*bound)['T'];
  const int64_t batch = (*bound)['B'];
  const int64_t units = (*bound)['H'];
  // P is a symbol of ops with a projection alone.
  const int64_t width = HasInput(row, "w_p") ? (*bound)['P'] : units;
  const int64_t state = has_cell_state ? width : 0;
  int64_t size = 0;
  if (recompute != 0) {
    for (int64_t dim : {steps, batch, units, state}) {
      if (dim == kUnknown) return absl::OkStatus();
    }
    const int64_t span = SpanSteps(recompute, steps);
    const int64_t spans = steps / span + (steps % span > 0 ? 1 : 0);
    // In the compute type, float for 16-bit types.
    const int64_t elements = std::max<int64_t>(4 / element_bytes, 1);
    int64_t values;
    if (__builtin_add_overflow(units, state, &values) ||
        __builtin_mul_overflow(values, batch, &values) ||
        __builtin_mul_overflow(values, elements, &values) ||
        __builtin_mul_overflow(values, std::max<int64_t>(spans - 1, 0),
                               &size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          contract.op(), ": the size of span_states with T = ", steps,
          ", B = ", batch, ", H = ", units, " overflows int64"));
    }
  }
  int64_t& bound_size = (*bound)[kSpanStatesSymbol];
  if (bound_size != kUnknown && bound_size != size) {
    return absl::InvalidArgumentError(
        absl::StrCat(contract.op(), ": span_states must have shape [N] = [",
                     size, "], got [", bound_size, "]"));
  }
  bound_size = size;
  return absl::OkStatus();
}

}  // namespace blockrnn
