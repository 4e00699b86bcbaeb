// Defines the arithmetic of the references: double, naive loops, std::exp and
// std::tanh, nothing shared with cc/core. A Real also carries the size of what
// was summed up in it, which is what its tolerance is relative to.

#ifndef BLOCKRNN_TESTS_CPP_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cc/core/activations.h"

namespace blockrnn::test {

// A value, and the first-order bound on its error in roundoffs: a computation
// with unit roundoff ε that does the same steps is off by about ε · scale. A
// given number has none; each step adds its own result's size and passes on the
// errors of its operands.
struct Real {
  Real() = default;
  Real(double v) : value(v) {}  // NOLINT: a number is a Real
  Real(double v, double s) : value(v), scale(s) {}

  double value = 0;
  double scale = 0;
};

inline Real operator+(const Real& a, const Real& b) {
  const double value = a.value + b.value;
  return {value, a.scale + b.scale + std::fabs(value)};
}

inline Real operator-(const Real& a, const Real& b) {
  const double value = a.value - b.value;
  return {value, a.scale + b.scale + std::fabs(value)};
}

inline Real operator*(const Real& a, const Real& b) {
  const double value = a.value * b.value;
  return {value, a.scale * std::fabs(b.value) + std::fabs(a.value) * b.scale +
                     std::fabs(value)};
}

// A sum of products. Its scale is the sum of the terms' sizes, not that of each
// partial sum: how a sum's error grows with its length is in the tolerance.
class Sum {
 public:
  void Add(const Real& a) {
    value_ += a.value;
    scale_ += a.scale + std::fabs(a.value);
  }
  void AddProduct(const Real& a, const Real& b) { Add(a * b); }
  void Add(const Sum& other) {
    value_ += other.value_;
    scale_ += other.scale_;
  }
  Real Total() const { return {value_, scale_}; }

 private:
  double value_ = 0;
  double scale_ = 0;
};

// The activations: the ones of the equations, others, or the identity.
struct Activations {
  bool identity = false;
  ActivationOptions options = {};

  Real Gate(const Real& x) const {
    if (identity) return x;
    if (options.hard_sigmoid > 0) {
      const Real line = x * Real(options.hard_sigmoid) + Real(0.5);
      const double scale = std::isinf(line.value) ? 1 : line.scale;
      // A NaN stays.
      if (line.value < 0) return {0, scale};
      return line.value > 1 ? Real(1, scale) : line;
    }
    const double s = 1 / (1 + std::exp(-x.value));
    // At infinity the slope is 0, and 0 · ∞ is not wanted.
    const double passed = std::isinf(x.value) ? 0 : s * (1 - s) * x.scale;
    return {s, passed + s};
  }
  Real Candidate(const Real& x) const {
    if (identity) return x;
    if (options.relu) return x.value < 0 ? Real(0, x.scale) : x;
    const double t = std::tanh(x.value);
    const double passed = std::isinf(x.value) ? 0 : (1 - t * t) * x.scale;
    return {t, passed + std::fabs(t)};
  }
};

// [−limit, limit]; a NaN stays.
inline Real ClipTo(const Real& x, double limit) {
  if (x.value > limit) return {limit, std::isinf(x.value) ? limit : x.scale};
  if (x.value < -limit) return {-limit, std::isinf(x.value) ? limit : x.scale};
  return x;
}

// The elements of one tensor, row-major.
using Tensor = std::vector<Real>;
// By the names of the engine's arguments.
using NamedTensors = std::map<std::string, Tensor>;

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_REFERENCE_H_
