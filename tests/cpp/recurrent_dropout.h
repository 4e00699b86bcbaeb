// Implements recurrent dropout for the references: each gate reads the state
// before a step, multiplied by factors of its own.

#ifndef BLOCKRNN_TESTS_CPP_RECURRENT_DROPOUT_H_
#define BLOCKRNN_TESTS_CPP_RECURRENT_DROPOUT_H_

#include <cstdint>
#include <vector>

#include "tests/cpp/reference.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {

class RecurrentDropout {
 public:
  // factors: [gates, B, width], which must not matter where nothing is dropped.
  // A gate has `units` columns.
  RecurrentDropout(const Order& order, const Tensor& factors, int64_t batch,
                   int64_t width, int64_t units)
      : drops_(order.drops),
        factors_(factors),
        batch_(batch),
        width_(width),
        units_(units) {}

  // What a gate reads of h[width], the state of row b.
  Tensor Seen(int64_t gate, int64_t b, const Real* h) const {
    Tensor seen(h, h + width_);
    for (int64_t k = 0; k < width_ && drops_; ++k) {
      seen[k] = seen[k] * Factor(gate, b, k);
    }
    return seen;
  }

  // d, by what a gate reads of unit k of row b's state, as it is by the state.
  Real Passed(int64_t gate, int64_t b, int64_t k, const Real& d) const {
    return drops_ ? d * Factor(gate, b, k) : d;
  }

  // By unit k of the state of row b, of what it does through w[width, columns],
  // whose columns have the gradients d.
  Real StateGrad(const Tensor& d, const Tensor& w, int64_t b, int64_t k) const {
    if (!drops_) return DotTransposed(d, w, k);
    const auto columns = static_cast<int64_t>(d.size());
    Sum sum;
    for (int64_t gate = 0; gate * units_ < columns; ++gate) {
      Sum share;
      for (int64_t column = gate * units_; column < (gate + 1) * units_;
           ++column) {
        share.AddProduct(d[column], w[k * columns + column]);
      }
      sum.AddProduct(share.Total(), Factor(gate, b, k));
    }
    return sum.Total();
  }

  // By w: sums[k, column] += what the column's gate reads of h · d[column].
  void AddWeightGrad(const Real* h, int64_t b, const Tensor& d,
                     std::vector<Sum>* sums) const {
    const auto columns = static_cast<int64_t>(d.size());
    for (int64_t gate = 0; gate * units_ < columns; ++gate) {
      const Tensor seen = Seen(gate, b, h);
      for (int64_t k = 0; k < width_; ++k) {
        for (int64_t column = gate * units_; column < (gate + 1) * units_;
             ++column) {
          (*sums)[k * columns + column].AddProduct(seen[k], d[column]);
        }
      }
    }
  }

 private:
  const Real& Factor(int64_t gate, int64_t b, int64_t k) const {
    return factors_[(gate * batch_ + b) * width_ + k];
  }

  const bool drops_;
  const Tensor& factors_;
  const int64_t batch_;
  const int64_t width_;
  const int64_t units_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_RECURRENT_DROPOUT_H_
