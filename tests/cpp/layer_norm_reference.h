// Defines the reference of layer normalisation, for the cells with it.

#ifndef BLOCKRNN_TESTS_CPP_LAYER_NORM_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_LAYER_NORM_REFERENCE_H_

#include <cmath>
#include <cstdint>

#include "tests/cpp/op.h"

namespace blockrnn::test {

inline Real Over(const Real& a, int64_t count) {
  const auto n = static_cast<double>(count);
  return {a.value / n, (a.scale + std::fabs(a.value)) / n};
}

// 1 / √(x + epsilon)
inline Real ReciprocalRoot(const Real& x, double epsilon) {
  const double root = 1 / std::sqrt(x.value + epsilon);
  const double slope = 0.5 * root * root * root;
  return {root, slope * (x.scale + std::fabs(x.value) + epsilon) + root};
}

struct Normalized {
  Tensor hat;
  Real rstd;
};

inline Normalized Normalize(const Tensor& row, double epsilon) {
  const auto count = static_cast<int64_t>(row.size());
  Sum sum;
  for (const Real& element : row) sum.Add(element);
  const Real mean = Over(sum.Total(), count);
  Sum squares;
  Tensor hat;
  for (const Real& element : row) {
    hat.push_back(element - mean);
    squares.AddProduct(hat.back(), hat.back());
  }
  const Real rstd = ReciprocalRoot(Over(squares.Total(), count), epsilon);
  for (Real& element : hat) element = element * rstd;
  return {hat, rstd};
}

// The gradient before a norm, of g = gamma ∘ d.
inline Tensor NormGrad(const Tensor& g, const Real* hat, const Real& rstd) {
  const auto count = static_cast<int64_t>(g.size());
  Sum sum, with_hat;
  for (int64_t j = 0; j < count; ++j) {
    sum.Add(g[j]);
    with_hat.AddProduct(g[j], hat[j]);
  }
  const Real mean = Over(sum.Total(), count);
  const Real mean_with_hat = Over(with_hat.Total(), count);
  Tensor out;
  for (int64_t j = 0; j < count; ++j) {
    out.push_back(rstd * (g[j] - mean - hat[j] * mean_with_hat));
  }
  return out;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_LAYER_NORM_REFERENCE_H_
