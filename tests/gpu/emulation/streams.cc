// Implements the emulated streams. Work runs when it is queued or, at the
// checks' request, only when the host waits for it. So work shows that uses
// memory of a call that is over.

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/cuda_runtime.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Work = std::function<cudaError_t()>;

bool runs_late = false;
cudaError_t failure = cudaSuccess;  // of what ran late

}  // namespace

struct EmulatedStream {
  std::deque<Work> queued;
};

namespace {

// None is ever destroyed.
std::vector<std::unique_ptr<EmulatedStream>>& Streams() {
  static auto* const streams = new std::vector<std::unique_ptr<EmulatedStream>>;
  return *streams;
}

cudaError_t Drain(EmulatedStream* stream) {
  while (!stream->queued.empty()) {
    const Work work = std::move(stream->queued.front());
    stream->queued.pop_front();
    const cudaError_t code = emulation::ReportOfKernel(work());
    if (failure == cudaSuccess) failure = code;
  }
  return std::exchange(failure, cudaSuccess);
}

cudaError_t Add(cudaStream_t stream, Work work) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  stream->queued.push_back(std::move(work));
  return runs_late ? cudaSuccess : Drain(stream);
}

}  // namespace

namespace emulation {

cudaError_t Enqueue(cudaStream_t stream, std::function<cudaError_t()> work) {
  if (const cudaError_t code = FailureNow(); code != cudaSuccess) return code;
  return Add(stream, std::move(work));
}

}  // namespace emulation

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t code = emulation::FailureNow(); code != cudaSuccess) {
    return code;
  }
  Streams().push_back(std::make_unique<EmulatedStream>());
  *stream = Streams().back().get();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Drain(stream); }

cudaError_t cudaDeviceSynchronize() {
  for (const auto& stream : Streams()) {
    const cudaError_t code = Drain(stream.get());
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  // To memory that is not pinned CUDA may copy before it returns, or later.
  if (kind != cudaMemcpyHostToDevice) {
    return emulation::Enqueue(stream, [to, from, bytes, kind] {
      return cudaMemcpy(to, from, bytes, kind);
    });
  }
  // From memory that is not pinned CUDA copies before it returns.
  const auto* const begin = static_cast<const char*>(from);
  return emulation::Enqueue(
      stream, [to, staged = std::vector<char>(begin, begin + bytes), kind] {
        return cudaMemcpy(to, staged.data(), staged.size(), kind);
      });
}

cudaError_t cudaMemsetAsync(void* device, int value, std::size_t bytes,
                            cudaStream_t stream) {
  return emulation::Enqueue(stream, [device, value, bytes] {
    return cudaMemset(device, value, bytes);
  });
}

cudaError_t cudaMemset2DAsync(void* device, std::size_t pitch, int value,
                              std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  if (width > pitch) return cudaErrorInvalidValue;
  return emulation::Enqueue(stream, [device, pitch, value, width, height] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(device) + row * pitch, value, width);
    }
    return cudaSuccess;
  });
}

// 1: work runs when the host waits for it. 0: when it is queued.
EXPORT void emulation_run_late(int late) { runs_late = late != 0; }

// A stream, for those who have no other way to make one.
EXPORT void* emulation_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

// For the substitute of cuBLAS, a library of its own, which checks by itself
// whether a call is to fail.
EXPORT int emulation_enqueue(void* stream, int (*work)(void*), void* data) {
  const auto run = [work, data] {
    return work(data) == 0 ? cudaSuccess : cudaErrorLaunchFailure;
  };
  return Add(static_cast<cudaStream_t>(stream), run);
}

EXPORT int emulation_fails_now() { return emulation::FailsNow() ? 1 : 0; }
