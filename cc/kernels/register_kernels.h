// Declares the registration of a kernel for every type and device in its op's
// row.

#ifndef BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
#define BLOCKRNN_KERNELS_REGISTER_KERNELS_H_

#include "cc/kernels/cpu_host.h"
#include "cc/kernels/cuda_host.h"
#include "cc/kernels/kernel.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {

// Registers the kernels of one type under our name for the CPU and, where there
// is an engine for it, the GPU; if the row requires it, under TensorFlow's name
// for the CPU as well.
void RegisterKernelsOfType(const OpSpec& row, tensorflow::DataType type,
                           KernelFactory cpu, KernelFactory gpu);

// Calls body(an element) for each type that every op is registered for.
template <class Body>
void ForEachType(const Body& body) {
  body(Eigen::half());
  body(Eigen::bfloat16());
  body(float());
  body(double());
}

// nullptr in a build without CUDA: half of the kernels' compile time.
template <class GpuKernel>
constexpr KernelFactory GpuFactory() {
#ifdef BLOCKRNN_WITHOUT_CUDA
  return nullptr;
#else
  return &MakeKernel<GpuKernel>;
#endif
}

// Any<T, Device> is a Kernel, constructed from a KernelNode; a Device does its
// work.
template <template <class T, class Device> class Any>
bool RegisterKernels(const OpSpec& row) {
  ForEachType([&](auto element) {
    using T = decltype(element);
    RegisterKernelsOfType(row, tensorflow::DataTypeToEnum<T>::value,
                          &MakeKernel<Any<T, CpuDevice<T>>>,
                          GpuFactory<Any<T, CudaDevice<T>>>());
  });
  return true;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_REGISTER_KERNELS_H_
