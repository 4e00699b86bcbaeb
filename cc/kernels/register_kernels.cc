#include "cc/kernels/register_kernels.h"

#include <memory>
#include <string>
#include <string_view>

#include "cc/kernels/tensorflow_call.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {
namespace {

class FactoryForTensorFlow final
    : public tensorflow::kernel_factory::OpKernelFactory {
 public:
  explicit FactoryForTensorFlow(KernelFactory factory) : factory_(factory) {}
  tensorflow::OpKernel* Create(tensorflow::OpKernelConstruction* ctx) override {
    return new TensorFlowKernel(ctx, factory_);
  }

 private:
  KernelFactory factory_;
};

// Registers one kernel with TensorFlow's executor. This is what
// REGISTER_KERNEL_BUILDER expands to, without a class for each kernel.
void RegisterWithTensorFlow(const OpSpec& row, const std::string& op,
                            tensorflow::DataType type, const char* device,
                            KernelFactory factory) {
  tensorflow::KernelDefBuilder builder(op.c_str());
  builder.Device(device).TypeConstraint("T", type);
  for (std::string_view list : {row.inputs, row.outputs}) {
    while (!list.empty()) {
      const std::string_view argument = NextPart(&list, ' ');
      if (argument.find("@host") == std::string_view::npos) continue;
      builder.HostMemory(std::string(ArgumentName(argument)).c_str());
    }
  }
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op, std::make_unique<FactoryForTensorFlow>(factory));
}

}  // namespace

void RegisterKernelsOfType(const OpSpec& row, tensorflow::DataType type,
                           KernelFactory cpu, KernelFactory gpu) {
  const std::string op = std::string(kNamespace) + row.name;
  AddKernelFactory(row.name, type, tensorflow::DEVICE_CPU, cpu);
  RegisterWithTensorFlow(row, op, type, tensorflow::DEVICE_CPU, cpu);
  if ((row.flags & kServesTensorFlow) != 0 && ExtendsTensorFlow()) {
    RegisterWithTensorFlow(row, row.name, type, tensorflow::DEVICE_CPU, cpu);
  }
  if (gpu != nullptr && GpuKernelsAreUsable()) {
    AddKernelFactory(row.name, type, tensorflow::DEVICE_GPU, gpu);
    RegisterWithTensorFlow(row, op, type, tensorflow::DEVICE_GPU, gpu);
  }
}

}  // namespace blockrnn
