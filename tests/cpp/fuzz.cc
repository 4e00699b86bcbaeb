// The fuzzer: bytes choose an op, dims, attrs, a type, data and how the host
// behaves; the outcome is compared with the reference. For libFuzzer, and as a
// test with pseudo-random bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"

namespace blockrnn::test {
namespace {

// Reads choices from the bytes, then zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  int Byte() { return at_ < size_ ? data_[at_++] : 0; }
  int Below(int n) { return Byte() % n; }

 private:
  const uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// Mostly 0 … 40, where the ends of vectors, tiles and panels are; sometimes
// more, where blocks and threads are.
int64_t ChooseDim(Bytes* bytes) {
  const int byte = bytes->Byte();
  return byte < 246 ? byte % 41 : 41 + (byte - 246) * 13;
}

HostOptions ChooseHost(Bytes* bytes) {
  HostOptions host;
  constexpr int kThreads[] = {1, 2, 3, 8};
  host.num_threads = kThreads[bytes->Below(4)];
  host.pool = kPools[bytes->Below(kNumPools)];
  const int trouble = bytes->Byte();
  if (trouble < 24) host.fail_allocation = trouble % 6;
  if (trouble >= 24 && trouble < 40) host.cancel_at = trouble % 4;
  return host;
}

Case ChooseCase(Bytes* bytes) {
  Case c;
  const auto& ops = Ops();
  c.op = &ops[bytes->Below(static_cast<int>(ops.size()))];
  c.type = kTypes[bytes->Below(static_cast<int>(std::size(kTypes)))];
  c.variant = bytes->Below(c.op->variants);
  c.data = static_cast<Data>(bytes->Below(5));
  // The identity form is for types that hold the integers exactly.
  if (c.HasIdentity() && (SizeOf(c.type) < 4 || !c.op->has_identity)) {
    c.data = Data::kPlain;
  }
  c.offset = bytes->Below(2);
  c.host = ChooseHost(bytes);
  c.dims.batch = ChooseDim(bytes);
  c.dims.input = ChooseDim(bytes);
  c.dims.units = ChooseDim(bytes);
  c.dims.steps = bytes->Below(6);
  if (c.HasIdentity()) {
    c.dims.steps = std::min(c.dims.steps, c.op->exact_steps);
  }
  c.seed = static_cast<uint64_t>(bytes->Byte()) << 8;
  c.seed |= static_cast<uint64_t>(bytes->Byte());
  return c;
}

// Under ThreadSanitizer only data races are looked for: the numbers do not
// depend on it, and the reference would take most of the time.
#if defined(__SANITIZE_THREAD__)
constexpr bool kComparesNumbers = false;
#else
constexpr bool kComparesNumbers = true;
#endif

// What is wrong with the case that the bytes encode; empty if nothing is.
std::string RunFuzzInput(const uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const Case c = ChooseCase(&bytes);
  const Outcome outcome = RunCase(c);
  std::string wrong = outcome.problem;
  const bool failed_allocation = c.host.fail_allocation >= 0 &&
                                 outcome.allocations > c.host.fail_allocation;
  switch (outcome.status) {
    case cpu::Status::kOk:
      if (failed_allocation) {
        wrong += "kOk though an allocation failed";
      }
      if (kComparesNumbers) wrong += Compare(c, outcome);
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
  return wrong.empty() ? "" : Describe(c) + ": " + wrong;
}

// The inputs are one sequence; each test case takes every eighth of them.
constexpr int kParts = 8;

class Fuzz : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, Fuzz, ::testing::Range(0, kParts));

TEST_P(Fuzz, RandomInputs) {
  const int inputs =
      (FullLength() ? 10000 : 750) * static_cast<int>(std::size(kTypes));
  Random random(20240229);
  for (int n = 0; n < inputs && !EnoughFailures(); ++n) {
    uint8_t bytes[16];
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Bits());
    if (n % kParts != GetParam()) continue;
    EXPECT_EQ(RunFuzzInput(bytes, sizeof(bytes)), "");
  }
}

}  // namespace
}  // namespace blockrnn::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string wrong = blockrnn::test::RunFuzzInput(data, size);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
