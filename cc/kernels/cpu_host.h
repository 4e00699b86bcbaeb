// Declares how the threads, the memory and the cancellation of a call are
// provided to the CPU engine.

#ifndef BLOCKRNN_KERNELS_CPU_HOST_H_
#define BLOCKRNN_KERNELS_CPU_HOST_H_

#include <cfenv>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "cc/core/engine_args.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/loader/cpu_engine_loader.h"
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
  static void Schedule(void* context, void (*run)(void* arg), void* arg);
  static void* Allocate(void* context, std::size_t bytes);
  static bool Cancelled(void* context);

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

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_CPU_HOST_H_
