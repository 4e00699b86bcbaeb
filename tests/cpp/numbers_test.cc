// Tests every op, type and choice of attrs against the reference on shapes at
// the engine's boundaries, and exactly on integers.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"

namespace blockrnn::test {
namespace {

// batch, input, units. Empty dims; one; each side of 4, 8 and 16 lanes; H ≠ I;
// each side of a tile of rows, of a panel of units, of 64, 128 and 256.
const std::vector<Dims> kSmallShapes = {
    {0, 0, 0},    {0, 3, 5},    {1, 0, 0},   {1, 0, 3},   {1, 3, 0},
    {2, 0, 7},    {9, 0, 17},   {9, 17, 0},  {40, 5, 0},  {40, 0, 5},
    {1, 1, 1},    {1, 7, 17},   {2, 17, 7},  {3, 1, 8},   {4, 4, 4},
    {5, 3, 5},    {5, 8, 9},    {6, 9, 15},  {7, 15, 16}, {7, 16, 17},
    {8, 7, 31},   {13, 33, 32}, {17, 5, 33}, {12, 31, 3}, {19, 2, 63},
    {6, 40, 12},  {18, 13, 24}, {3, 64, 65}, {5, 65, 64}, {4, 130, 2},
    {24, 24, 48}, {11, 1, 130},
};
const std::vector<Dims> kLargeShapes = {
    {70, 65, 66}, {33, 130, 67}, {2, 128, 129}, {6, 300, 20},
    {65, 3, 258}, {125, 7, 20},  {18, 260, 40},
};

// All combinations of these would take too long; a fixed sample is drawn.
constexpr int64_t kBatches[] = {0,  1,  2,  3,  4,  5,  6,  7, 8,
                                11, 12, 13, 16, 17, 33, 64, 70};
constexpr int64_t kWidths[] = {0,  1,  2,  3,  4,  5,   7,   8,   9,
                               12, 15, 16, 17, 24, 31,  32,  33,  47,
                               48, 49, 63, 64, 65, 127, 128, 129, 130};
constexpr int kSampledShapes = 300;

// batch, input, units, steps. Empty dims; one; the ends of vectors; many steps
// and many rows, in one block of steps (SequenceRows::MaxRowsInBlock) and,
// where the input is wide, over the end of one.
const std::vector<Dims> kSequenceShapes = {
    {0, 0, 0, 0},     {0, 3, 5, 2},     {1, 0, 0, 3},     {1, 3, 0, 2},
    {1, 0, 3, 2},     {3, 2, 5, 0},     {1, 1, 1, 1},     {2, 3, 5, 1},
    {2, 3, 5, 4},     {3, 5, 7, 3},     {7, 4, 9, 2},     {1, 7, 17, 6},
    {4, 16, 16, 3},   {7, 15, 33, 2},   {13, 3, 12, 5},   {2, 33, 65, 2},
    {20, 3, 5, 40},   {500, 2, 3, 3},   {1, 2, 5, 500},   {33, 40, 17, 2},
    {20, 140, 5, 40}, {500, 140, 3, 3}, {1, 140, 5, 500},
};
constexpr int kSampledSequences = 60;

std::vector<Dims> Shapes(const Op& op) {
  std::vector<Dims> shapes = op.sequence ? kSequenceShapes : kSmallShapes;
  if (!op.sequence) {
    shapes.insert(shapes.end(), kLargeShapes.begin(), kLargeShapes.end());
  }
  if (FullLength()) {
    Random random(3);
    for (int n = 0; n < (op.sequence ? kSampledSequences : kSampledShapes);
         ++n) {
      Dims dims;
      dims.batch = kBatches[random.Below(std::size(kBatches))];
      dims.input = kWidths[random.Below(std::size(kWidths))];
      dims.units = kWidths[random.Below(std::size(kWidths))];
      if (op.sequence) dims.steps = 1 + random.Below(5);
      shapes.push_back(dims);
    }
  }
  return shapes;
}

// Over many steps only ordinary numbers test anything: large numbers make a
// sequence chaotic, one NaN is soon everywhere, and integers grow.
int64_t MostSteps(const Op& op, Data data) {
  constexpr int64_t kFewSteps = 3;
  if (data == Data::kIntegers) return op.exact_steps;
  if (data == Data::kPlain) return std::numeric_limits<int64_t>::max();
  return data == Data::kLarge ? 2 : kFewSteps;
}

// Small shapes run every variant; larger ones alternate between them. For a
// sequence, which has many, the short form runs them all on ordinary numbers
// only.
void ForEachCase(const Op& op, Type type, Data data) {
  uint64_t seed = 1;
  uint64_t counter =
      static_cast<uint64_t>(type) + 4 * static_cast<uint64_t>(data);
  for (Dims dims : Shapes(op)) {
    dims.steps = std::min(dims.steps, MostSteps(op, data));
    const bool small =
        dims.batch * dims.steps * dims.units * (dims.input + 8) < 4000 &&
        (!op.sequence || data == Data::kPlain);
    const bool all = small || (FullLength() && !op.sequence);
    for (int n = 0; n < (all ? op.variants : 1); ++n) {
      Case c = MakeCase(op, type, dims,
                        all ? n : static_cast<int>(counter++ % op.variants));
      c.data = data;
      c.offset = static_cast<int>(seed % 2);
      c.seed = seed++;
      EXPECT_EQ(RunAndCompare(c), "");
      if (EnoughFailures()) return;
    }
  }
}

class Numbers : public OpTest {
 protected:
  void Check(Data data) const { ForEachCase(op(), type(), data); }
};
INSTANTIATE_TEST_SUITE_P(EveryOp, Numbers,
                         ::testing::ValuesIn(OpsAndTypes(&AnyOp)),
                         OpAndTypeName);

TEST_P(Numbers, Plain) { Check(Data::kPlain); }
TEST_P(Numbers, Large) { Check(Data::kLarge); }
TEST_P(Numbers, Tiny) { Check(Data::kTiny); }
// NaN and infinity propagate as in the equations, and no further.
TEST_P(Numbers, Specials) { Check(Data::kSpecials); }

// half and bfloat16 round the integers; their GEMMs are those of float.
bool HoldsIntegers(const Op& op, Type type) {
  return op.has_identity && SizeOf(type) >= 4;
}

class ExactIntegers : public Numbers {};
// Stacks have no identity form.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExactIntegers);
INSTANTIATE_TEST_SUITE_P(EveryOp, ExactIntegers,
                         ::testing::ValuesIn(OpsAndTypes(&HoldsIntegers)),
                         OpAndTypeName);

TEST_P(ExactIntegers, AreExact) { Check(Data::kIntegers); }

}  // namespace
}  // namespace blockrnn::test
