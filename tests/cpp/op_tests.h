// Declares the fixture of tests that hold for every op: each runs once per op
// and type. Which ops there are depends on what the test binary is linked with.

#ifndef BLOCKRNN_TESTS_CPP_OP_TESTS_H_
#define BLOCKRNN_TESTS_CPP_OP_TESTS_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/cpp/harness.h"
#include "tests/cpp/test_length.h"

namespace blockrnn::cpu {

// How GoogleTest prints a parameter.
inline void PrintTo(Status status, std::ostream* out) {
  constexpr const char* kNames[] = {"kOk", "kOutOfMemory", "kCancelled"};
  const int number = static_cast<int>(status);
  *out << (number >= 0 && number < 3 ? kNames[number] : "an unknown status");
}

}  // namespace blockrnn::cpu

namespace blockrnn::test {

// After a few failed cases, more of them add no information.
inline bool EnoughFailures() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return info->result()->total_part_count() >= 5;
}

struct OpAndType {
  const Op* op;
  Type type;
};

class OpTest : public ::testing::TestWithParam<OpAndType> {
 protected:
  const Op& op() const { return *GetParam().op; }
  Type type() const { return GetParam().type; }
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
      if (op.Takes(type) && chosen(op, type)) all.push_back({&op, type});
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
