// Defines the tests' random numbers: the same on every machine and library.

#ifndef BLOCKRNN_TESTS_CPP_RANDOM_H_
#define BLOCKRNN_TESTS_CPP_RANDOM_H_

#include <cstdint>

namespace blockrnn::test {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Bits() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, n).
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(Bits() % static_cast<uint64_t>(n));
  }
  // In [0, 1).
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  // In [−1, 1).
  double Signed() { return 2 * Unit() - 1; }

 private:
  uint64_t state_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_RANDOM_H_
