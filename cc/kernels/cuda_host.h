// Owns what the CUDA engine borrows from TensorFlow during one call: the
// stream, device scratch and cuBLAS. Included only where the CUDA engine is
// linked in.

#ifndef BLOCKRNN_KERNELS_CUDA_HOST_H_
#define BLOCKRNN_KERNELS_CUDA_HOST_H_

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_args.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cublas.h"
#include "cc/kernels/cuda/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace blockrnn {

// Lives as long as the call that queues the work. TensorFlow hands its scratch
// only to later work on the same stream.
class CudaHost {
 public:
  explicit CudaHost(tensorflow::OpKernelContext* ctx);
  CudaHost(const CudaHost&) = delete;
  CudaHost& operator=(const CudaHost&) = delete;

  const cuda::Host& host() const { return host_; }

  // What the op is to answer when the engine answers `error`.
  absl::Status ToStatus(cuda::Error error) const;

 private:
  static void* Allocate(void* context, std::size_t bytes);

  tensorflow::OpKernelContext* ctx_;
  cuda::CublasCall cublas_;
  cuda::Host host_;
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

  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruCellForwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruCellForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruCellBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruCellBackward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const LstmCellForwardArgs<T>& args) const {
    return Run(ctx, &cuda::LstmCellForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const LstmCellBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::LstmCellBackward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const LstmSequenceForwardArgs<T>& args) const {
    return Run(ctx, &cuda::LstmSequenceForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const LstmSequenceBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::LstmSequenceBackward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruSequenceForwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruSequenceForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruSequenceBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruSequenceBackward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruAfterSequenceForwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruAfterSequenceForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const GruAfterSequenceBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::GruAfterSequenceBackward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const RnnSequenceForwardArgs<T>& args) const {
    return Run(ctx, &cuda::RnnSequenceForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const RnnSequenceBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::RnnSequenceBackward<T>, args);
  }

  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const RnnForwardArgs<T>& args) const {
    return Run(ctx, &cuda::RnnForward<T>, args);
  }
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   const RnnBackwardArgs<T>& args) const {
    return Run(ctx, &cuda::RnnBackward<T>, args);
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

 private:
  template <class Args>
  absl::Status Run(tensorflow::OpKernelContext* ctx,
                   cuda::Error (*function)(const Args&, const cuda::Host&),
                   const Args& args) const {
    CudaHost host(ctx);
    return host.ToStatus(function(args, host.host()));
  }
};

}  // namespace blockrnn

extern "C" {

// The path of the cuBLAS that is used, or nullptr, and then why there is none.
const char* blockrnn_cublas();
const char* blockrnn_cublas_problem();

}  // extern "C"

#endif  // BLOCKRNN_KERNELS_CUDA_HOST_H_
