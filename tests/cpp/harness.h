// Declares the harness of one engine call under test: it draws the inputs,
// guards the memory, runs the call and compares the outputs with the reference.

#ifndef BLOCKRNN_TESTS_CPP_HARNESS_H_
#define BLOCKRNN_TESTS_CPP_HARNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/op.h"

namespace blockrnn::test {

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
// The last case that this thread has run, for a message when it crashes.
const char* RunningCase();

// Calls the engine. The inputs follow from op, type, dims, variant, data and
// seed; nothing else changes them.
Outcome RunCase(const Case& c);

// From now on RunCase gives each case to this function instead of the engine;
// outputs are zeros, and Compare finds nothing wrong with them.
void RecordCases(void (*record)(const Case&));

// The inputs, rounded to the case's type.
std::vector<Tensor> DrawInputs(const Case& c);

// How the numbers of an outcome whose status is kOk differ from the reference;
// empty if they do not. Of an op without a reference, of ordinary inputs, which
// of them are NaN, as is memory that was not written.
std::string Compare(const Case& c, const Outcome& outcome);

// RunCase and, if its status is kOk, Compare; any other status is an error.
std::string RunAndCompare(const Case& c);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_HARNESS_H_
