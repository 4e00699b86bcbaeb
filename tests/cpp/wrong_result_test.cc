// Tests what the other tests rely on: that a wrong result is seen, in every
// element and after many steps, and that the intended engine is under test.

#include <cmath>
#include <cstddef>
#include <limits>

#include "cc/core/engine_version.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

// The change to an element is of the size of float's roundoff.
bool IsFloatWithReference(const Op& op, Type type) {
  return op.reference != nullptr && type == Type::kFloat;
}

class WrongResult : public OpTest {
 protected:
  // Makes elements of each output wrong, one at a time: a NaN, and off by
  // relative · |it| + absolute. Of larger outputs about `most` elements.
  static void ExpectSeen(const Case& c, std::size_t most, double relative,
                         double absolute) {
    const Outcome right = RunCase(c);
    EXPECT_EQ(Compare(c, right), "");
    const auto specs = c.op->outputs(c.dims, c.variant);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      if (!specs[t].used) continue;
      const std::size_t count = right.outputs[t].size() / SizeOf(c.type);
      for (std::size_t n = 0; n < count; n += count < most ? 1 : count / most) {
        Outcome wrong = right;
        unsigned char* const element = &wrong.outputs[t][n * SizeOf(c.type)];
        const double value = Decode(c.type, element);
        for (const double other :
             {std::numeric_limits<double>::quiet_NaN(),
              value + relative * std::fabs(value) + absolute}) {
          Encode(c.type, other, element);
          EXPECT_NE(Compare(c, wrong), "") << Describe(c) << specs[t].name;
        }
      }
    }
  }
};
// Of stacks, without a reference, there is none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WrongResult);
INSTANTIATE_TEST_SUITE_P(
    EveryOp, WrongResult,
    ::testing::ValuesIn(OpsAndTypes(&IsFloatWithReference)), OpAndTypeName);

TEST_P(WrongResult, IsSeen) {
  ExpectSeen(MakeCase({2, 3, 4}), 100, 2e-4, 2e-5);
  if (!op().sequence) return;
  // After many steps an error that is small beside the values is still seen.
  const double seen = SeenAfterManySteps(op().backward);
  ExpectSeen(MakeCase({20, 3, 5, 40}, kPlainOrder), 3, seen, seen);
}

TEST(Engine, IsTheOneUnderTest) {
  const cpu::Engine* engine = blockrnn_cpu_engine();
  EXPECT_EQ(engine->version, kEngineVersion<cpu::Engine>);
  EXPECT_STREQ(engine->isa, BLOCKRNN_ISA);
}

}  // namespace
}  // namespace blockrnn::test
