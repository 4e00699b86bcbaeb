// Defines checked sums and products of sizes: sizes come from the caller of an
// op, and one that wraps around would be a buffer that is too small.

#ifndef BLOCKRNN_CORE_CHECKED_INT_H_
#define BLOCKRNN_CORE_CHECKED_INT_H_

#include <cstdint>
#include <optional>

namespace blockrnn {

// A non-negative size, or a mark that it does not fit. A product with 0
// is 0 only where the other factor fits.
class CheckedInt {
 public:
  CheckedInt(int64_t value) : value_(value) {}  // NOLINT: a number is one

  friend CheckedInt operator+(const CheckedInt& a, const CheckedInt& b) {
    CheckedInt sum(0);
    const bool wraps = __builtin_add_overflow(a.value_, b.value_, &sum.value_);
    sum.fits_ = a.fits_ && b.fits_ && !wraps;
    return sum;
  }
  friend CheckedInt operator*(const CheckedInt& a, const CheckedInt& b) {
    CheckedInt product(0);
    const bool wraps =
        __builtin_mul_overflow(a.value_, b.value_, &product.value_);
    product.fits_ = a.fits_ && b.fits_ && !wraps;
    return product;
  }

  // Rounded up to a multiple of `unit`.
  CheckedInt RoundUp(int64_t unit) const {
    CheckedInt up = *this + (unit - 1);
    up.value_ -= up.fits_ ? up.value_ % unit : 0;
    return up;
  }

  // Divided by `unit`, rounded up.
  CheckedInt DivideUp(int64_t unit) const {
    CheckedInt up = RoundUp(unit);
    up.value_ /= unit;
    return up;
  }

  std::optional<int64_t> value() const {
    return fits_ ? std::optional<int64_t>(value_) : std::nullopt;
  }

 private:
  int64_t value_;
  bool fits_ = true;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_CHECKED_INT_H_
