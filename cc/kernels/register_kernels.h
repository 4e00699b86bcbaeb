// Defines the registration of a kernel for every type and device in its op's
// row.

#ifndef BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
#define BLOCKRNN_KERNELS_REGISTER_KERNELS_H_

#include <string>
#include <string_view>

#include "cc/kernels/cpu_host.h"
#include "cc/kernels/cuda_host.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/tensorflow_call.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {

// Registers one kernel class for one type on one device with TensorFlow's
// executor. This is what REGISTER_KERNEL_BUILDER expands to; as a macro it
// cannot loop over types.
template <class AnyKernel, class T>
void RegisterKernel(const OpSpec& row, const std::string& op,
                    const char* device) {
  tensorflow::KernelDefBuilder builder(op.c_str());
  builder.Device(device).TypeConstraint<T>("T");
  for (std::string_view list : {row.inputs, row.outputs}) {
    while (!list.empty()) {
      const std::string_view argument = NextPart(&list, ' ');
      if (argument.find("@host") == std::string_view::npos) continue;
      builder.HostMemory(std::string(ArgumentName(argument)).c_str());
    }
  }
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op,
      [](tensorflow::OpKernelConstruction* ctx) -> tensorflow::OpKernel* {
        return new TensorFlowKernel(ctx, &MakeKernel<AnyKernel>);
      });
}

// Calls body(an element) for each type that every op is registered for.
template <class Body>
void ForEachType(const Body& body) {
  body(Eigen::half());
  body(Eigen::bfloat16());
  body(float());
  body(double());
}

// Any<T, Device> is a Kernel, constructed from a KernelNode; a Device does its
// work. It is registered under our name for the CPU and, where there is an
// engine for it, the GPU; if the row requires it, under TensorFlow's name for
// the CPU as well.
template <template <class T, class Device> class Any>
bool RegisterKernels(const OpSpec& row) {
  const std::string op = std::string(kNamespace) + row.name;
  ForEachType([&](auto element) {
    using T = decltype(element);
    constexpr tensorflow::DataType kType = tensorflow::DataTypeToEnum<T>::value;
    using CpuKernel = Any<T, CpuDevice<T>>;
    AddKernelFactory(row.name, kType, tensorflow::DEVICE_CPU,
                     &MakeKernel<CpuKernel>);
    RegisterKernel<CpuKernel, T>(row, op, tensorflow::DEVICE_CPU);
    if ((row.flags & kServesTensorFlow) != 0 && ExtendsTensorFlow()) {
      RegisterKernel<CpuKernel, T>(row, row.name, tensorflow::DEVICE_CPU);
    }
    if (!GpuKernelsAreUsable()) return;
    using GpuKernel = Any<T, CudaDevice<T>>;
    AddKernelFactory(row.name, kType, tensorflow::DEVICE_GPU,
                     &MakeKernel<GpuKernel>);
    RegisterKernel<GpuKernel, T>(row, op, tensorflow::DEVICE_GPU);
  });
  return true;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
