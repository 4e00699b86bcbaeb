// Declares how the stream and the device memory of a call are provided to the
// CUDA engine.

#ifndef BLOCKRNN_KERNELS_CUDA_HOST_H_
#define BLOCKRNN_KERNELS_CUDA_HOST_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "cc/core/engine_args.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/loader/cuda_engine_loader.h"

namespace blockrnn {

// Whether to register kernels for GPUs: there is an engine for them, which the
// driver runs. Logs once if the driver is too old.
bool GpuKernelsAreUsable();

// Lives as long as the call that queues the work.
class CudaHost {
 public:
  explicit CudaHost(OpCall* call);
  CudaHost(const CudaHost&) = delete;
  CudaHost& operator=(const CudaHost&) = delete;

  const cuda::HostInterface& host() const { return host_; }

  // The op's status if the engine returns `error`.
  static absl::Status ToStatus(const std::string& op, cuda::Error error);

 private:
  static void* Allocate(void* context, std::size_t bytes);

  OpCall* call_;
  cuda::HostInterface host_;
};

// The device of a GPU kernel: runs an engine function for it.
template <class T>
class CudaDevice {
 public:
  // Tensors are in device memory, which the host does not wait for.
  static constexpr bool kHostReads = false;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCuda;

  explicit CudaDevice(KernelNode* node) : op_(node->op()) {
    const auto& loaded = CudaEngine();
    if (loaded.engine == nullptr) {
      node->Check(absl::FailedPreconditionError(loaded.problem));
    }
    engine_ = loaded.engine;
  }

  template <class Args>
  absl::Status Run(OpCall* call, const Args& args) const {
    CudaHost host(call);
    return CudaHost::ToStatus(
        op_, EngineFunctionsOf<T>(*engine_).Run(args, host.host()));
  }

  absl::Status FillZero(OpCall* call, void* data, std::size_t bytes) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(call);
    return CudaHost::ToStatus(op_,
                              engine_->fill_zero(data, bytes, host.host()));
  }

  absl::Status Copy(OpCall* call, const void* from, std::size_t bytes,
                    void* to) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(call);
    return CudaHost::ToStatus(op_, engine_->copy(from, bytes, to, host.host()));
  }

 private:
  std::string op_;
  const cuda::Engine* engine_ = nullptr;
};

}  // namespace blockrnn

extern "C" {

// The path of the cuBLAS in use, or nullptr and the reason why there is none.
const char* blockrnn_cublas();
const char* blockrnn_cublas_problem();

}  // extern "C"

#endif  // BLOCKRNN_KERNELS_CUDA_HOST_H_
