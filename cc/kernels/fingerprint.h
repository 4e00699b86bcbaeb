// Defines the fingerprint of an array: 128 bits by which equal bytes are
// recognized, on any machine. It guards against mistakes and not against
// attacks: it is no cryptographic hash.

#ifndef BLOCKRNN_KERNELS_FINGERPRINT_H_
#define BLOCKRNN_KERNELS_FINGERPRINT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace blockrnn {

struct Fingerprint {
  std::array<uint64_t, 2> words = {};

  bool operator==(const Fingerprint& other) const {
    return words == other.words;
  }
  bool operator!=(const Fingerprint& other) const { return !(*this == other); }
};

inline constexpr int kFingerprintDigits = 32;

namespace fingerprint_internal {

// Odd, with about as many ones as zeros: the constants of splitmix64.
inline constexpr uint64_t kMultiplier = 0xbf58476d1ce4e5b9;
inline constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;
inline constexpr uint64_t kLastMultiplier = 0x94d049bb133111eb;

// For a given sum, other words give other sums.
inline uint64_t Add(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * kMultiplier;
  return sum ^ (sum >> 29);
}

inline uint64_t Finish(uint64_t sum) {
  sum = (sum ^ (sum >> 30)) * kMultiplier;
  sum = (sum ^ (sum >> 27)) * kLastMultiplier;
  return sum ^ (sum >> 31);
}

}  // namespace fingerprint_internal

// At some bytes per clock cycle: the sums of a block are independent. Words are
// little-endian, as in memory on every machine that TensorFlow is built for.
inline Fingerprint FingerprintOf(const void* data, std::size_t bytes) {
  namespace internal = fingerprint_internal;
  constexpr int kSums = 8;
  constexpr std::size_t kBlock = kSums * sizeof(uint64_t);
  uint64_t sums[kSums];
  for (int k = 0; k < kSums; ++k) sums[k] = (k + 1) * internal::kIncrement;
  const char* next = static_cast<const char*>(data);
  uint64_t words[kSums];
  std::size_t left = bytes;
  for (; left >= kBlock; left -= kBlock, next += kBlock) {
    std::memcpy(words, next, kBlock);
    for (int k = 0; k < kSums; ++k) sums[k] = internal::Add(sums[k], words[k]);
  }
  if (left > 0) {
    std::memset(words, 0, kBlock);
    std::memcpy(words, next, left);
    for (int k = 0; k < kSums; ++k) sums[k] = internal::Add(sums[k], words[k]);
  }
  Fingerprint result;
  for (int half = 0; half < 2; ++half) {
    uint64_t sum = bytes + half * internal::kIncrement;
    for (uint64_t each : sums) sum = internal::Finish(sum + each);
    result.words[half] = sum;
  }
  return result;
}

inline std::string HexDigits(const Fingerprint& fingerprint) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint64_t word : fingerprint.words) {
    for (int shift = 60; shift >= 0; shift -= 4) {
      text += kDigits[(word >> shift) & 15];
    }
  }
  return text;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_FINGERPRINT_H_
