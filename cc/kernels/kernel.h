// Declares a kernel: the implementation of an op for one element type and one
// device. It knows nothing of who calls it. Declares also what every kernel
// does around its engine call: checking the inputs against the op's contract,
// and allocating and clearing the outputs.

#ifndef BLOCKRNN_KERNELS_KERNEL_H_
#define BLOCKRNN_KERNELS_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_contract.h"
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

// Of the exception that is being handled: ResourceExhausted for std::bad_alloc,
// else Internal.
absl::Status StatusOfException() noexcept;

// f()'s status, or that of the exception that it throws: TensorFlow and XLA
// expect none of a kernel.
template <class F>
absl::Status WithoutExceptions(const F& f) noexcept {
  try {
    return f();
  } catch (...) {
    return StatusOfException();
  }
}

class Kernel {
 public:
  virtual ~Kernel() = default;

  // May be called by several threads at a time. On a GPU it queues the work.
  virtual absl::Status Run(OpCall* call) = 0;
};

enum class Wanted {
  kAll,
  // The outputs that the caller reads. Output() of any other is null.
  kUsed,
};

// A kernel of an op that has one contract.
class ContractKernel : public Kernel {
 public:
  // contract: nullptr for that of the op.
  explicit ContractKernel(KernelNode* node,
                          const OpContract* contract = nullptr);

 protected:
  const std::string& op() const { return op_; }
  const OpContract& contract() const { return *contract_; }

  // 0 if the attr that selects an alternative is true or does not exist,
  // else 1.
  int alternative() const { return alternative_; }

  // Checks all inputs. Every malformed call is refused here, before the engine
  // gets a pointer.
  absl::Status CheckInputs(const OpCall& call, Bindings* bound) const {
    return contract_->Check(call, alternative_, bound);
  }
  // Allocates all outputs; none reuses the buffer of an input.
  absl::Status AllocateOutputs(OpCall* call, const Bindings& bound,
                               Wanted wanted) const;

 private:
  std::string op_;
  const OpContract* contract_ = nullptr;
  int alternative_ = 0;
};

// Fills an output with zeros, from that byte on; does nothing for an unused
// output.
template <class Device>
absl::Status ZeroOutput(OpCall* call, const Device& device, int index,
                        int64_t from = 0) {
  void* const output = call->output(index);
  if (output == nullptr) return absl::OkStatus();
  return device.FillZero(call, static_cast<char*>(output) + from,
                         call->output_bytes(index) - from);
}

template <class Device>
absl::Status ZeroOutputs(OpCall* call, const Device& device, int begin,
                         int end) {
  for (int index = begin; index < end; ++index) {
    const absl::Status status = ZeroOutput(call, device, index);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

using KernelFactory = std::unique_ptr<Kernel> (*)(KernelNode* node);

template <class AnyKernel>
std::unique_ptr<Kernel> MakeKernel(KernelNode* node) {
  return std::make_unique<AnyKernel>(node);
}

// Registers the kernels of one type under our name for the CPU and, where there
// is an engine for it, the GPU; if the row requires it, under TensorFlow's name
// for the CPU as well. gpu: nullptr in a build without CUDA.
void RegisterKernelsOfType(const OpSpec& row, tensorflow::DataType type,
                           KernelFactory cpu, KernelFactory gpu);

// For callers other than TensorFlow's executor. nullptr: there is none.
// op: without our namespace; device: tensorflow::DEVICE_CPU or DEVICE_GPU.
KernelFactory FindKernelFactory(const std::string& op,
                                tensorflow::DataType type, const char* device);

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_KERNEL_H_
