// Declares a kernel: the implementation of an op for one element type and one
// device. It knows nothing of who calls it.

#ifndef BLOCKRNN_KERNELS_KERNEL_H_
#define BLOCKRNN_KERNELS_KERNEL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cc/kernels/op_call.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {

// An op's name, "CudnnRNNV3", from its name with or without our namespace.
std::string WithoutNamespace(const std::string& op);

// The node of a graph that a kernel is constructed for.
class KernelNode {
 public:
  // def: must outlive this object.
  explicit KernelNode(const tensorflow::NodeDef& def)
      : op_(WithoutNamespace(def.op())), attrs_(def) {}

  const std::string& op() const { return op_; }  // without our namespace

  const tensorflow::AttrValue* FindAttr(const char* name) const {
    return attrs_.Find(name);
  }
  // Sets `value`, or fails.
  template <class Value>
  void GetAttr(const char* name, Value* value) {
    Check(tensorflow::GetNodeAttr(attrs_, name, value));
  }
  // Leaves `value` where the op has no such attr.
  template <class Value>
  void GetAttrIfAny(const char* name, Value* value) {
    if (FindAttr(name) != nullptr) GetAttr(name, value);
  }

  // The first failure of a constructor; its kernel is not used then.
  void Check(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  const absl::Status& status() const { return status_; }

 private:
  std::string op_;
  tensorflow::AttrSlice attrs_;
  absl::Status status_;
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  // May be called by several threads at a time. On a GPU it queues the work.
  virtual absl::Status Run(OpCall* call) = 0;
};

using KernelFactory = std::unique_ptr<Kernel> (*)(KernelNode* node);

template <class AnyKernel>
std::unique_ptr<Kernel> MakeKernel(KernelNode* node) {
  return std::make_unique<AnyKernel>(node);
}

// The kernels of this library, for callers other than TensorFlow's executor.
// op: without our namespace; device: tensorflow::DEVICE_CPU or DEVICE_GPU.
void AddKernelFactory(const std::string& op, tensorflow::DataType type,
                      const char* device, KernelFactory factory);
// nullptr: there is none.
KernelFactory FindKernelFactory(const std::string& op,
                                tensorflow::DataType type, const char* device);

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_KERNEL_H_
