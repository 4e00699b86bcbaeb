// Defines what the tests of sequences share: masks and lengths, the layout of
// steps in memory (independent of SequenceShape::Row), and inputs that make a
// test of many steps meaningful.

#ifndef BLOCKRNN_TESTS_CPP_SEQUENCE_H_
#define BLOCKRNN_TESTS_CPP_SEQUENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "cc/core/sequence_args.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

enum class Mask {
  kNone,     // no mask is given
  kNothing,  // every step of every row is masked
  kRows,     // some rows are masked completely
  kHoles,
  kLeft,   // leading padding in each row; some are all padding
  kRight,  // trailing padding in each row; some are all padding
};

// x is multiplied with w_x; or x is that product, of all gates; or, of H
// columns, that of each gate.
enum class Input { kMultiplied, kProjected, kSkipped };

// Which outputs a forward call has: all; what training reads; h; the last
// states.
enum class Wants { kAll, kTraining, kInference, kLast };
// Of which outputs a backward call has gradients.
enum class Gives { kAll, kH, kCs, kLast, kNothing };

// The attributes and optional tensors that sequences of all cells have.
struct Order {
  Mask mask;
  bool time_major;
  bool backwards;
  bool lengths = false;  // each row has its own
  bool drops = false;    // recurrent dropout: factors of the state
  Input input = Input::kMultiplied;
  bool zones = false;    // zoneout by draws, of the cells that have it
  bool by_unit = false;  // the matrices of x and of the state are transposed
  Wants want = Wants::kAll;
  Gives give = Gives::kAll;
  bool resets = false;  // sequences begin in the middle of rows
};

// One for each variant of a sequence's test, for every cell. The tests of
// threads use the first two, those of many steps the plain one.
inline constexpr Order kOrders[] = {
    // mask, time-major, backwards, lengths, drops, input, zones, by unit
    {Mask::kNone, true, false, false, false, Input::kMultiplied, false},
    {Mask::kHoles, true, false, true, true, Input::kMultiplied, true},
    {Mask::kHoles, false, true, false, false, Input::kMultiplied, false, true,
     Wants::kTraining},
    {Mask::kNone, false, false, false, false, Input::kProjected, true, true,
     Wants::kInference, Gives::kH},
    {Mask::kNothing, true, true, false, true, Input::kMultiplied, false, true},
    {Mask::kLeft, true, true, true, false, Input::kSkipped, false, false,
     Wants::kLast, Gives::kLast},
    {Mask::kRows, false, false, false, true, Input::kProjected, false, false,
     Wants::kAll, Gives::kCs},
    {Mask::kNone, true, true, false, true, Input::kMultiplied, true, false,
     Wants::kTraining, Gives::kH},
    {Mask::kRight, true, false, false, true, Input::kMultiplied, false, true,
     Wants::kAll, Gives::kLast},
    {Mask::kRight, false, false, false, false, Input::kProjected, false, false,
     Wants::kInference, Gives::kNothing},
    {Mask::kLeft, false, true, false, false, Input::kSkipped, false, false,
     Wants::kInference},
    {Mask::kNone, false, true, true, true, Input::kSkipped, false, true,
     Wants::kLast, Gives::kH},
    {Mask::kNone, true, false, false, false, Input::kMultiplied, false},
    {Mask::kHoles, true, true, true, true, Input::kProjected, false, true},
    {Mask::kNone, true, false, true, false, Input::kMultiplied, true, true},
    // With resets.
    {Mask::kHoles, false, false, true, true, Input::kMultiplied, true, false,
     Wants::kAll, Gives::kAll, true},
    {Mask::kRight, true, true, true, false, Input::kProjected, false, true,
     Wants::kTraining, Gives::kLast, true},
};
inline constexpr int kNumOrders = sizeof(kOrders) / sizeof(kOrders[0]);
inline constexpr int kPlainOrder = 12;  // no step masked, forwards

// Variants from kNumOrders on: all combinations, each with all options that a
// cell has for the variants above.
inline constexpr int kOrderCombinations =
    6 * 2 * 2 * 2 * 2 * 3 * 2 * 2 * 4 * 5 * 2;
