// Tests the reference of the simple RNN against finite differences of itself.

#include <gtest/gtest.h>

#include "tests/cpp/reference_checks.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

TEST(SimpleRnnReference, GradientOfSequence) {
  const GradientOp op = {"RNN", "RNNGrad", {0, 1, 2, 3, 6},
                         {0},   {0, 1},    {0, 1, 2, 3, 4}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant);
  }
}

}  // namespace
}  // namespace blockrnn::test
