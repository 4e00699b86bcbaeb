// Owns how the directions of a layer run side by side on the GPU: the first on
// the caller's stream, the second on a stream beside it, with scratch that the
// layers have one after another.

#ifndef BLOCKRNN_KERNELS_CUDA_RNN_STACK_STREAMS_CUH_
#define BLOCKRNN_KERNELS_CUDA_RNN_STACK_STREAMS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/rnn_stack_plan.h"
#include "cc/core/scratch_pool.h"
#include "cc/kernels/cuda/blas.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

// The stream beside a caller's. There is one for each, kept for the life of the
// process; several calls may use it at a time, since they wait for nothing that
// is not queued yet.
class SideStream {
 public:
  explicit SideStream(void* stream)
      : main_(static_cast<cudaStream_t>(stream)) {}
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Before anything else; may be called again.
  Error Open();

  void* stream() const { return side_; }

  // What is queued beside the caller's stream from now on waits for what is
  // queued on that by now.
  Error Fork() { return Order(main_, side_); }
  // The other way round.
  Error Join() { return Order(side_, main_); }

 private:
  Error Order(cudaStream_t first, cudaStream_t then);

  const cudaStream_t main_;
  cudaStream_t side_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// The host of one direction's sequences, one after another.
class DirectionHost {
 public:
  // directions: that run side by side. side: what its work is queued on, or
  // nullptr for the lender's own stream.
  DirectionHost(const Host& lender, int64_t directions, SideStream* side);
  DirectionHost(const DirectionHost&) = delete;
  DirectionHost& operator=(const DirectionHost&) = delete;

  // When the side stream is open.
  const Host& host();

  // The sequence is queued, and its scratch the next one's, which runs after it
  // on the same stream.
  void Recycle() { scratch_.Recycle(); }

 private:
  static void* AllocateFromPool(void* context, std::size_t bytes);
  static void* AllocateFromLender(void* context, std::size_t bytes);
  static Error Product(void* context, const BlasProduct& product, const Host&);

  const Host& lender_;
  SideStream* const side_;
  ScratchPool scratch_;
  Blas blas_;
  Host host_;
  // For the BLAS, which keeps its scratch from layer to layer.
  Host unpooled_;
};

class Directions {
 public:
  Directions(const Host& host, int64_t directions)
      : directions_(directions),
        side_(host.stream),
        first_(host, directions, nullptr),
        second_(host, directions, &side_) {}

  // body(pseudo, host) → Error for each direction of `layer`.
  template <class Body>
  Error Run(int64_t layer, const Body& body) {
    if (directions_ == 1) return RunOne(layer, 0, &first_, body);
    if (Error error = side_.Open()) return error;
    if (Error error = side_.Fork()) return error;
    // The second direction first: its allocations wait for the caller's stream,
    // which has nothing of this layer yet.
    Error error = RunOne(layer, 1, &second_, body);
    if (error == nullptr) error = RunOne(layer, 0, &first_, body);
    // After a failure too: what is queued uses memory of the caller.
    const Error joined = side_.Join();
    return error != nullptr ? error : joined;
  }

 private:
  template <class Body>
  Error RunOne(int64_t layer, int64_t direction, DirectionHost* host,
               const Body& body) const {
    const Error error =
        body(Pseudo{layer, direction, layer * directions_ + direction},
             host->host());
    host->Recycle();
    return error;
  }

  const int64_t directions_;
  SideStream side_;
  DirectionHost first_;
  DirectionHost second_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_RNN_STACK_STREAMS_CUH_
