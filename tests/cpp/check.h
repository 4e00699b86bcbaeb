// Owns the test table: a name and a function each. A test fails by telling what
// is wrong, and goes on, so that one run shows all there is.
//
// This is small enough to own: a test framework would be one more thing to
// install for whoever runs the tests, and would have to be built under each
// sanitizer as well.

#ifndef BLOCKRNN_TESTS_CPP_CHECK_H_
#define BLOCKRNN_TESTS_CPP_CHECK_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace blockrnn::test {

struct Options {
  bool full = false;  // the long form: more shapes, more random inputs
  std::string isa;    // what the engine must say it was compiled for
  // Run the tests whose name has one of these in it; all when there is none.
  std::vector<std::string> only;
  std::string turns;     // the file in which processes share the tests out
  std::string fuzz_hex;  // run this one fuzzer input and nothing else
};

// As given on the command line; constant while tests run.
inline Options& TestOptions() {
  static Options options;
  return options;
}

// What went wrong in the test that runs now.
class Failures {
 public:
  // Does nothing when `what` is empty.
  void Add(const std::string& what) {
    if (!what.empty()) all_.push_back(what);
  }
  void Expect(bool ok, const std::string& what) {
    if (!ok) Add(what);
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

using TestFunction = std::function<void(Failures*)>;

struct Test {
  std::string name;
  TestFunction run;
};

inline std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

// For the initialiser of a constant, so that a test needs no list elsewhere.
inline bool AddTest(std::string name, TestFunction run) {
  Tests().push_back({std::move(name), std::move(run)});
  return true;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_CHECK_H_
