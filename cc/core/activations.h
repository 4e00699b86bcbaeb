// Defines the activation functions of a cell, as a policy that every equation
// takes: StandardActivations in the engines, OtherActivations where a call
// chooses others, and IdentityActivations in tests that feed small integers and
// compare exactly, so that any mistake in a GEMM, layout or index shows and
// rounding does not.

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

// What a forward call on the CPU may have in their place.
struct ActivationOptions {
  // The slope a of gates with the hard sigmoid clip(a · x + 1/2, 0, 1); 0: σ.
  float hard_sigmoid = 0.0f;
  // Of the candidate, and of an LSTM's output: max(x, 0); else tanh.
  bool relu = false;

  BLOCKRNN_HOST_DEVICE explicit operator bool() const {
    return hard_sigmoid > 0 || relu;
  }
};

template <class Value>
struct OtherActivations {
  BLOCKRNN_HOST_DEVICE Value Gate(Value x) const {
    return options.hard_sigmoid > 0
               ? Clamp(Value(options.hard_sigmoid) * x + Value(0.5f), Value(0),
                       Value(1))
               : Sigmoid(x);
  }
  BLOCKRNN_HOST_DEVICE Value Candidate(Value x) const {
    return options.relu ? Relu(x) : Tanh(x);
  }

  ActivationOptions options;
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
