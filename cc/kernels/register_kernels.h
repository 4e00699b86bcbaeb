// Owns the list of types and devices that every op is registered for.

#ifndef BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
#define BLOCKRNN_KERNELS_REGISTER_KERNELS_H_

#include "cc/kernels/cpu_host.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"
#if BLOCKRNN_CUDA
#include "cc/kernels/cuda_host.h"
#endif

namespace blockrnn {

// One kernel class for one type on one device. What REGISTER_KERNEL_BUILDER
// expands to, which being a macro cannot loop over types.
template <class Kernel, class T>
void RegisterKernel(const char* op, const char* device) {
  tensorflow::kernel_factory::OpKernelRegistrar(
      tensorflow::KernelDefBuilder(op)
          .Device(device)
          .TypeConstraint<T>("T")
          .Build(),
      op, [](tensorflow::OpKernelConstruction* ctx) -> tensorflow::OpKernel* {
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

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
