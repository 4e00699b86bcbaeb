// Declares a call of a kernel from a program that XLA compiled: a custom call
// of XLA's foreign function interface (FFI). Uses its C interface alone, which
// is stable over versions, so that this library links without XLA.

#ifndef BLOCKRNN_XLA_FFI_CALL_H_
#define BLOCKRNN_XLA_FFI_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/kernels/op_call.h"
#include "xla/ffi/api/c_api.h"

namespace blockrnn {

// OK from nullptr; otherwise takes the error and destroys it.
absl::Status ToStatus(const XLA_FFI_Api* api, XLA_FFI_Error* error);
// The reverse; the caller owns the error. It has no text where there is no
// memory for one.
XLA_FFI_Error* ToError(const XLA_FFI_Api* api,
                       const absl::Status& status) noexcept;

// Lives as long as the custom call. All arrays are dense and row-major, which
// the lowering (cc/xla/lowering.cc) asks for. XLA allocates the outputs before
// the call; AllocateOutput compares the shapes. XLA has no cancellation.
class FfiCall : public OpCall {
 public:
  explicit FfiCall(XLA_FFI_CallFrame* frame) : frame_(frame) {}
  FfiCall(const FfiCall&) = delete;
  FfiCall& operator=(const FfiCall&) = delete;

  int rank(int input) const override {
    return static_cast<int>(Argument(input).rank);
  }
  int64_t dim(int input, int index) const override {
    return Argument(input).dims[index];
  }
  const void* input(int index) const override { return Argument(index).data; }

  int num_outputs() const override {
    return static_cast<int>(frame_->rets.size);
  }
  bool output_required(int) const override { return true; }
  absl::Status AllocateOutput(int index,
                              absl::Span<const int64_t> dims) override;
  void* output(int index) const override { return Result(index).data; }
  int64_t output_bytes(int index) const override;

  std::shared_ptr<const void> Hold(int) const override { return nullptr; }
  bool IsForeign(int) const override { return false; }

  bool can_be_cancelled() const override { return false; }
  bool Cancelled() const noexcept override { return false; }

 protected:
  const XLA_FFI_Api* api() const { return frame_->api; }
  XLA_FFI_ExecutionContext* context() const { return frame_->ctx; }
  const XLA_FFI_Buffer& Argument(int index) const {
    return *static_cast<const XLA_FFI_Buffer*>(frame_->args.args[index]);
  }

 private:
  const XLA_FFI_Buffer& Result(int index) const {
    return *static_cast<const XLA_FFI_Buffer*>(frame_->rets.rets[index]);
  }

  XLA_FFI_CallFrame* frame_;
};

// On the threads of the pool that runs the program, which in TensorFlow is its
// intra-op pool. XLA provides no memory on CPUs: scratch is TensorFlow's.
class CpuFfiCall final : public FfiCall {
 public:
  explicit CpuFfiCall(XLA_FFI_CallFrame* frame,
                      absl::Span<const int> /*host_inputs*/)
      : FfiCall(frame) {}

  absl::Status Begin() { return absl::OkStatus(); }

  int num_threads() const override;
  void Schedule(void (*run)(void* arg) noexcept, void* arg) noexcept override;
  absl::Status AllocateScratch(std::size_t bytes, void** scratch) override;
  void* stream() const override { return nullptr; }

 private:
  struct Deallocate {
    void operator()(void* scratch) const;
  };

  std::mutex mutex_;
  // Under mutex_.
  absl::InlinedVector<std::unique_ptr<void, Deallocate>, 4> scratch_;
};

// On the stream of the program.
class CudaFfiCall final : public FfiCall {
 public:
  // host_inputs: the indices of the inputs that kernels read in host memory.
  CudaFfiCall(XLA_FFI_CallFrame* frame, absl::Span<const int> host_inputs)
      : FfiCall(frame), host_inputs_(host_inputs) {}
  ~CudaFfiCall() override;

  // Copies those inputs, which XLA has on the device: waits for the stream if
  // there are any.
  absl::Status Begin();

  const void* input(int index) const override;

  int num_threads() const override { return 1; }
  void Schedule(void (*run)(void* arg) noexcept, void* arg) noexcept override {
    run(arg);
  }
  absl::Status AllocateScratch(std::size_t bytes, void** scratch) override;
  void* stream() const override { return stream_; }

 private:
  struct Scratch {
    void* data = nullptr;  // nullptr: none was allocated
    std::size_t bytes = 0;
  };
  struct HostCopy {
    int index;
    std::vector<char> bytes;
  };

  absl::Span<const int> host_inputs_;
  void* stream_ = nullptr;
  std::vector<HostCopy> copies_;
  absl::InlinedVector<Scratch, 4> scratch_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_XLA_FFI_CALL_H_
