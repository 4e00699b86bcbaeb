// Implements the storage types for the tests: the bits of a number in memory.
// Written from the formats (IEEE 754 binary16; bfloat16 as the upper half of
// binary32), not with Eigen, which the engine uses.

#ifndef BLOCKRNN_TESTS_CPP_STORAGE_H_
#define BLOCKRNN_TESTS_CPP_STORAGE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace blockrnn::test {

enum class Type { kHalf, kBfloat16, kFloat, kDouble };

// The types under test: those that --//cc/kernels/cpu:types selects.
inline constexpr Type kTypes[] = {
#if defined(BLOCKRNN_TEST_F16)
    Type::kHalf,
#endif
#if defined(BLOCKRNN_TEST_BF16)
    Type::kBfloat16,
#endif
#if defined(BLOCKRNN_TEST_F32)
    Type::kFloat,
#endif
#if defined(BLOCKRNN_TEST_F64)
    Type::kDouble,
#endif
};

constexpr bool IsTested(Type type) {
  for (const Type tested : kTypes) {
    if (tested == type) return true;
  }
  return false;
}

inline const char* Name(Type type) {
  switch (type) {
    case Type::kHalf:
      return "half";
    case Type::kBfloat16:
      return "bfloat16";
    case Type::kFloat:
      return "float";
    case Type::kDouble:
      return "double";
  }
  return "?";
}

inline std::size_t SizeOf(Type type) {
  if (type == Type::kDouble) return 8;
  return type == Type::kFloat ? 4 : 2;
}

namespace internal {

struct Format16 {
  int fraction_bits;
  int bias;
  int infinity;  // the bits of +infinity: all ones in the exponent
};

inline Format16 FormatOf(Type type) {
  return type == Type::kHalf ? Format16{10, 15, 0x7C00}
                             : Format16{7, 127, 0x7F80};
}

// To the nearest, ties to even.
inline uint16_t Encode16(const Format16& format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  // A quiet NaN: the highest bit of the fraction is set.
  if (std::isnan(value)) {
    return static_cast<uint16_t>(format.infinity |
                                 1 << (format.fraction_bits - 1));
  }
  if (std::isinf(value)) return static_cast<uint16_t>(sign | format.infinity);
  if (value == 0) return static_cast<uint16_t>(sign);
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [½, 1) · 2^exponent
  exponent -= 1;                 // in [1, 2) · 2^exponent
  // Below 1 − bias the exponent stays and the leading bit is lost: subnormal.
  if (exponent < 1 - format.bias) exponent = 1 - format.bias;
  const double steps = std::nearbyint(
      std::ldexp(std::fabs(value), format.fraction_bits - exponent));
  // A normal number's leading bit, and a carry from rounding, add one to the
  // exponent field by themselves.
  const int64_t bits = (static_cast<int64_t>(exponent + format.bias - 1)
                        << format.fraction_bits) +
                       static_cast<int64_t>(steps);
  if (bits >= format.infinity) {
    return static_cast<uint16_t>(sign | format.infinity);
  }
  return static_cast<uint16_t>(sign | bits);
}

inline double Decode16(const Format16& format, uint16_t bits) {
  const int magnitude = bits & 0x7FFF;
  double value = 0;
  if (magnitude > format.infinity) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (magnitude == format.infinity) {
    value = std::numeric_limits<double>::infinity();
  } else {
    const int exponent = magnitude >> format.fraction_bits;
    int fraction = magnitude & ((1 << format.fraction_bits) - 1);
    if (exponent > 0) fraction += 1 << format.fraction_bits;
    value = std::ldexp(fraction, (exponent > 0 ? exponent : 1) - format.bias -
                                     format.fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace internal

// Writes `value`, rounded to `type`, to `to`, which may be unaligned.
inline void Encode(Type type, double value, void* to) {
  if (type == Type::kDouble) {
    std::memcpy(to, &value, sizeof(value));
  } else if (type == Type::kFloat) {
    // Out of float's range is infinity by IEEE 754, and undefined in C++.
    float narrow = 0;
    const double limit = std::ldexp(2 - std::ldexp(1.0, -24), 127);
    if (std::fabs(value) >= limit) {
      narrow = std::copysign(std::numeric_limits<float>::infinity(),
                             static_cast<float>(std::copysign(1.0, value)));
    } else {
      narrow = static_cast<float>(value);
    }
    std::memcpy(to, &narrow, sizeof(narrow));
  } else {
    const uint16_t bits = internal::Encode16(internal::FormatOf(type), value);
    std::memcpy(to, &bits, sizeof(bits));
  }
}

inline double Decode(Type type, const void* from) {
  if (type == Type::kDouble) {
    double value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  if (type == Type::kFloat) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return internal::Decode16(internal::FormatOf(type), bits);
}

// The number of `type` that is nearest to `value`.
inline double RoundTo(Type type, double value) {
  unsigned char bytes[8];
  Encode(type, value, bytes);
  return Decode(type, bytes);
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_STORAGE_H_
