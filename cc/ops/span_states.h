// Defines the size of span_states, the states that an op saves for backward
// with the attr recompute: those before each span of steps but the first.

#ifndef BLOCKRNN_OPS_SPAN_STATES_H_
#define BLOCKRNN_OPS_SPAN_STATES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

// The symbol of that size.
inline constexpr char kSpanStatesSymbol = 'N';

// The least number of steps of a span by the attr: as many as it says, or half
// the square root of the number of steps where it is -1. What is saved for a
// span while it is computed again and what is saved before all spans take about
// the same memory then, for cells with four or five saved arrays.
int64_t SpanSteps(int64_t recompute, int64_t steps);

// Binds N where all that it depends on is known, 0 without recompute, or checks
// the size of the span_states that an op takes.
absl::Status BindSpanStates(const OpContract& contract, int64_t recompute,
                            int64_t element_bytes, Bindings* bound);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_SPAN_STATES_H_
