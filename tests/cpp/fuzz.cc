// The fuzzer: bytes choose an op, dims, attrs, a type, data and how the host
// behaves; the outcome is compared with the reference. For libFuzzer, and as a
// test with pseudo-random bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/cpp/fuzz_input.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"

namespace blockrnn::test {
namespace {

// Under ThreadSanitizer only data races are looked for: the numbers do not
// depend on it, and the reference would take most of the time.
#if defined(__SANITIZE_THREAD__)
constexpr bool kComparesNumbers = false;
#else
constexpr bool kComparesNumbers = true;
#endif

// The references in low precision read all outputs, of ordinary numbers, and do
// not bound how far a relu is off.
bool HasReference(const Case& c) {
  if (c.weights.precision == Precision::kStorage) return true;
  bool all = c.data == Data::kPlain && !c.activations.relu;
  for (const TensorSpec& output : c.op->outputs(c.dims, c.variant)) {
    all = all && output.used;
  }
  return all;
}

std::string RunAnyCase(const Case& c) {
  const Outcome outcome = RunCase(c);
  std::string wrong = outcome.problem;
  const bool failed_allocation = c.host.fail_allocation >= 0 &&
                                 outcome.allocations > c.host.fail_allocation;
  switch (outcome.status) {
    case cpu::Status::kOk:
      if (failed_allocation) {
        wrong += "kOk though an allocation failed";
      }
      if (kComparesNumbers && HasReference(c)) wrong += Compare(c, outcome);
      break;
    case cpu::Status::kOutOfMemory:
      if (!failed_allocation) wrong += "kOutOfMemory for nothing";
      break;
    case cpu::Status::kCancelled:
      if (c.host.cancel_at < 0) wrong += "kCancelled for nothing";
      break;
    default:
      wrong += "an unknown status";
  }
  return wrong;
}

// However what is read for backward is saved, results have the same bits.
std::string RunTraining(const FuzzInput& input) {
  TrainingCall call = {input.c.dims, input.c.variant};
  const Op& op = *input.c.op;
  const NamedArrays want = op.train(call);
  call.span_steps = input.span_steps;
  call.saved_in_steps = input.saved_in_steps;
  const NamedArrays got = op.train(call);
  for (const auto& [name, array] : want) {
    const auto same = [](float a, float b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    };
    if (!IsSaved(name) &&
        !std::equal(array.begin(), array.end(), got.at(name).begin(), same)) {
      return name + " has other bits";
    }
  }
  return "";
}

// What is wrong with the case that the bytes encode; empty if nothing is.
std::string RunFuzzInput(const uint8_t* data, std::size_t size) {
  const FuzzInput input = Decode(data, size);
  const std::string wrong =
      input.trains ? RunTraining(input) : RunAnyCase(input.c);
  return wrong.empty() ? "" : Describe(input) + ": " + wrong;
}

// The inputs are one sequence; each test case takes every eighth of them.
constexpr int kParts = 8;

// f(bytes) for the inputs of one part.
template <class F>
void ForEachInput(int part, const F& f) {
  const int inputs =
      (FullLength() ? 10000 : 750) * static_cast<int>(std::size(kTypes));
  Random random(20240229);
  for (int n = 0; n < inputs && !EnoughFailures(); ++n) {
    std::vector<uint8_t> bytes(32);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Bits());
    if (n % kParts == part) f(bytes);
  }
}

class Fuzz : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, Fuzz, ::testing::Range(0, kParts));

TEST_P(Fuzz, RandomInputs) {
  ForEachInput(GetParam(), [](const std::vector<uint8_t>& bytes) {
    EXPECT_EQ(RunFuzzInput(bytes.data(), bytes.size()), "");
  });
}

TEST_P(Fuzz, InputsAreEncoded) {
  ForEachInput(GetParam(), [](const std::vector<uint8_t>& bytes) {
    const FuzzInput input = Decode(bytes.data(), bytes.size());
    const auto encoded = Encode(input);
    ASSERT_TRUE(encoded) << Describe(input);
    EXPECT_EQ(Describe(Decode(encoded->data(), encoded->size())),
              Describe(input));
  });
}

TEST(FuzzInputs, CasesOfTests) {
  for (const Op& op : Ops()) {
    Case c = MakeCase(op, Type::kFloat, {33, 130, 66, 1}, op.variants - 1);
    c.host = {8, Pool::kLate, 7};
    const auto encoded = Encode({c});
    ASSERT_TRUE(encoded) << Describe(c);
    EXPECT_EQ(Describe(Decode(encoded->data(), encoded->size()).c),
              Describe(c));
    c.dims.batch = 100000;
    EXPECT_FALSE(Encode({c}));
  }
}

// What the tests that this binary has give to RunCase.
std::set<std::vector<uint8_t>> seeds;

void AddSeed(const Case& c) {
  if (const auto bytes = Encode({c})) seeds.insert(*bytes);
}

void WriteSeeds(const std::string& folder) {
  RecordCases(&AddSeed);
  ::testing::InitGoogleTest();
  // Those of these tests need the engine's results.
  ::testing::GTEST_FLAG(filter) =
      "-*WrongResult*:*Fuzz*:Engine*:LowPrecisionSums*";
  // Nothing is computed, so some fail.
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  [[maybe_unused]] const int failed = RUN_ALL_TESTS();
  int number = 0;
  for (const std::vector<uint8_t>& bytes : seeds) {
    std::ofstream file(folder + "/" + std::to_string(number++),
                       std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::printf("%d inputs from the tests in %s\n", number, folder.c_str());
}

}  // namespace
}  // namespace blockrnn::test

// With BLOCKRNN_SEEDS=<folder> the fuzzer only writes inputs there.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const folder = std::getenv("BLOCKRNN_SEEDS");
  if (folder == nullptr) return 0;
  blockrnn::test::WriteSeeds(folder);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string wrong = blockrnn::test::RunFuzzInput(data, size);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
