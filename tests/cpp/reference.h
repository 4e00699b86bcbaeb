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
  Real(double v, double s, bool o = false) : value(v), scale(s), open(o) {}

  double value = 0;
  double scale = 0;
  // Roundoff decided the sign of what was multiplied by infinity: it may be of
  // either sign, or NaN, and so may all that follows from it.
  bool open = false;
};

inline Real operator+(const Real& a, const Real& b) {
  const double value = a.value + b.value;
  return {value, a.scale + b.scale + std::fabs(value), a.open || b.open};
}

inline Real operator-(const Real& a, const Real& b) {
  const double value = a.value - b.value;
  return {value, a.scale + b.scale + std::fabs(value), a.open || b.open};
}

inline Real operator*(const Real& a, const Real& b) {
  // Some roundoffs of bfloat16.
  const auto unsure = [](const Real& x) {
    return x.scale > 0 && std::fabs(x.value) <= x.scale / 32;
  };
  const bool open = a.open || b.open || (std::isinf(a.value) && unsure(b)) ||
                    (std::isinf(b.value) && unsure(a));
  const double value = a.value * b.value;
  return {value,
          a.scale * std::fabs(b.value) + std::fabs(a.value) * b.scale +
              std::fabs(value),
          open};
}

// A sum of products. Its scale is the sum of the terms' sizes, not that of each
// partial sum: how a sum's error grows with its length is in the tolerance.
class Sum {
 public:
  void Add(const Real& a) {
    value_ += a.value;
    scale_ += a.scale + std::fabs(a.value);
    open_ = open_ || a.open;
  }
  void AddProduct(const Real& a, const Real& b) { Add(a * b); }
  void Add(const Sum& other) {
    value_ += other.value_;
    scale_ += other.scale_;
    open_ = open_ || other.open_;
  }
  Real Total() const { return {value_, scale_, open_}; }

 private:
  double value_ = 0;
  double scale_ = 0;
  bool open_ = false;
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
      if (line.value < 0) return {0, scale, x.open};
      return line.value > 1 ? Real(1, scale, x.open) : line;
    }
    const double s = 1 / (1 + std::exp(-x.value));
    // At infinity the slope is 0, and 0 · ∞ is not wanted.
    const double passed = std::isinf(x.value) ? 0 : s * (1 - s) * x.scale;
    return {s, passed + s, x.open};
  }
  Real Candidate(const Real& x) const {
    if (identity) return x;
    if (options.relu) return x.value < 0 ? Real(0, x.scale, x.open) : x;
    const double t = std::tanh(x.value);
    const double passed = std::isinf(x.value) ? 0 : (1 - t * t) * x.scale;
    return {t, passed + std::fabs(t), x.open};
  }
};

// [−limit, limit]; a NaN stays.
inline Real ClipTo(const Real& x, double limit) {
  const double scale = std::isinf(x.value) ? limit : x.scale;
  if (x.value > limit) return {limit, scale, x.open};
  if (x.value < -limit) return {-limit, scale, x.open};
  return x;
}

// The elements of one tensor, row-major.
using Tensor = std::vector<Real>;
// By the names of the engine's arguments.
using NamedTensors = std::map<std::string, Tensor>;

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_REFERENCE_H_
