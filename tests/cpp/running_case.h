// Declares a record of the running test case, for a message when it crashes.

#ifndef BLOCKRNN_TESTS_CPP_RUNNING_CASE_H_
#define BLOCKRNN_TESTS_CPP_RUNNING_CASE_H_

#include <string>

namespace blockrnn::test {

// The case that this thread runs; empty before the first.
const char* RunningCase();
void SetRunningCase(const std::string& description);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_RUNNING_CASE_H_
