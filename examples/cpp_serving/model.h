// Defines a SavedModel that the TensorFlow C API has loaded, and its calls.

#ifndef TF_BLOCKRNN_EXAMPLES_CPP_SERVING_MODEL_H_
#define TF_BLOCKRNN_EXAMPLES_CPP_SERVING_MODEL_H_

#include <tensorflow/c/c_api.h>

#include <memory>
#include <string>
#include <vector>

#include "signature.h"

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

// Loads the op library that fits this TensorFlow from the folder of the
// installed package. Once for a process, before a model is loaded. Throws
// std::runtime_error.
void LoadOps(const std::string& package);

// Any number of threads may call a model at the same time. All functions throw
// std::runtime_error where TensorFlow reports an error.
class Model {
 public:
  // threads: how many threads all calls share; 0 for one per processor.
  Model(const std::string& folder, const std::string& signature, int threads);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Signature& signature() const { return signature_; }

  // Inputs and outputs are in the order of the signature's names.
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs) const;

 private:
  TF_Graph* graph_;
  TF_Session* session_ = nullptr;
  Signature signature_;
  std::vector<TF_Output> inputs_, outputs_;
};

#endif  // TF_BLOCKRNN_EXAMPLES_CPP_SERVING_MODEL_H_
