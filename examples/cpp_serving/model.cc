// Implements the loading and calling of a SavedModel.

#include "model.h"

#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace {

template <class T, void (*kDelete)(T*)>
struct Deleter {
  void operator()(T* object) const { kDelete(object); }
};
template <class T, void (*kDelete)(T*)>
using Owned = std::unique_ptr<T, Deleter<T, kDelete>>;

class Status {
 public:
  TF_Status* get() const { return status_.get(); }

  // Throws what TensorFlow reports.
  void Check(const std::string& what) const {
    if (TF_GetCode(get()) != TF_OK) {
      throw std::runtime_error(what + ": " + TF_Message(get()));
    }
  }

 private:
  Owned<TF_Status, TF_DeleteStatus> status_{TF_NewStatus()};
};

void AppendVarint(uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) {
    to->push_back(static_cast<char>(value | 0x80));
  }
  to->push_back(static_cast<char>(value));
}

// A serialized ConfigProto with a thread pool of the session's own.
std::string Config(int threads) {
  std::string config;
  const struct {
    int field;
    int value;
  } numbers[] = {
      {2, threads},  // intra_op_parallelism_threads
      {5, threads},  // inter_op_parallelism_threads
      {9, 1},        // use_per_session_threads
  };
  for (const auto& number : numbers) {
    AppendVarint(number.field << 3, &config);
    AppendVarint(number.value, &config);
  }
  return config;
}

std::vector<TF_Output> Find(TF_Graph* graph,
                            const std::map<std::string, TensorInfo>& tensors) {
  std::vector<TF_Output> found;
  for (const auto& [name, info] : tensors) {
    TF_Operation* const operation =
        TF_GraphOperationByName(graph, info.operation.c_str());
    if (operation == nullptr) {
      throw std::runtime_error("the graph has no operation " + info.operation +
                               ", which the signature calls " + name);
    }
    found.push_back({operation, info.index});
  }
  return found;
}

}  // namespace

void LoadOps(const std::string& package) {
  const std::string version = TF_Version();
  const std::string minor = version.substr(0, version.rfind('.'));
  // The package has a library for each of several versions of TensorFlow.
  const std::string path = package + "/libblockrnn_ops_tf" + minor + ".so";
  if (!std::ifstream(path)) {
    throw std::runtime_error("no op library for TensorFlow " + version +
                             " in " + package);
  }
  const Status status;
  // The handle only names the ops; the library stays with the process.
  const Owned<TF_Library, TF_DeleteLibraryHandle> library(
      TF_LoadLibrary(path.c_str(), status.get()));
  status.Check(path);
}

Model::Model(const std::string& folder, const std::string& signature,
             int threads)
    : graph_(TF_NewGraph()) {
  const Status status;
  const Owned<TF_SessionOptions, TF_DeleteSessionOptions> options(
      TF_NewSessionOptions());
  const std::string config = Config(threads);
  TF_SetConfig(options.get(), config.data(), config.size(), status.get());
  status.Check("the configuration of the session");
  const Owned<TF_Buffer, TF_DeleteBuffer> meta_graph(TF_NewBuffer());
  const char* const tag = "serve";
  session_ =
      TF_LoadSessionFromSavedModel(options.get(), nullptr, folder.c_str(), &tag,
                                   1, graph_, meta_graph.get(), status.get());
  status.Check(folder);
  const auto signatures = ReadSignatures(meta_graph->data, meta_graph->length);
  const auto found = signatures.find(signature);
  if (found == signatures.end()) {
    throw std::runtime_error(folder + " has no signature " + signature);
  }
  signature_ = found->second;
  inputs_ = Find(graph_, signature_.inputs);
  outputs_ = Find(graph_, signature_.outputs);
}

Model::~Model() {
  const Status status;
  if (session_ != nullptr) {
    TF_CloseSession(session_, status.get());
    TF_DeleteSession(session_, status.get());
  }
  TF_DeleteGraph(graph_);
}

std::vector<Tensor> Model::Run(const std::vector<Tensor>& inputs) const {
  std::vector<TF_Tensor*> given, made(outputs_.size());
  given.reserve(inputs.size());
  for (const Tensor& input : inputs) given.push_back(input.get());
  const Status status;
  TF_SessionRun(session_, nullptr, inputs_.data(), given.data(),
                static_cast<int>(given.size()), outputs_.data(), made.data(),
                static_cast<int>(made.size()), nullptr, 0, nullptr,
                status.get());
  std::vector<Tensor> outputs(made.begin(), made.end());
  status.Check("a call of the model");
  return outputs;
}
