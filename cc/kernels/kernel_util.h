// Declares what every kernel does around its engine call: checking the inputs
// against the op's contract, and allocating and clearing the outputs.

#ifndef BLOCKRNN_KERNELS_KERNEL_UTIL_H_
#define BLOCKRNN_KERNELS_KERNEL_UTIL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

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

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_KERNEL_UTIL_H_
