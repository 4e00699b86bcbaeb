// Declares an input of the fuzzer: a case, or a training call, and the bytes
// that encode it.

#ifndef BLOCKRNN_TESTS_CPP_FUZZ_INPUT_H_
#define BLOCKRNN_TESTS_CPP_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/cpp/op.h"

namespace blockrnn::test {

struct FuzzInput {
  Case c;
  // Instead of one call: a forward call and the backward call that reads what
  // it has saved, of the case's op, dims and variant.
  bool trains = false;
  int64_t span_steps = 0;
  bool saved_in_steps = false;
};

std::string Describe(const FuzzInput& input);

// Any bytes are an input. After the last byte there are zeros.
FuzzInput Decode(const uint8_t* data, std::size_t size);

// The bytes of an input; nullopt if there are none.
std::optional<std::vector<uint8_t>> Encode(const FuzzInput& input);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_FUZZ_INPUT_H_
