// Defines whether tests run in their long form.

#ifndef BLOCKRNN_TESTS_CPP_TEST_LENGTH_H_
#define BLOCKRNN_TESTS_CPP_TEST_LENGTH_H_

#include <cstdlib>
#include <cstring>

namespace blockrnn::test {

// Whether to take more shapes and more random inputs (bazel test
// --config=full).
inline bool FullLength() {
  const char* const length = std::getenv("BLOCKRNN_TEST_LENGTH");
  return length != nullptr && std::strcmp(length, "full") == 0;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_TEST_LENGTH_H_
