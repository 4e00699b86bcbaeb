// Tests what the other tests rely on: that a wrong result is seen, in every
// element and after many steps, and that the intended engine is under test.

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

// The change to an element is of the size of float's roundoff.
bool IsFloat(const Op&, Type type) { return type == Type::kFloat; }
bool IsFloatSequence(const Op& op, Type type) {
  return op.sequence && type == Type::kFloat;
}

class WrongResult : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, WrongResult,
                         ::testing::ValuesIn(OpsAndTypes(&IsFloat)),
                         OpAndTypeName);

class WrongResultAfterManySteps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, WrongResultAfterManySteps,
                         ::testing::ValuesIn(OpsAndTypes(&IsFloatSequence)),
                         OpAndTypeName);

// Each output element is made NaN and then slightly wrong, one at a time.
TEST_P(WrongResult, IsSeen) {
  Case c;
  c.op = &op();
  c.dims = {2, 3, 4};
  const Outcome right = RunCase(c);
  EXPECT_EQ(Compare(c, right), "");
  const auto specs = op().outputs(c.dims, c.variant);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    for (std::size_t at = 0; at < right.outputs[t].size(); at += 4) {
      if (!specs[t].used) continue;
      Outcome wrong = right;
      unsigned char* element = wrong.outputs[t].data() + at;
      const double value = Decode(c.type, element);
      for (const double other : {std::numeric_limits<double>::quiet_NaN(),
                                 value + 2e-4 * std::fabs(value) + 2e-5}) {
        Encode(c.type, other, element);
        EXPECT_TRUE(!Compare(c, wrong).empty())
            << std::string(op().name) + " " + specs[t].name +
                   ": a wrong element is not seen";
      }
    }
  }
}

// After many steps an error that is small beside the values is still seen.
TEST_P(WrongResultAfterManySteps, IsSeen) {
  Case c;
  c.op = &op();
  c.dims = {20, 3, 5, 40};
  c.variant = kPlainOrder;
  const Outcome right = RunCase(c);
  EXPECT_EQ(Compare(c, right), "");
  const auto specs = op().outputs(c.dims, c.variant);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (!specs[t].used) continue;
    const std::size_t elements = right.outputs[t].size() / SizeOf(c.type);
    for (const std::size_t n : {std::size_t{0}, elements / 2, elements - 1}) {
      Outcome wrong = right;
      unsigned char* element = wrong.outputs[t].data() + n * SizeOf(c.type);
      const double value = Decode(c.type, element);
      Encode(c.type,
             value + SeenAfterManySteps(op().backward) * (std::fabs(value) + 1),
             element);
      EXPECT_TRUE(!Compare(c, wrong).empty())
          << std::string(op().name) + " " + specs[t].name +
                 ": a wrong element is not seen";
    }
  }
}

TEST(Engine, IsTheOneUnderTest) {
  const cpu::Engine* engine = blockrnn_cpu_engine();
  EXPECT_EQ(engine->version, cpu::kEngineVersion);
  EXPECT_STREQ(engine->isa, BLOCKRNN_ISA);
}

}  // namespace
}  // namespace blockrnn::test
