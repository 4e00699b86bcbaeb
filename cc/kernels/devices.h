// Implements the devices of kernels: how threads, memory, cancellation and
// stream of a call are provided to the CPU and the CUDA engine. A kernel is
// registered for both.

#ifndef BLOCKRNN_KERNELS_DEVICES_H_
#define BLOCKRNN_KERNELS_DEVICES_H_

#include <cfenv>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "cc/core/engine_args.h"
#include "cc/core/reserve_space.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/loader/cpu_engine_loader.h"
#include "cc/loader/cuda_engine_loader.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/denormal.h"
#include "tensorflow/core/platform/setround.h"

namespace blockrnn {

// Lives as long as the engine call. The engine's queued work may run later, but
// then does not access the host.
class CpuHost {
 public:
  explicit CpuHost(OpCall* call);
  CpuHost(const CpuHost&) = delete;
  CpuHost& operator=(const CpuHost&) = delete;

  const cpu::HostInterface& host() const { return host_; }

  // The op's status if the engine returns `status`.
  absl::Status ToStatus(const std::string& op, cpu::Status status) const;

 private:
  static void Schedule(void* context, void (*run)(void* arg) noexcept,
                       void* arg) noexcept;
  static void* Allocate(void* context, std::size_t bytes) noexcept;
  static bool Cancelled(void* context) noexcept;

  OpCall* call_;
  cpu::HostInterface host_;
  // Several of the engine's threads may allocate concurrently.
  std::mutex mutex_;
  absl::Status allocation_;  // the last failure of Allocate; under mutex_
};

// The device of a CPU kernel: runs an engine function for it.
template <class T>
class CpuDevice {
 public:
  // Tensors are in host memory, so their contents can be checked.
  static constexpr bool kHostReads = true;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCpu;
  // Whether a forward call writes span_states (cc/core/sequence_args.h).
  static constexpr bool kWritesSpanStates = true;

  explicit CpuDevice(KernelNode* node) : op_(node->op()) {
    const auto& loaded = CpuEngine();
    if (loaded.engine == nullptr) {
      node->Check(absl::FailedPreconditionError(loaded.problem));
    } else {
      functions_ = &EngineFunctionsOf<T>(*loaded.engine);
    }
  }

  template <class Args>
  absl::Status Run(OpCall* call, const Args& args) const {
    CpuHost host(call);
    // As on the pool's threads: a kernel may run on a thread of the user's.
    const tensorflow::port::ScopedFlushDenormal flush;
    const tensorflow::port::ScopedSetRound round(FE_TONEAREST);
    const cpu::Status status = functions_->Run(args, host.host());
    return host.ToStatus(op_, status);
  }

  absl::Status FillZero(OpCall*, void* data, std::size_t bytes) const {
    if (bytes > 0) std::memset(data, 0, bytes);
    return absl::OkStatus();
  }

  absl::Status Copy(OpCall*, const void* from, std::size_t bytes,
                    void* to) const {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

 private:
  std::string op_;
  const cpu::EngineFunctions<T>* functions_ = nullptr;
};

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
  absl::Status ToStatus(const std::string& op, cuda::Error error) const;

 private:
  static void* Allocate(void* context, std::size_t bytes) noexcept;

  OpCall* call_;
  cuda::HostInterface host_;
  absl::Status allocation_;  // the last failure of Allocate
};

// The device of a GPU kernel: runs an engine function for it.
template <class T>
class CudaDevice {
 public:
  // Tensors are in device memory, which the host does not wait for.
  static constexpr bool kHostReads = false;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCuda;
  static constexpr bool kWritesSpanStates = false;

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
    return host.ToStatus(op_,
                         EngineFunctionsOf<T>(*engine_).Run(args, host.host()));
  }

  absl::Status FillZero(OpCall* call, void* data, std::size_t bytes) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(call);
    return host.ToStatus(op_, engine_->fill_zero(data, bytes, host.host()));
  }

  absl::Status Copy(OpCall* call, const void* from, std::size_t bytes,
                    void* to) const {
    if (bytes == 0) return absl::OkStatus();
    CudaHost host(call);
    return host.ToStatus(op_, engine_->copy(from, bytes, to, host.host()));
  }

 private:
  std::string op_;
  const cuda::Engine* engine_ = nullptr;
};

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

extern "C" {

// The path of the cuBLAS in use, or nullptr and the reason why there is none.
const char* blockrnn_cublas();
const char* blockrnn_cublas_problem();

}  // extern "C"

#endif  // BLOCKRNN_KERNELS_DEVICES_H_
