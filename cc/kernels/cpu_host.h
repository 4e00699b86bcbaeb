// Declares how TensorFlow's intra-op threads, its memory and its cancellation
// are provided to the CPU engine during one call.

#ifndef BLOCKRNN_KERNELS_CPU_HOST_H_
#define BLOCKRNN_KERNELS_CPU_HOST_H_

#include <cfenv>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu_engine_loader.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/denormal.h"
#include "tensorflow/core/platform/setround.h"

namespace blockrnn {

// Lives as long as the engine call. The engine's queued work may run later, but
// then does not access the host.
class CpuHost {
 public:
  explicit CpuHost(tensorflow::OpKernelContext* ctx);
  CpuHost(const CpuHost&) = delete;
  CpuHost& operator=(const CpuHost&) = delete;

  const cpu::HostInterface& host() const { return host_; }

  // The op's status if the engine returns `status`.
  absl::Status ToStatus(cpu::Status status) const;

 private:
  static void Schedule(void* context, void (*run)(void* arg), void* arg);
  static void* Allocate(void* context, std::size_t bytes);
  static bool Cancelled(void* context);

  tensorflow::OpKernelContext* ctx_;
  cpu::HostInterface host_;
  // Several of the engine's threads may allocate concurrently.
  std::mutex mutex_;
  absl::InlinedVector<tensorflow::Tensor, 4> scratch_;  // under mutex_
  absl::Status allocation_;  // the last failure of Allocate; under mutex_
};

template <class T>
const cpu::EngineFunctions<T>& EngineFunctionsOf(const cpu::Engine& engine) {
  if constexpr (std::is_same_v<T, float>) {
    return engine.f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return engine.f64;
  } else if constexpr (std::is_same_v<T, Eigen::half>) {
    return engine.f16;
  } else {
    static_assert(std::is_same_v<T, Eigen::bfloat16>);
    return engine.bf16;
  }
}

// The device of a CPU kernel: runs an engine function for it.
template <class T>
class CpuDevice {
 public:
  // Tensors are in host memory, so their contents can be checked.
  static constexpr bool kHostReads = true;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCpu;

  explicit CpuDevice(tensorflow::OpKernelConstruction* ctx) {
    const auto& engine = CpuEngine();
    OP_REQUIRES_OK(ctx, engine.status());
    functions_ = &EngineFunctionsOf<T>(**engine);
  }

  template <class Args>
  absl::Status Run(tensorflow::OpKernelContext* ctx, const Args& args) const {
    CpuHost host(ctx);
    // As on the pool's threads: a session may run a kernel on its caller's
    // thread.
    const tensorflow::port::ScopedFlushDenormal flush;
    const tensorflow::port::ScopedSetRound round(FE_TONEAREST);
    const cpu::Status status = functions_->Run(args, host.host());
    return host.ToStatus(status);
  }

  absl::Status FillZero(tensorflow::OpKernelContext*, void* data,
                        std::size_t bytes) const {
    if (bytes > 0) std::memset(data, 0, bytes);
    return absl::OkStatus();
  }

  absl::Status Copy(tensorflow::OpKernelContext*, const void* from,
                    std::size_t bytes, void* to) const {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

 private:
  const cpu::EngineFunctions<T>* functions_ = nullptr;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_CPU_HOST_H_
