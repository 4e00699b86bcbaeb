// Declares the fuzzer: bytes choose an op, dims, attrs, a type, data and how
// the host behaves; the outcome is compared with the reference.

#ifndef BLOCKRNN_TESTS_CPP_FUZZ_H_
#define BLOCKRNN_TESTS_CPP_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace blockrnn::test {

// What is wrong with the case that the bytes encode; empty if nothing is.
std::string RunFuzzInput(const uint8_t* data, std::size_t size);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_FUZZ_H_
