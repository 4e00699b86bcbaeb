// Implements the engine's own streams.

#include "cc/kernels/cuda/stack/streams.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {
namespace {

// The stream beside `main` on the current device, created by the first call.
Error FindSideStream(cudaStream_t main, cudaStream_t* side) {
  // Never destroyed: at the end of the process CUDA may be gone before them.
  static auto* const mutex = new std::mutex;
  static auto* const sides =
      new std::map<std::pair<int, cudaStream_t>, cudaStream_t>;
  int device = 0;
  if (Error error = ToError(cudaGetDevice(&device))) return error;
  const std::lock_guard<std::mutex> lock(*mutex);
  cudaStream_t& known = (*sides)[{device, main}];
  if (known == nullptr) {
    const cudaError_t code =
        cudaStreamCreateWithFlags(&known, cudaStreamNonBlocking);
    if (code != cudaSuccess) return ToError(code);
  }
  *side = known;
  return nullptr;
}

}  // namespace

SideStream::~SideStream() {
  // Streams that already wait for the event are not affected.
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

Error SideStream::Open() {
  if (side_ == nullptr) {
    if (Error error = FindSideStream(main_, &side_)) return error;
  }
  if (event_ != nullptr) return nullptr;
  return ToError(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

// cudaStreamWaitEvent captures the event's state when it is queued, so one
// event serves all waits.
Error SideStream::Order(cudaStream_t first, cudaStream_t then) {
  if (Error error = ToError(cudaEventRecord(event_, first))) return error;
  return ToError(cudaStreamWaitEvent(then, event_, 0));
}

Error SideStream::Join() {
  const Error error = Order(side_, main_);
  if (error != nullptr) static_cast<void>(cudaStreamSynchronize(side_));
  return error;
}

StepRecords::~StepRecords() {
  for (int n = 0; n < events_; ++n) {
    static_cast<void>(cudaEventDestroy(event_[n]));
  }
}

Error StepRecords::Record(int64_t steps, cudaStream_t stream) {
  recorded_ += steps;
  if (count_ < kMaxEvents) ++count_;
  const int last = count_ - 1;
  if (last == events_) {
    if (Error error = ToError(
            cudaEventCreateWithFlags(&event_[last], cudaEventDisableTiming))) {
      return error;
    }
    ++events_;
  }
  done_[last] = recorded_;
  return ToError(cudaEventRecord(event_[last], stream));
}

Error StepRecords::Await(int64_t steps, cudaStream_t stream) {
  awaited_ += steps;
  const int64_t* const found =
      std::lower_bound(done_, done_ + count_, awaited_);
  return ToError(cudaStreamWaitEvent(stream, event_[found - done_], 0));
}

StreamHost::StreamHost(const HostInterface& parent, SideStream* side)
    : parent_(parent), side_(side), host_(parent), unpooled_(parent) {
  host_.context = this;
  host_.allocate = &AllocateFromPool;
  unpooled_.context = this;
  unpooled_.allocate = &AllocateFromParent;
  unpooled_.blas = nullptr;
  if (parent.blas == nullptr) return;
  blas_.context = this;
  blas_.gemm = &RunGemm;
  host_.blas = &blas_;
}

const HostInterface& StreamHost::For(int concurrent_calls,
                                     const BlockObserver* observer) {
  host_.concurrent_calls = parent_.concurrent_calls * concurrent_calls;
  host_.observer = observer;
  if (side_ != nullptr) {
    host_.stream = side_->stream();
    unpooled_.stream = side_->stream();
  }
  return host_;
}

void* StreamHost::AllocateFromPool(void* context, std::size_t bytes) {
  auto* const self = static_cast<StreamHost*>(context);
  if (void* const data = self->scratch_.Take(bytes)) return data;
  void* const data = AllocateFromParent(context, bytes);
  if (data != nullptr) self->scratch_.Add(data, bytes);
  return data;
}

// The parent's memory is free once the work queued on the parent's stream by
// now is done, whoever queued it.
void* StreamHost::AllocateFromParent(void* context, std::size_t bytes) {
  auto* const self = static_cast<StreamHost*>(context);
  void* const data = self->parent_.allocate(self->parent_.context, bytes);
  if (data == nullptr || self->side_ == nullptr) return data;
  return self->side_->Fork() == nullptr ? data : nullptr;
}

Error StreamHost::RunGemm(void* context, const BlasGemm& gemm,
                          const HostInterface&) {
  auto* const self = static_cast<StreamHost*>(context);
  const Blas& blas = *self->parent_.blas;
  return blas.gemm(blas.context, gemm, self->unpooled_);
}

}  // namespace blockrnn::cuda