inline constexpr int kMoreVariants = kOrderCombinations * kNumOrders;
inline Order OrderOf(int variant) {
  if (variant < kNumOrders) return kOrders[variant];
  MixedRadix digits(variant / kNumOrders - 1);
  Order order;
  order.mask = static_cast<Mask>(digits.Next(6));
  order.time_major = digits.NextBool();
  order.backwards = digits.NextBool();
  order.lengths = digits.NextBool();
  order.drops = digits.NextBool();
  order.input = static_cast<Input>(digits.Next(3));
  order.zones = digits.NextBool();
  order.by_unit = digits.NextBool();
  order.want = static_cast<Wants>(digits.Next(4));
  order.give = static_cast<Gives>(digits.Next(5));
  order.resets = digits.NextBool();
  return order;
}

// Shapes that are not split; that are split over rows, within a block of steps
// and over several blocks, which are short where the input is wide; and that
// are split over units, the same. step_loop_test.cc checks the splits. In the
// two of two steps, for the simple RNN and for the cells with gates, the input
// GEMM is fused into the step on one thread, and hoisted, with few rows, on
// two. Those of one step stream their weights with few rows and with more, or
// have them packed a few panels at a time, or, shared by rows, before.
inline const std::vector<Dims>& SharedSequences() {
  static const std::vector<Dims> shapes = {
      {3, 5, 7, 4},      {40, 7, 56, 9},   {130, 140, 33, 8}, {3, 5, 150, 16},
      {7, 140, 110, 70}, {16, 40, 300, 2}, {16, 40, 150, 2},  {3, 700, 300, 1},
      {13, 40, 300, 1},  {21, 40, 300, 1}, {700, 30, 51, 1},
  };
  return shapes;
}

// The steps of a sequence in the order in which they are computed: those of a
// row and, after them, those past its length.
class Steps {
 public:
  Steps(const Dims& dims, const Order& order, int64_t gates)
      : dims_(dims), order_(order), gates_(gates) {}

  const Dims& dims() const { return dims_; }
  const Order& order() const { return order_; }

  // Elements of a row of x.
  int64_t InputWidth() const {
    if (order_.input == Input::kMultiplied) return dims_.input;
    return order_.input == Input::kProjected ? gates_ * dims_.units
                                             : dims_.units;
  }
  int64_t InputSize() const { return dims_.steps * dims_.batch * InputWidth(); }

  // The row of [steps · batch, …] in memory.
  int64_t At(int64_t step, int64_t b) const {
    const int64_t t = Time(step, b);
    return order_.time_major ? t * dims_.batch + b : b * dims_.steps + t;
  }

  // Whether the step is past row b's length.
  bool Past(int64_t step, int64_t b) const { return step >= Length(b); }

  bool Counts(int64_t step, int64_t b) const {
    if (Past(step, b)) return false;
    const int64_t t = Time(step, b);
    switch (order_.mask) {
      case Mask::kNone:
        return true;
      case Mask::kNothing:
        return false;
      case Mask::kRows:
        return b % 3 != 1;
      case Mask::kHoles:
        return (5 * t + 3 * b + t * b) % 4 < 2;
      case Mask::kLeft:
        return t >= (2 * b + 1) % (dims_.steps + 1);
      case Mask::kRight:
        return t < (3 * b + 2) % (dims_.steps + 1);
    }
    return true;
  }

  // Whether there is a reset between the step and the one before it, of steps
  // within row b's length.
  bool Begins(int64_t step, int64_t b) const {
    if (!order_.resets) return false;
    if (!order_.backwards) return Resets(Time(step, b), b);
    return step > 0 && Resets(Time(step - 1, b), b);
  }

  // Whether zoneout leaves element j of a state as it was before an unmasked
  // step. state: 0 for h, 1 for cs.
  bool Keeps(int state, int64_t step, int64_t b, int64_t j) const {
    const int64_t row = At(step, b);
    return order_.zones && (5 * row + 3 * j + row * j + state) % 3 == 0;
  }

  // Splits a gradient of the state after the step: d becomes that of the new
  // state; gives what zoneout keeps, empty without. They are products, so a NaN
  // stays one in both.
  Tensor SplitGrad(int state, int64_t step, int64_t b, Tensor* d) const {
    Tensor kept;
    for (std::size_t j = 0; j < d->size() && order_.zones; ++j) {
      const double keeps = Keeps(state, step, b, j) ? 1 : 0;
      kept.push_back((*d)[j] * Real(keeps));
      (*d)[j] = (*d)[j] * Real(1 - keeps);
    }
    return kept;
  }

