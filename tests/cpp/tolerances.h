// Defines how far a result may be from the reference, and why. No other file
// defines a tolerance.

#ifndef BLOCKRNN_TESTS_CPP_TOLERANCES_H_
#define BLOCKRNN_TESTS_CPP_TOLERANCES_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/cpp/storage.h"

namespace blockrnn::test {

// half and bfloat16 are computed in float32; the storage type enters only when
// a finished output is rounded, which InRange below does exactly.
inline double ComputeEpsilon(Type type) {
  return type == Type::kDouble ? std::numeric_limits<double>::epsilon()
                               : std::numeric_limits<float>::epsilon();
}

// simd.h promises 3 units in the last place of float; the reference is rounded
// as well.
inline constexpr double kSigmoidUnits = 4;

// The formula of oneDNN's benchdnn: errors of a sum of n terms grow like log₂ n
// when it is summed by lanes and blocks; a backward pass has two sums in a row;
// 4 is its headroom, which here also pays for the few units in the last place
// of a vectorised exponential. It is relative to the size of what was added up
// (Real::scale, reference.h), so that cancellation in one element is no excuse
// in another.
inline double RelativeTolerance(Type type, bool backward, int64_t reduction) {
  const double n = static_cast<double>(reduction);
  const double levels = n > 2 ? std::ceil(std::log2(n)) : 1;
  return 4 * (backward ? 2 : 1) * levels * ComputeEpsilon(type);
}

// Where the processor multiplies bfloat16, the operands of a GEMM are rounded
// to it: by half of the last of 8 bits, again relative to what is added up. A
// step has up to two such GEMMs in a row, forward, and as many backward, which
// reads the results of the forward pass.
inline double RoundedOperands(bool backward, int64_t steps) {
  return (backward ? 4 : 2) * static_cast<double>(steps) * std::ldexp(1.0, -8);
}

// A result below the smallest normal number may be flushed or rounded away.
inline double AbsoluteTolerance(Type type) {
  return type == Type::kDouble ? std::numeric_limits<double>::min()
                               : double{std::numeric_limits<float>::min()};
}

// Those instructions also flush what is smaller than the smallest normal number
// to zero, each operand and each sum: that much of every term may be missing.
inline double FlushedOperands(int64_t terms) {
  return 2 * static_cast<double>(terms) *
         double{std::numeric_limits<float>::min()};
}

// Whether `got`, a number of `type`, is what some value within `tolerance` of
// `want` rounds to.
inline bool InRange(Type type, double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return RoundTo(type, want - tolerance) <= got &&
         got <= RoundTo(type, want + tolerance);
}

// After 40 steps of 20 rows in float, an error of this part of a value (of 1
// where the value is small) is seen. A gradient of a weight sums 800 terms, and
// has the bound of their sizes; it is less than one of them.
inline double SeenAfterManySteps(bool backward) {
  return backward ? 5e-2 : 5e-3;
}

// A sum that goes into a relu may have either sign when it is this part of what
// was added up: some hundred roundoffs of float. What follows from it may then
// be anything, which a scale of this size expresses.
inline constexpr double kReluUndecided = 1e-5;
inline constexpr double kAnything = 1e30;

// Identity activations and small integers compare exactly while every sum
// stays below this: float has 24 bits (double 53), and 2 of them are for the
// quarters that a forget bias or clip of one half can make.
inline double ExactLimit(Type type) {
  return type == Type::kDouble ? 0x1p51 : 0x1p22;
}

// Sums of float32 numbers that are published with eight digits.
inline constexpr double kGoldenSum = 1e-6;

// A difference over 1/64 to both sides of float32 results: a third derivative,
// and the rounding of both ends.
inline constexpr double kDifference = 1e-2;

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_TOLERANCES_H_
