// Owns the list of types and devices that every op is registered for.

#ifndef BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
#define BLOCKRNN_KERNELS_REGISTER_KERNELS_H_

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "cc/kernels/cpu_host.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"
#if BLOCKRNN_CUDA
#include "cc/kernels/cuda_host.h"
#endif

namespace blockrnn {

// The inputs and outputs that a kernel has in host memory whatever its device.
using HostArguments = std::initializer_list<const char*>;

// One kernel class for one type on one device. What REGISTER_KERNEL_BUILDER
// expands to, which being a macro cannot loop over types.
template <class Kernel, class T>
void RegisterKernel(const char* op, const char* device,
                    HostArguments host_arguments) {
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(device).TypeConstraint<T>("T");
  for (const char* argument : host_arguments) builder.HostMemory(argument);
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op,
      [](tensorflow::OpKernelConstruction* ctx) -> tensorflow::OpKernel* {
        return new Kernel(ctx);
      });
}

// body(an element) for each type that every op is registered for.
template <class Body>
void ForEachType(const Body& body) {
  body(Eigen::half());
  body(Eigen::bfloat16());
  body(float());
  body(double());
}

// Kernel<T, Device> is what an op needs of it: constructed from an
// OpKernelConstruction, with the work done by a Device. On the CPU:
template <template <class T, class Device> class Kernel>
void RegisterCpuKernels(const char* op, HostArguments host_arguments = {}) {
  ForEachType([&](auto element) {
    using T = decltype(element);
    RegisterKernel<Kernel<T, CpuDevice<T>>, T>(op, tensorflow::DEVICE_CPU,
                                               host_arguments);
  });
}

// On all devices that this build has.
template <template <class T, class Device> class Kernel>
bool RegisterKernels(const char* op, HostArguments host_arguments = {}) {
  RegisterCpuKernels<Kernel>(op, host_arguments);
#if BLOCKRNN_CUDA
  ForEachType([&](auto element) {
    using T = decltype(element);
    RegisterKernel<Kernel<T, CudaDevice<T>>, T>(op, tensorflow::DEVICE_GPU,
                                                host_arguments);
  });
#endif
  return true;
}

// Whether TensorFlow's own ops get from us what they lack. The same switch is
// asked for gradients in tf_blockrnn/__init__.py.
inline bool ExtendsTensorFlow() {
  const char* const set = std::getenv("TF_BLOCKRNN_EXTEND_TF");
  return set == nullptr || std::string(set) != "0";
}

// The same under our name; and on the CPU under TensorFlow's, for ops of which
// TensorFlow has no CPU kernel. op: without our namespace.
template <template <class T, class Device> class Kernel>
bool RegisterKernelsForBoth(const std::string& op,
                            HostArguments host_arguments = {}) {
  if (ExtendsTensorFlow()) {
    RegisterCpuKernels<Kernel>(op.c_str(), host_arguments);
  }
  return RegisterKernels<Kernel>(("BlockRNN>" + op).c_str(), host_arguments);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