  SequenceShape Shape() const {
    SequenceShape shape;
    shape.steps = dims_.steps;
    shape.batch = dims_.batch;
    shape.input = InputWidth();
    shape.units = dims_.units;
    shape.time_major = order_.time_major;
    shape.backwards = order_.backwards;
    shape.skip_input = order_.input == Input::kSkipped;
    shape.projected_input = order_.input == Input::kProjected;
    shape.weights_by_unit = order_.by_unit;
    return shape;
  }

  // The mask in the engine's form, guarded; nullptr where there is none. Any
  // nonzero byte is an unmasked step.
  std::optional<GuardedBlock> MaskBytes() const {
    if (order_.mask == Mask::kNone) return std::nullopt;
    GuardedBlock block(dims_.steps * dims_.batch, 1);
    constexpr unsigned char kOn[] = {1, 255, 128, 2};
    ForEach([&](int64_t step, int64_t b) {
      const int64_t at = At(step, b);
      block.data()[at] = Counts(step, b) ? kOn[at % 4] : 0;
    });
    return block;
  }

  // The resets, the same. Any nonzero byte is one, past the lengths too.
  std::optional<GuardedBlock> ResetBytes() const {
    if (!order_.resets) return std::nullopt;
    GuardedBlock block(dims_.steps * dims_.batch, 1);
    ForEach([&](int64_t t, int64_t b) {
      const int64_t at =
          order_.time_major ? t * dims_.batch + b : b * dims_.steps + t;
      block.data()[at] = Resets(t, b) ? 1 + at % 255 : 0;
    });
    return block;
  }

  // The draws of zoneout of a state [width], the same. Any nonzero byte keeps.
  std::optional<GuardedBlock> Draws(int state, int64_t width) const {
    if (!order_.zones) return std::nullopt;
    GuardedBlock block(dims_.steps * dims_.batch * width, 1);
    ForEach([&](int64_t step, int64_t b) {
      for (int64_t j = 0; j < width; ++j) {
        block.data()[At(step, b) * width + j] =
            Keeps(state, step, b, j) ? 1 + j % 255 : 0;
      }
    });
    return block;
  }

  // The lengths, the same.
  std::optional<GuardedBlock> Lengths() const {
    if (!order_.lengths) return std::nullopt;
    GuardedBlock block(dims_.batch * sizeof(int64_t), 0);
    for (int64_t b = 0; b < dims_.batch; ++b) {
      const int64_t length = Length(b);
      std::memcpy(block.data() + b * sizeof(length), &length, sizeof(length));
    }
    return block;
  }

  // Makes `states` [steps, batch, width] such that a masked step has the state
  // of the previous step, or `initial` [B, width].
  void CarryOverMasked(const Tensor& initial, int64_t width,
                       Tensor* states) const {
    ForEach([&](int64_t step, int64_t b) {
      if (Counts(step, b) || Past(step, b)) return;
      const Tensor before = Before(step, b, initial, *states, width);
      std::copy(before.begin(), before.end(),
                states->begin() + At(step, b) * width);
    });
  }

  // Makes `outputs` [steps, batch, width] zero where a step is masked.
  void ZeroMasked(int64_t width, Tensor* outputs) const {
    ForEach([&](int64_t step, int64_t b) {
      if (!Counts(step, b)) FillRow(step, b, width, 0, outputs);
    });
  }

  // What an input has past a row's length is never read.
  void SpoilPast(int64_t width, Tensor* input) const {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    ForEach([&](int64_t step, int64_t b) {
      if (Past(step, b)) FillRow(step, b, width, kNan, input);
    });
  }

  // The state of row b before an unmasked step.
  Tensor Before(int64_t step, int64_t b, const Tensor& initial,
                const Tensor& states, int64_t width) const {
    if (Begins(step, b)) return Tensor(width);
    const auto from = step == 0 ? initial.begin() + b * width
                                : states.begin() + At(step - 1, b) * width;
    return {from, from + width};
  }

