// Owns what the tests of sequences share: masks, how steps stand in memory
// (written apart from SequenceShape::Row), and the inputs that a sequence needs
// so that a test of many steps says something.

#ifndef BLOCKRNN_TESTS_CPP_SEQUENCE_H_
#define BLOCKRNN_TESTS_CPP_SEQUENCE_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "cc/core/sequence_args.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/heap.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

enum class Mask {
  kNone,     // no mask is given
  kNothing,  // every step of every row is skipped
  kRows,     // some rows are skipped altogether
  kHoles,
  kLeft,   // each row starts late, some never
  kRight,  // each row ends early, some before they start
};

// The attributes that sequences of all cells have.
struct Order {
  Mask mask;
  bool time_major;
  bool backwards;
};

// One for each variant of a sequence's test, of any cell.
inline constexpr Order kOrders[] = {
    {Mask::kNone, true, false},   {Mask::kRight, true, false},
    {Mask::kHoles, false, true},  {Mask::kNone, false, false},
    {Mask::kNothing, true, true}, {Mask::kLeft, true, true},
    {Mask::kRows, false, false},  {Mask::kNone, true, true},
    {Mask::kHoles, true, false},  {Mask::kRight, false, false},
    {Mask::kLeft, false, true},   {Mask::kNone, false, true},
    {Mask::kNone, true, false},
};
inline constexpr int kNumOrders = sizeof(kOrders) / sizeof(kOrders[0]);

// Shapes that are not shared out; over rows, within a block of steps and over
// more of them; over units, the same. step_loop_test.cc checks that they are.
inline const std::vector<Dims>& SharedSequences() {
  static const std::vector<Dims> shapes = {
      {3, 5, 7, 4},   {40, 7, 20, 9}, {130, 3, 20, 8},
      {2, 5, 150, 3}, {7, 2, 77, 70},
  };
  return shapes;
}

// The steps of a sequence in the order in which they are done.
class Steps {
 public:
  Steps(const Dims& dims, const Order& order) : dims_(dims), order_(order) {}

  // The row of [steps · batch, …] in memory.
  int64_t At(int64_t step, int64_t b) const {
    const int64_t t = Time(step);
    return order_.time_major ? t * dims_.batch + b : b * dims_.steps + t;
  }

  bool Counts(int64_t step, int64_t b) const {
    const int64_t t = Time(step);
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

  SequenceShape Shape() const {
    SequenceShape shape;
    shape.steps = dims_.steps;
    shape.batch = dims_.batch;
    shape.input = dims_.input;
    shape.units = dims_.units;
    shape.time_major = order_.time_major;
    shape.backwards = order_.backwards;
    return shape;
  }

  // The mask as an engine takes it, guarded; nothing where there is none. Any
  // byte but 0 counts.
  std::optional<GuardedBlock> MaskBytes() const {
    if (order_.mask == Mask::kNone) return std::nullopt;
    const HeapIsDry heap(false);
    GuardedBlock block(dims_.steps * dims_.batch, 1);
    constexpr unsigned char kOn[] = {1, 255, 128, 2};
    for (int64_t step = 0; step < dims_.steps; ++step) {
      for (int64_t b = 0; b < dims_.batch; ++b) {
        const int64_t at = At(step, b);
        block.data()[at] = Counts(step, b) ? kOn[at % 4] : 0;
      }
    }
    return block;
  }

  // Makes `states` [steps, batch, H] such that a skipped step has the state of
  // the step before it, or `initial` [B, H].
  void CarryOverSkipped(const Tensor& initial, Tensor* states) const {
    for (int64_t step = 0; step < dims_.steps; ++step) {
      for (int64_t b = 0; b < dims_.batch; ++b) {
        if (Counts(step, b)) continue;
        for (int64_t j = 0; j < dims_.units; ++j) {
          (*states)[At(step, b) * dims_.units + j] =
              Before(step, b, initial, *states)[j];
        }
      }
    }
  }

  // Makes `outputs` [steps, batch, H] zero where a step is skipped.
  void ClearSkipped(Tensor* outputs) const {
    for (int64_t step = 0; step < dims_.steps; ++step) {
      for (int64_t b = 0; b < dims_.batch; ++b) {
        if (Counts(step, b)) continue;
        for (int64_t j = 0; j < dims_.units; ++j) {
          (*outputs)[At(step, b) * dims_.units + j] = 0;
        }
      }
    }
  }

  // The state of row b before a step.
  const Real* Before(int64_t step, int64_t b, const Tensor& initial,
                     const Tensor& states) const {
    return step == 0 ? initial.data() + b * dims_.units
                     : states.data() + At(step - 1, b) * dims_.units;
  }

 private:
  int64_t Time(int64_t step) const {
    return order_.backwards ? dims_.steps - 1 - step : step;
  }

  const Dims dims_;
  const Order order_;
};

// sum += Σₖ a[k] · w[k, column], where w has `width` columns.
inline void AddDot(const Real* a, int64_t depth, const Tensor& w, int64_t width,
                   int64_t column, Sum* sum) {
  for (int64_t k = 0; k < depth; ++k) {
    sum->AddProduct(a[k], w[k * width + column]);
  }
}

// Σ over columns of d[column] · w[row, column].
inline Real DotTransposed(const Tensor& d, const Tensor& w, int64_t row) {
  const auto width = static_cast<int64_t>(d.size());
  Sum sum;
  for (int64_t column = 0; column < width; ++column) {
    sum.AddProduct(d[column], w[row * width + column]);
  }
  return sum.Total();
}

// sums[k, column] += a[k] · d[column]
inline void AddOuter(const Real* a, int64_t depth, const Tensor& d,
                     std::vector<Sum>* sums) {
  for (int64_t k = 0; k < depth; ++k) {
    for (std::size_t column = 0; column < d.size(); ++column) {
      (*sums)[k * d.size() + column].AddProduct(a[k], d[column]);
    }
  }
}

inline Tensor Totals(const std::vector<Sum>& sums) {
  Tensor totals;
  for (const Sum& sum : sums) totals.push_back(sum.Total());
  return totals;
}

// Weights of a state, [H, width]. Over many steps a bound on roundoff grows
// with Σ |w| of a column, and soon says nothing. At a half to one it stays
// within bounds, while every weight still matters.
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
inline void SparseIntegers(int64_t depth, int64_t gates, int64_t units,
                           bool of_state, Tensor* w) {
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

// A gradient through a skipped step is a product of weights with zeros or no
// product at all: of weights that are not finite it may be either.
inline void MakeFinite(Tensor* w) {
  for (Real& element : *w) {
    if (!std::isfinite(element.value)) element = 0;
  }
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_SEQUENCE_H_
