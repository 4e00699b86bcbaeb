// Feeds pseudo-random bytes to the fuzzer, for builds without libFuzzer. With
// BLOCKRNN_FUZZ_INPUT=HEX in the environment, in the form that a failure
// prints, it runs that one input.

#include "tests/cpp/fuzz.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"

namespace blockrnn::test {
namespace {

std::string ToHex(const std::vector<uint8_t>& bytes) {
  std::string hex;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(
        std::strtoul(hex.substr(i, 2).c_str(), nullptr, 16)));
  }
  return bytes;
}

constexpr std::size_t kInputBytes = 16;
// The inputs are one sequence; each test case takes every eighth of them.
constexpr int kParts = 8;

class Fuzz : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, Fuzz, ::testing::Range(0, kParts));

TEST_P(Fuzz, RandomInputs) {
  if (const char* const hex = std::getenv("BLOCKRNN_FUZZ_INPUT")) {
    const std::vector<uint8_t> bytes = FromHex(hex);
    EXPECT_EQ(RunFuzzInput(bytes.data(), bytes.size()), "");
    return;
  }
  const int inputs =
      (FullLength() ? 10000 : 750) * static_cast<int>(std::size(kTypes));
  Random random(20240229);
  for (int n = 0; n < inputs && !EnoughFailures(); ++n) {
    std::vector<uint8_t> bytes(kInputBytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Bits());
    if (n % kParts != GetParam()) continue;
    EXPECT_EQ(RunFuzzInput(bytes.data(), bytes.size()), "")
        << "BLOCKRNN_FUZZ_INPUT=" << ToHex(bytes);
  }
}

}  // namespace
}  // namespace blockrnn::test
