// Declares the harness of one engine call under test: it draws the inputs,
// guards the memory, runs the call and compares the outputs with the reference.

#ifndef BLOCKRNN_TESTS_CPP_HARNESS_H_
#define BLOCKRNN_TESTS_CPP_HARNESS_H_

#include <cstdint>
#include <functional>
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
  WeightForm weights;
  bool batch_invariant = false;
  // Changes the inputs that were drawn; may be empty.
  std::function<void(const std::vector<TensorSpec>&, std::vector<Tensor>*)>
      edit;
  HostOptions host;
};

struct Outcome {
  cpu::Status status = cpu::Status::kOk;
  // Errors other than wrong numbers: an access outside the engine's memory, an
  // exception, a violated rule of the host. Empty if there is none.
  std::string problem;
  std::vector<std::vector<unsigned char>> outputs;
  std::vector<unsigned char> packed;  // frozen weights
  int allocations = 0;
  int polls = 0;
  int closures = 0;  // that the engine scheduled
};

// The case in one line, for messages.
std::string Describe(const Case& c);

// Calls the engine. The inputs follow from op, type, dims, variant, data and
// seed; nothing else changes them.
Outcome RunCase(const Case& c);

// The inputs, rounded to the case's type.
std::vector<Tensor> DrawInputs(const Case& c);

// The outputs by the reference; an unused one may be empty.
std::vector<Tensor> Want(const Case& c);

// How the numbers of an outcome whose status is kOk differ from the reference;
// empty if they do not.
std::string Compare(const Case& c, const Outcome& outcome);

// RunCase and, if its status is kOk, Compare; any other status is an error.
std::string RunAndCompare(const Case& c);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_HARNESS_H_
