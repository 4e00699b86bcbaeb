// Owns the tests that hold for every op: each is run once per op and type.

#ifndef BLOCKRNN_TESTS_CPP_OP_TESTS_H_
#define BLOCKRNN_TESTS_CPP_OP_TESTS_H_

#include <string>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/harness.h"

namespace blockrnn::test {

struct OpTest {
  const char* name;
  void (*run)(const Op&, Type, Failures*);
};

inline std::vector<OpTest>& OpTests() {
  static std::vector<OpTest> tests;
  return tests;
}

// For the initialiser of a constant.
inline bool AddOpTest(const char* name,
                      void (*run)(const Op&, Type, Failures*)) {
  OpTests().push_back({name, run});
  return true;
}

// Makes tests of them, when all ops are known.
inline void ExpandOpTests() {
  for (const OpTest& test : OpTests()) {
    for (const Op& op : Ops()) {
      for (const Type type : kTypes) {
        if (!op.Takes(type)) continue;
        AddTest(std::string(test.name) + "/" + op.name + "/" + Name(type),
                [test, &op, type](Failures* failures) {
                  test.run(op, type, failures);
                });
      }
    }
  }
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_OP_TESTS_H_
