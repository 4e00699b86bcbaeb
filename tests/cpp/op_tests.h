// Defines the fixture of tests that hold for every op: each runs once per op
// and type. Which ops there are depends on what the test binary is linked with.

#ifndef BLOCKRNN_TESTS_CPP_OP_TESTS_H_
#define BLOCKRNN_TESTS_CPP_OP_TESTS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "tests/cpp/harness.h"

namespace blockrnn::cpu {

// How GoogleTest prints a parameter.
inline void PrintTo(Status status, std::ostream* out) {
  constexpr const char* kNames[] = {"kOk", "kOutOfMemory", "kCancelled"};
  const int number = static_cast<int>(status);
  *out << (number >= 0 && number < 3 ? kNames[number] : "an unknown status");
}

}  // namespace blockrnn::cpu

namespace blockrnn::test {

// Whether to take more shapes and more random inputs (bazel test
// --config=full).
inline bool FullLength() {
  const char* const length = std::getenv("BLOCKRNN_TEST_LENGTH");
  return length != nullptr && std::strcmp(length, "full") == 0;
}

// After a few failed cases, more of them add no information.
inline bool EnoughFailures() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return info->result()->total_part_count() >= 5;
}

inline Case MakeCase(const Op& op, Type type, const Dims& dims,
                     int variant = 0) {
  Case c;
  c.op = &op;
  c.type = type;
  c.dims = dims;
  c.variant = variant % op.variants;
  return c;
}

// One shape that a single thread computes, and one that is split.
inline std::vector<Dims> TwoShapes(const Op& op) {
  if (op.sequence) return {{3, 5, 7, 4}, {40, 7, 56, 9}};
  return {{3, 5, 7}, {70, 33, 110}};
}

// Calls the engine, which must return this status.
inline Outcome ExpectStatus(cpu::Status status, const Case& c) {
  Outcome outcome = RunCase(c);
  EXPECT_EQ(outcome.problem, "") << Describe(c);
  EXPECT_EQ(outcome.status, status) << Describe(c);
  return outcome;
}

// Calls the engine again and expects the same bits as before.
inline Outcome ExpectSameBits(const Case& c, const Outcome& want) {
  Outcome got = ExpectStatus(cpu::Status::kOk, c);
  // The bytes are too many to print.
  EXPECT_TRUE(got.outputs == want.outputs) << Describe(c) << ": other bits";
  return got;
}

// Each allocation of a call fails once. Nothing but a failed allocation may
// stop a call. Returns how many there are.
inline int ExpectOutOfMemory(Case c) {
  c.host.num_threads = 3;
  c.host.pool = Pool::kNever;
  const int allocations = ExpectStatus(cpu::Status::kOk, c).allocations;
  EXPECT_LT(allocations, 64) << Describe(c);
  for (int n = 0; n < allocations; ++n) {
    c.host.fail_allocation = n;
    ExpectStatus(cpu::Status::kOutOfMemory, c);
  }
  return allocations;
}

struct OpAndType {
  const Op* op;
  Type type;
};

// Whether an output of a training call is saved for backward, and no result.
inline bool IsSaved(const std::string& name) {
  return name.find("_grad") == std::string::npos && name != "h" &&
         name != "h_last" && name != "cs_last";
}

class OpTest : public ::testing::TestWithParam<OpAndType> {
 protected:
  const Op& op() const { return *GetParam().op; }
  Type type() const { return GetParam().type; }
  Case MakeCase(const Dims& dims, int variant = 0) const {
    return test::MakeCase(op(), type(), dims, variant);
  }
};

inline bool AnyOp(const Op&, Type) { return true; }
inline bool IsSequence(const Op& op, Type) { return op.sequence; }

inline bool IsForwardOfFloat(const Op& op, Type type) {
  return op.sequence && !op.backward && type == Type::kFloat;
}

// The ops and types that a test is for.
inline std::vector<OpAndType> OpsAndTypes(bool (*chosen)(const Op&, Type)) {
  std::vector<OpAndType> all;
  for (const Op& op : Ops()) {
    for (const Type type : kTypes) {
      if (chosen(op, type)) all.push_back({&op, type});
    }
  }
  return all;
}

// As GRUBlockCell_float.
inline std::string OpAndTypeName(
    const ::testing::TestParamInfo<OpAndType>& info) {
  return std::string(info.param.op->name) + "_" + Name(info.param.type);
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_OP_TESTS_H_
