// Defines the result of a session's functions.

#ifndef BLOCKRNN_INFERENCE_SESSION_STATUS_H_
#define BLOCKRNN_INFERENCE_SESSION_STATUS_H_

#include <string>
#include <utility>

#include "cc/inference/blockrnn.h"

namespace blockrnn {

// A code of the C interface, and its text.
struct SessionStatus {
  blockrnn_status code = BLOCKRNN_OK;
  std::string text;

  bool ok() const { return code == BLOCKRNN_OK; }
};

inline constexpr char kOutOfMemoryText[] = "there is no memory for it";

inline SessionStatus InvalidArgument(std::string text) {
  return {BLOCKRNN_INVALID_ARGUMENT, std::move(text)};
}
inline SessionStatus OutOfMemory() {
  return {BLOCKRNN_OUT_OF_MEMORY, kOutOfMemoryText};
}

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_SESSION_STATUS_H_
