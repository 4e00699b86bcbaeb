// Declares what a signature of a SavedModel takes and returns.

#ifndef TF_BLOCKRNN_EXAMPLES_CPP_SERVING_SIGNATURE_H_
#define TF_BLOCKRNN_EXAMPLES_CPP_SERVING_SIGNATURE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// An input or an output.
struct TensorInfo {
  std::string operation;      // of the graph
  int index = 0;              // of the operation's output
  int dtype = 0;              // a TF_DataType
  std::vector<int64_t> dims;  // -1 where a size is open
};

// Both by the names that the signature gives them.
struct Signature {
  std::map<std::string, TensorInfo> inputs;
  std::map<std::string, TensorInfo> outputs;
};

// Reads all signatures from a serialized MetaGraphDef, which
// TF_LoadSessionFromSavedModel returns. Throws std::runtime_error if it is
// corrupt.
//
// The C API has no functions for them, and linking with the Protocol Buffers
// of a TensorFlow wheel ties a program to its C++ ABI. So this reads the few
// fields itself.
std::map<std::string, Signature> ReadSignatures(const void* data, size_t size);

#endif  // TF_BLOCKRNN_EXAMPLES_CPP_SERVING_SIGNATURE_H_
