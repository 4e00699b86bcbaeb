// Defines the shapes and the comparison that tests of equal bits share.

#ifndef BLOCKRNN_TESTS_CPP_SAME_BITS_H_
#define BLOCKRNN_TESTS_CPP_SAME_BITS_H_

#include <vector>

#include "tests/cpp/harness.h"
#include "tests/cpp/op_tests.h"

namespace blockrnn::test {

// One shape that a single thread computes, and one that is split.
inline std::vector<Dims> TwoShapes(const Op& op) {
  if (op.sequence) return {{3, 5, 7, 4}, {40, 7, 56, 9}};
  return {{3, 5, 7}, {70, 33, 110}};
}

inline Case MakeCase(const Op& op, Type type, const Dims& dims, int variant) {
  Case c;
  c.op = &op;
  c.type = type;
  c.dims = dims;
  c.variant = variant % op.variants;
  return c;
}

// Calls the engine again and expects the same bits as before.
inline Outcome ExpectSameBits(const Case& c, const Outcome& want) {
  Outcome got = RunCase(c);
  EXPECT_EQ(got.problem, "") << Describe(c);
  EXPECT_EQ(got.status, cpu::Status::kOk) << Describe(c);
  // The bytes are too many to print.
  EXPECT_TRUE(got.outputs == want.outputs) << Describe(c) << ": other bits";
  return got;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_SAME_BITS_H_
