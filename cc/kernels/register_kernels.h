// Owns the list of types and devices that every op is registered for.

#ifndef BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
#define BLOCKRNN_KERNELS_REGISTER_KERNELS_H_

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

// The inputs that a kernel reads on the host whatever its device.
using HostInputs = std::initializer_list<const char*>;

// One kernel class for one type on one device. What REGISTER_KERNEL_BUILDER
// expands to, which being a macro cannot loop over types.
template <class Kernel, class T>
void RegisterKernel(const char* op, const char* device,
                    HostInputs host_inputs = {}) {
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(device).TypeConstraint<T>("T");
  for (const char* input : host_inputs) builder.HostMemory(input);
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op,
      [](tensorflow::OpKernelConstruction* ctx) -> tensorflow::OpKernel* {
        return new Kernel(ctx);
      });
}

template <template <class T, class Device> class Kernel, class T>
void RegisterOnDevices(const char* op) {
  RegisterKernel<Kernel<T, CpuDevice<T>>, T>(op, tensorflow::DEVICE_CPU);
#if BLOCKRNN_CUDA
  RegisterKernel<Kernel<T, CudaDevice<T>>, T>(op, tensorflow::DEVICE_GPU);
#endif
}

// Kernel<T, Device> is what an op needs of it: constructed from an
// OpKernelConstruction, with the work done by a Device.
template <template <class T, class Device> class Kernel>
bool RegisterKernels(const char* op) {
  RegisterOnDevices<Kernel, Eigen::half>(op);
  RegisterOnDevices<Kernel, Eigen::bfloat16>(op);
  RegisterOnDevices<Kernel, float>(op);
  RegisterOnDevices<Kernel, double>(op);
  return true;
}

// The same for ops that only the CPU has.
template <template <class T, class Device> class Kernel>
bool RegisterCpuKernels(const char* op, HostInputs host_inputs = {}) {
  const char* const cpu = tensorflow::DEVICE_CPU;
  RegisterKernel<Kernel<Eigen::half, CpuDevice<Eigen::half>>, Eigen::half>(
      op, cpu, host_inputs);
  RegisterKernel<Kernel<Eigen::bfloat16, CpuDevice<Eigen::bfloat16>>,
                 Eigen::bfloat16>(op, cpu, host_inputs);
  RegisterKernel<Kernel<float, CpuDevice<float>>, float>(op, cpu, host_inputs);
  RegisterKernel<Kernel<double, CpuDevice<double>>, double>(op, cpu,
                                                            host_inputs);
  return true;
}

// The same under our name and under TensorFlow's, for ops of which TensorFlow
// has no CPU kernel. op: without our namespace.
template <template <class T, class Device> class Kernel>
bool RegisterCpuKernelsForBoth(const std::string& op) {
  return RegisterCpuKernels<Kernel>(("BlockRNN>" + op).c_str()) &&
         RegisterCpuKernels<Kernel>(op.c_str());
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
