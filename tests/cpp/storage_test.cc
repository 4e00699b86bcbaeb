// Tests the tests' own storage types, and that a write outside a guarded block
// is seen.

#include "tests/cpp/storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/cpp/guarded_block.h"

namespace blockrnn::test {
namespace {

// Known patterns, and a round trip of every 16-bit one.
TEST(Storage, KnownPatterns) {
  const auto bits = [](Type type, double value) {
    uint16_t patterns[4] = {};  // room for the widest type
    Encode(type, value, patterns);
    return patterns[0];
  };
  EXPECT_EQ(bits(Type::kHalf, 1), 0x3C00) << "half 1";
  EXPECT_EQ(bits(Type::kHalf, 65504), 0x7BFF) << "the largest half";
  EXPECT_EQ(bits(Type::kHalf, 65520), 0x7C00) << "half overflows";
  EXPECT_EQ(bits(Type::kHalf, 0x1p-24), 1) << "the smallest half";
  EXPECT_EQ(bits(Type::kHalf, 0x1p-25), 0) << "a tie goes to even";
  EXPECT_EQ(bits(Type::kHalf, 1 + 0x1.8p-10), 0x3C02) << "rounds up";
  EXPECT_EQ(bits(Type::kBfloat16, -1), 0xBF80) << "bfloat16 -1";
  EXPECT_EQ(bits(Type::kBfloat16, 1 + 0x1p-8), 0x3F80) << "a tie";
  for (const Type type : {Type::kHalf, Type::kBfloat16}) {
    for (int pattern = 0; pattern < 0x10000; ++pattern) {
      const uint16_t stored[4] = {static_cast<uint16_t>(pattern)};
      const double value = Decode(type, stored);
      if (std::isnan(value)) continue;
      EXPECT_EQ(bits(type, value), pattern) << Name(type);
    }
  }
}

#if !defined(BLOCKRNN_TEST_ASAN)  // which ends the run at such a write
// A write outside a tensor or scratch block, by one byte.
TEST(GuardedBlock, WriteOutsideIsSeen) {
  for (const int at : {-1, 5}) {
    GuardedBlock block(5, 0);
    EXPECT_TRUE(block.Intact());
    unsigned char* data = block.data();
    data[at] = 0;
    EXPECT_FALSE(block.Intact());
  }
}
#endif

}  // namespace
}  // namespace blockrnn::test
