// Tests forward calls with frozen weights: they have the bits of calls without,
// or, in lower precision, the same bits on any number of threads.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

bool IsForwardSequence(const Op& op, Type) {
  return op.sequence && !op.backward;
}

// Sizes around multiples of a vector, steps around those from which on weights
// are packed, rows around those that are streamed. Every number of steps with
// every number of rows; some in which the input GEMM is fused, and some that
// are split over threads.
Dims DimsOf(int n) {
  constexpr int64_t kSteps[] = {1, 3, 11, 12, 30};
  constexpr int64_t kBatch[] = {1, 2, 4, 5, 17, 33};
  constexpr int64_t kSizes[] = {1, 7, 16, 17, 33, 65, 130};
  return {kBatch[n % 6], kSizes[n % 7], kSizes[(n * 3 + n / 7) % 7],
          kSteps[n % 5]};
}
constexpr int kNumDims = 30;

int ThreadsOf(int n) {
  constexpr int kThreads[] = {1, 2, 8};
  return kThreads[(n + n / 3) % 3];
}

class FrozenWeights : public OpTest {};
INSTANTIATE_TEST_SUITE_P(ForwardSequences, FrozenWeights,
                         ::testing::ValuesIn(OpsAndTypes(&IsForwardSequence)),
                         OpAndTypeName);

class LowPrecision : public OpTest {};
INSTANTIATE_TEST_SUITE_P(ForwardSequences, LowPrecision,
                         ::testing::ValuesIn(OpsAndTypes(&IsForwardOfFloat)),
                         OpAndTypeName);

// Of NaNs, which sign and payload may have from either operand of a sum, the
// same bits for all.
Outcome RunWithOneNan(const Case& c) {
  Outcome outcome = RunCase(c);
  const std::size_t size = SizeOf(c.type);
  for (auto& output : outcome.outputs) {
    for (std::size_t at = 0; at < output.size(); at += size) {
      if (std::isnan(Decode(c.type, &output[at]))) {
        std::fill_n(&output[at], size, 0xFF);
      }
    }
  }
  return outcome;
}

void ExpectBitsOfCallWithout(Case c, int threads) {
  c.weights.kind = WeightForm::kInPlace;
  const Outcome without = RunWithOneNan(c);
  EXPECT_EQ(without.problem, "") << Describe(c);
  c.weights.kind = WeightForm::kFrozen;
  c.host.num_threads = threads;
  const Outcome frozen = RunWithOneNan(c);
  EXPECT_EQ(frozen.problem, "") << Describe(c);
  EXPECT_EQ(frozen.status, cpu::Status::kOk) << Describe(c);
  EXPECT_TRUE(frozen.outputs == without.outputs) << Describe(c);
}

TEST_P(FrozenWeights, SameBits) {
  for (int n = 0; n < kNumDims && !EnoughFailures(); ++n) {
    for (int k = 0; k < (FullLength() ? kNumOrders : 2); ++k) {
      Case c = MakeCase(DimsOf(n), n + 7 * k);
      if (k == 1) c.data = Data::kSpecials;
      ExpectBitsOfCallWithout(c, ThreadsOf(n + k));
    }
  }
  for (const Dims& dims : SharedSequences()) {
    ExpectBitsOfCallWithout(MakeCase(dims, 0), 3);
  }
}

TEST_P(FrozenWeights, OutOfMemory) {
  for (const Precision precision :
       {Precision::kStorage, Precision::kBFloat16, Precision::kInt8}) {
    if (precision != Precision::kStorage && type() != Type::kFloat) continue;
    for (const Dims& dims : TwoShapes(op())) {
      Case c = MakeCase(dims, 2);
      c.weights = {WeightForm::kFrozen, precision};
      EXPECT_GT(ExpectOutOfMemory(c), 0);
    }
  }
}

// The same bits on any number of threads.
TEST_P(LowPrecision, SameBits) {
  int closures = 0;
  for (const Precision precision : {Precision::kBFloat16, Precision::kInt8}) {
    std::vector<Dims> shapes = SharedSequences();
    for (int n = 0; n < kNumDims; ++n) shapes.push_back(DimsOf(n));
    for (std::size_t n = 0; n < shapes.size() && !EnoughFailures(); ++n) {
      Case c = MakeCase(shapes[n], static_cast<int>(n));
      c.weights = {WeightForm::kFrozen, precision};
      const Outcome alone = ExpectStatus(cpu::Status::kOk, c);
      for (const int threads : {2, 8}) {
        c.host.num_threads = threads;
        closures += ExpectSameBits(c, alone).closures;
      }
    }
  }
  EXPECT_GT(closures, 0) << "no shape was large enough for a thread";
}

}  // namespace
}  // namespace blockrnn::test
