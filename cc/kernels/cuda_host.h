// Declares how TensorFlow's stream and device memory, and cuBLAS, are provided
// to the CUDA engine during one call. Included only where the CUDA engine is
// linked in.

#ifndef BLOCKRNN_KERNELS_CUDA_HOST_H_
#define BLOCKRNN_KERNELS_CUDA_HOST_H_

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace blockrnn {

// Lives as long as the call that queues the work. TensorFlow reuses its scratch
// only for later work on the same stream.
class CudaHost {
 public:
  explicit CudaHost(tensorflow::OpKernelContext* ctx);
  CudaHost(const CudaHost&) = delete;
  CudaHost& operator=(const CudaHost&) = delete;

  const cuda::HostInterface& host() const { return host_; }

  // The op's status if the engine returns `error`.
  absl::Status ToStatus(cuda::Error error) const;

 private:
  static void* Allocate(void* context, std::size_t bytes);

  tensorflow::OpKernelContext* ctx_;
  cuda::CublasCall cublas_;
  cuda::HostInterface host_;
  absl::InlinedVector<tensorflow::Tensor, 4> scratch_;
};

// The device of a GPU kernel: runs an engine function for it.
template <class T>
class CudaDevice {
 public:
  // Tensors are in device memory, which the host does not wait for.
  static constexpr bool kHostReads = false;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCuda;

  explicit CudaDevice(tensorflow::OpKernelConstruction*) {}

  template <class Args>
  absl::Status Run(tensorflow::OpKernelContext* ctx, const Args& args) const {
    CudaHost host(ctx);
    return host.ToStatus(cuda::Run(args, host.host()));
  }

  absl::Status FillZero(tensorflow::OpKernelContext* ctx, void* data,
                        std::size_t bytes) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(ctx);
    return host.ToStatus(cuda::FillZero(data, bytes, host.host()));
  }

  absl::Status Copy(tensorflow::OpKernelContext* ctx, const void* from,
                    std::size_t bytes, void* to) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(ctx);
    return host.ToStatus(cuda::Copy(from, bytes, to, host.host()));
  }
};

}  // namespace blockrnn

extern "C" {

// The path of the cuBLAS in use, or nullptr and the reason why there is none.
const char* blockrnn_cublas();
const char* blockrnn_cublas_problem();

}  // extern "C"

#endif  // BLOCKRNN_KERNELS_CUDA_HOST_H_
