// Declares the reading of a caller's structs, which may be those of an older or
// a newer blockrnn.h than this library's.

#ifndef BLOCKRNN_INFERENCE_MODEL_READER_H_
#define BLOCKRNN_INFERENCE_MODEL_READER_H_

#include <vector>

#include "cc/inference/blockrnn.h"
#include "cc/inference/session_status.h"

namespace blockrnn {

// Copies of the structs of a model, as this library knows them: what an older
// program's do not have is zero. The arrays of weights are not copied.
class ModelReader {
 public:
  // Checks the sizes of the structs, and that what this library does not know
  // of them is zero; nothing else.
  SessionStatus Read(const blockrnn_model* given);

  // Its pointers to structs are to the copies.
  const blockrnn_model& model() const { return model_; }

 private:
  SessionStatus ReadLayers();
  SessionStatus ReadDirections();

  blockrnn_model model_ = {};
  std::vector<blockrnn_layer> layers_;
  std::vector<blockrnn_direction> directions_;
};

// Likewise of the struct of a call.
SessionStatus ReadSequences(const blockrnn_sequences* given,
                            blockrnn_sequences* read);

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_MODEL_READER_H_