 private:
  // f(step, b) for all of them, step by step.
  template <class F>
  void ForEach(const F& f) const {
    for (int64_t step = 0; step < dims_.steps; ++step) {
      for (int64_t b = 0; b < dims_.batch; ++b) f(step, b);
    }
  }

  // In 0..T, both ends of it among a few rows.
  int64_t Length(int64_t b) const {
    return order_.lengths ? (3 * b + 2) % (dims_.steps + 1) : dims_.steps;
  }

  // Of a time in memory: of every third row often, of the others seldom.
  static bool Resets(int64_t t, int64_t b) {
    return b % 3 == 0 ? (3 * t + 2 * b) % 7 < 2 : (5 * t + 3 * b) % 31 < 2;
  }

  int64_t Time(int64_t step, int64_t b) const {
    const bool back = order_.backwards && !Past(step, b);
    return back ? Length(b) - 1 - step : step;
  }

  void FillRow(int64_t step, int64_t b, int64_t width, double value,
               Tensor* sequence) const {
    for (int64_t j = 0; j < width; ++j) {
      (*sequence)[At(step, b) * width + j] = value;
    }
  }

  const Dims dims_;
  const Order order_;
  const int64_t gates_;
};

// The arguments of all cells other than tensors. Lives as long as the call.
class SequenceCall {
 public:
  explicit SequenceCall(const Steps& steps)
      : shape_(steps.Shape()),
        mask_(steps.MaskBytes()),
        resets_(steps.ResetBytes()),
        lengths_(steps.Lengths()) {}

  template <class Args>
  void Fill(Args* args) const {
    args->shape = shape_;
    if (mask_) args->mask = mask_->data();
    if (resets_) args->resets = resets_->data();
    if (lengths_) {
      args->shape.lengths = reinterpret_cast<const int64_t*>(lengths_->data());
    }
  }

 private:
  const SequenceShape shape_;
  const std::optional<GuardedBlock> mask_;
  const std::optional<GuardedBlock> resets_;
  const std::optional<GuardedBlock> lengths_;
};

// Zoneout of one state. Lives as long as the call.
class StateDraws {
 public:
  StateDraws(const Steps& steps, int state, int64_t width)
      : draws_(steps.Draws(state, width)) {}

  Zoneout Get() const {
    Zoneout zoneout;
    if (draws_) zoneout.kept = draws_->data();
    return zoneout;
  }

 private:
  const std::optional<GuardedBlock> draws_;
};

// Weights of a state, [H, width]. Over many steps a bound on roundoff grows
// with Σ |w| of a column, and soon becomes meaningless. With a sum of ½ to 1 it
// stays small, while every weight still matters.
inline void CalmRecurrentWeights(const Dims& dims, Tensor* w) {
  constexpr int64_t kFewSteps = 4;
  if (dims.steps <= kFewSteps || dims.units == 0) return;
  const double depth = static_cast<double>(dims.input + dims.units);
  const double column_sum =
      static_cast<double>(dims.units) / std::sqrt(depth);  // of |w|, the mean
  const int halvings = static_cast<int>(std::ceil(std::log2(column_sum)));
  if (halvings <= 0) return;
  for (Real& element : *w) element = std::ldexp(element.value, -halvings);
}

// Integer weights [depth, gates · units] with one ±1 in a column, so that sums
// stay small, or, of a state, in one gate's column of each unit.
inline void SparseIntegers(int64_t depth, int64_t units, bool of_state,
                           Tensor* w) {
  if (w->empty()) return;
  const auto gates = static_cast<int64_t>(w->size()) / (depth * units);
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t gate = 0; gate < gates; ++gate) {
      for (int64_t j = 0; j < units; ++j) {
        const bool chosen =
            (7 * j + 3 * gate) % depth == k && (!of_state || j % gates == gate);
        const double sign = (k + j) % 2 == 0 ? 1 : -1;
        (*w)[(k * gates + gate) * units + j] = chosen ? sign : 0;
      }
    }
  }
}

// A gradient through a masked step is a GEMM of zeros with the weights, or none
// is computed: the two differ for weights that are not finite.
inline void MakeFinite(Tensor* w) {
  for (Real& element : *w) {
    if (!std::isfinite(element.value)) element = 0;
  }
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_SEQUENCE_H_
