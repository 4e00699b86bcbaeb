// Defines the activation functions of a cell, as a policy that every equation
// takes: StandardActivations in the engines, IdentityActivations in tests that
// feed small integers and compare exactly, so that any mistake in a GEMM,
// layout or index shows and rounding does not.

#ifndef BLOCKRNN_CORE_ACTIVATIONS_H_
#define BLOCKRNN_CORE_ACTIVATIONS_H_

#include <cmath>

#include "cc/core/portable.h"

namespace blockrnn {

// σ(x) = 1 / (1 + e⁻ˣ). e⁻ˣ may overflow to infinity, and 1 / infinity is the
// 0 that is wanted.
BLOCKRNN_HOST_DEVICE float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
BLOCKRNN_HOST_DEVICE double Sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

BLOCKRNN_HOST_DEVICE float Tanh(float x) { return tanhf(x); }
BLOCKRNN_HOST_DEVICE double Tanh(double x) { return tanh(x); }

// max(lo, min(x, hi)); a NaN stays a NaN, since no comparison with it holds.
BLOCKRNN_HOST_DEVICE float Clamp(float x, float lo, float hi) {
  return x < lo ? lo : (x > hi ? hi : x);
}
BLOCKRNN_HOST_DEVICE double Clamp(double x, double lo, double hi) {
  return x < lo ? lo : (x > hi ? hi : x);
}

// max(x, 0); a NaN stays a NaN.
BLOCKRNN_HOST_DEVICE float Relu(float x) { return x < 0 ? 0 : x; }
BLOCKRNN_HOST_DEVICE double Relu(double x) { return x < 0 ? 0 : x; }

// v, but 0 where x ≤ 0.
BLOCKRNN_HOST_DEVICE float WherePositive(float x, float v) {
  return x <= 0 ? 0 : v;
}
BLOCKRNN_HOST_DEVICE double WherePositive(double x, double v) {
  return x <= 0 ? 0 : v;
}

// Value is float, double, or a SIMD vector with functions of the same names
// (cc/kernels/cpu/gemm/simd.h), which the calls below find by their argument.
struct StandardActivations {
  template <class Value>
  static BLOCKRNN_HOST_DEVICE Value Gate(Value x) {
    return Sigmoid(x);
  }
  template <class Value>
  static BLOCKRNN_HOST_DEVICE Value Candidate(Value x) {
    return Tanh(x);
  }
};

struct IdentityActivations {
  template <class Value>
  static BLOCKRNN_HOST_DEVICE Value Gate(Value x) {
    return x;
  }
  template <class Value>
  static BLOCKRNN_HOST_DEVICE Value Candidate(Value x) {
    return x;
  }
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ACTIVATIONS_H_
