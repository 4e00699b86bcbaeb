// Defines the variants (modes, attributes and optional tensors) that the tests
// of stacks use, the same for the forward and the backward op.

#ifndef BLOCKRNN_TESTS_CPP_RNN_STACK_VARIANTS_H_
#define BLOCKRNN_TESTS_CPP_RNN_STACK_VARIANTS_H_

#include <cstdint>
#include <vector>

#include "cc/core/dropout.h"
#include "cc/core/param_layout.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

struct StackChoice {
  RnnMode mode = RnnMode::kLstm;
  int layers = 1;
  int directions = 1;
  bool projected = false;
  bool skip_input = false;
  bool lengths = false;
  bool time_major = true;
  bool dropout = false;
};

// The variants that the tests of every op use. Among those tests are ones that
// a wrong number is seen, for which the bound on roundoff must not be that of
// many layers: so variant 0, and 12 for many steps, are one layer without
// padding.
inline constexpr StackChoice kStackSample[] = {
    {RnnMode::kTanh, 1, 1, false, false, false, false, false},
    {RnnMode::kGru, 2, 2, false, false, true, false, true},
    {RnnMode::kTanh, 3, 2, false, false, false, true, false},
    {RnnMode::kRelu, 2, 1, false, false, true, true, true},
    {RnnMode::kLstm, 3, 2, true, false, true, false, true},
    {RnnMode::kLstm, 1, 2, true, true, false, true, false},
    {RnnMode::kGru, 3, 1, false, true, true, true, true},
    {RnnMode::kGru, 1, 2, false, false, true, false, false},
    {RnnMode::kTanh, 1, 2, false, true, true, false, false},
    {RnnMode::kRelu, 1, 2, false, true, false, true, false},
    {RnnMode::kTanh, 2, 2, false, false, true, true, true},
    {RnnMode::kLstm, 2, 1, true, false, false, true, true},
    {RnnMode::kLstm, 1, 1, false, false, false, true, false},
    {RnnMode::kGru, 2, 2, false, true, false, false, false},
    {RnnMode::kRelu, 3, 2, false, false, true, false, true},
    {RnnMode::kLstm, 2, 2, false, true, true, false, false},
    {RnnMode::kLstm, 2, 2, false, false, true, true, true},
};
inline constexpr int kStackSamples =
    sizeof(kStackSample) / sizeof(kStackSample[0]);

// Every combination that there is: variants from kStackSamples on.
inline std::vector<StackChoice> AllStackChoices() {
  constexpr RnnMode kModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm,
                                RnnMode::kGru};
  std::vector<StackChoice> all;
  for (const RnnMode mode : kModes) {
    for (int layers = 1; layers <= 3; ++layers) {
      for (int directions = 1; directions <= 2; ++directions) {
        for (int flags = 0; flags < 32; ++flags) {
          const bool projected = (flags & 1) != 0;
          const bool dropout = (flags & 2) != 0;
          if (projected && mode != RnnMode::kLstm) continue;
          if (dropout && layers == 1) continue;
          all.push_back({mode, layers, directions, projected, (flags & 4) != 0,
                         (flags & 8) != 0, (flags & 16) != 0, dropout});
        }
      }
    }
  }
  return all;
}

inline StackChoice StackChoiceOf(int variant) {
  if (variant < kStackSamples) return kStackSample[variant];
  static const std::vector<StackChoice> all = AllStackChoices();
  return all[variant - kStackSamples];
}

// One call: a choice and its sizes.
struct Stack {
  Stack(const Dims& dims, int variant)
      : choice(StackChoiceOf(variant)),
        steps(dims.steps),
        batch(dims.batch),
        input(choice.skip_input ? dims.units : dims.input),
        units(dims.units),
        projected(choice.projected && units > 0),
        proj(projected ? (units + 1) / 2 : units),
        layer_directions(choice.layers * choice.directions),
        trains(variant % 4 != 3),
        gives_output_grad(variant % 3 != 2),
        gives_state_grads(variant % 3 != 1) {}

  static constexpr float kDropout = 0.375f;

  // In 0..T, both ends of it among a few rows.
  int64_t Length(int64_t b) const {
    return choice.lengths ? (3 * b + 2) % (steps + 1) : steps;
  }
  // The row of [steps, batch, …] at time t.
  int64_t Row(int64_t t, int64_t b) const {
    return choice.time_major ? t * batch + b : b * steps + t;
  }
  // Where row b's state of a layer direction begins in states of this width.
  int64_t State(int64_t layer_direction, int64_t b, int64_t width) const {
    return (choice.time_major ? layer_direction * batch + b
                              : b * layer_directions + layer_direction) *
           width;
  }
  bool IsLstm() const { return choice.mode == RnnMode::kLstm; }
  int64_t Gates() const {
    if (IsLstm()) return 4;
    return choice.mode == RnnMode::kGru ? 3 : 1;
  }
  int64_t OutputWidth() const { return choice.directions * proj; }
  int64_t InputWidth(int64_t layer) const {
    return layer == 0 ? input : OutputWidth();
  }
  float Dropout() const { return choice.dropout ? kDropout : 0.0f; }
  // A carry propagates through all digits of the counter within a mask.
  static PhiloxState Philox() {
    return {{0x12345678u, 0x9abcdef0u},
            {0xfffffffau, 0xffffffffu, 0xffffffffu, 7u}};
  }

  const StackChoice choice;
  const int64_t steps;
  const int64_t batch;
  const int64_t input;
  const int64_t units;
  const bool projected;
  const int64_t proj;
  const int64_t layer_directions;
  // What the forward op computes, and which gradients the backward op gets.
  const bool trains;
  const bool gives_output_grad;
  const bool gives_state_grads;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_RNN_STACK_VARIANTS_H_
