// Declares one engine call under test: drawing its inputs, guarding its memory,
// running it, and comparing what came out with the reference.

#ifndef BLOCKRNN_TESTS_CPP_HARNESS_H_
#define BLOCKRNN_TESTS_CPP_HARNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/op.h"
#include "tests/cpp/storage.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {

// How inputs are drawn.
enum class Data {
  kPlain,     // ordinary numbers
  kLarge,     // eight times as large: gates saturate, half overflows
  kTiny,      // down to subnormal numbers
  kSpecials,  // some are NaN, infinite or zero
  kIntegers,  // small integers, with identity activations
};

struct Case {
  const Op* op = nullptr;
  Type type = Type::kFloat;
  Dims dims;
  int variant = 0;
  Data data = Data::kPlain;
  uint64_t seed = 1;
  int offset = 0;  // elements that each tensor is off its alignment
  bool heap_is_dry = false;
  HostOptions host;
};

struct Outcome {
  cpu::Status status = cpu::Status::kOk;
  // What went wrong but for the numbers: memory touched that is not the
  // engine's, an exception, a host's rule broken. Empty when nothing.
  std::string problem;
  std::vector<std::vector<unsigned char>> outputs;
  int allocations = 0;
  int polls = 0;
  int closures = 0;  // that the engine scheduled
};

// The case in one line, for messages.
std::string Describe(const Case& c);

// Calls the engine. The inputs follow from op, type, dims, variant, data and
// seed; nothing else changes them.
Outcome RunCase(const Case& c);

// The outputs by the reference; an unused one may be empty.
std::vector<Tensor> Want(const Case& c);

// What is wrong with the numbers of an outcome whose status is kOk, against
// the reference; empty when nothing is.
std::string Compare(const Case& c, const Outcome& outcome);

// RunCase and, when that says kOk, Compare; any other status is wrong as well.
std::string RunAndCompare(const Case& c);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_HARNESS_H_
