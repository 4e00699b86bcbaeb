// Implements in what order the layers of a stack are queued: sequentially on
// the caller's stream, the directions of each together or sequentially; or
// layers in pairs, of which the first runs on a second stream (the side stream)
// and the second runs a block of steps once the first has computed it.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/param_layout.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/scratch_pool.h"
#include "cc/kernels/cuda/blas/blas.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

// The second stream for a caller's stream. There is one for each, which lives
// as long as the process; several calls may share it, since they only wait for
// work that is already queued.
class SideStream {
 public:
  explicit SideStream(void* stream)
      : main_(static_cast<cudaStream_t>(stream)) {}
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Must be called first; may be called again.
  Error Open();

  void* stream() const { return side_; }

  // Makes the side stream wait for all work queued on the caller's stream so
  // far.
  Error Fork() { return Order(main_, side_); }
  // Makes the caller's stream wait for the side stream, whose work uses memory
  // of the caller. If that fails the host waits instead.
  Error Join();

 private:
  Error Order(cudaStream_t first, cudaStream_t then);

  const cudaStream_t main_;
  cudaStream_t side_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// The HostInterface of the calls on one stream, one after another, which share
// their scratch.
class StreamHost {
 public:
  // side: the stream that the work is queued on, or nullptr for the parent's
  // own.
  StreamHost(const HostInterface& parent, SideStream* side);
  StreamHost(const StreamHost&) = delete;
  StreamHost& operator=(const StreamHost&) = delete;

  // For a call that is one of `concurrent_calls`; the side stream must be open.
  const HostInterface& For(int concurrent_calls,
                           const BlockObserver* observer = nullptr);

  // Releases the scratch of a call that is queued to the next one, which runs
  // after it on the same stream.
  void Recycle() { scratch_.Recycle(); }

 private:
  static void* AllocateFromPool(void* context, std::size_t bytes);
  static void* AllocateFromParent(void* context, std::size_t bytes);
  static Error RunGemm(void* context, const BlasGemm& gemm,
                       const HostInterface&);

  const HostInterface& parent_;
  SideStream* const side_;
  ScratchPool scratch_;
  Blas blas_;
  HostInterface host_;
  // For the BLAS, whose scratch lives from layer to layer.
  HostInterface unpooled_;
};

// The progress of the first layer of a pair, for the second one.
class StepRecords {
 public:
  StepRecords() = default;
  ~StepRecords();
  StepRecords(const StepRecords&) = delete;
  StepRecords& operator=(const StepRecords&) = delete;

  // For the next pair.
  void Clear() { count_ = recorded_ = awaited_ = 0; }

  // The first layer has queued `steps` more steps.
  Error Record(int64_t steps, cudaStream_t stream);
  // Makes what the second layer queues from now on wait for `steps` more steps.
  // Only after all of them have been recorded.
  Error Await(int64_t steps, cudaStream_t stream);

 private:
  // With more blocks the last event covers all remaining ones.
  static constexpr int kMaxEvents = 16;

  int events_ = 0;  // that have been created
  cudaEvent_t event_[kMaxEvents] = {};
  int64_t done_[kMaxEvents] = {};  // steps before the event
  int count_ = 0;
  int64_t recorded_ = 0;
  int64_t awaited_ = 0;
};

// What of a stack runs concurrently.
struct StackConcurrency {
  int64_t pair_steps = 0;         // of a block, if layers run in pairs; else 0
  bool joint_directions = false;  // of a layer, in the same launches
};

class LayerStreams {
 public:
  LayerStreams(const HostInterface& host, const RnnGeometry& geometry,
               const StepSpan& all_steps, const StackConcurrency& concurrency)
      : directions_(geometry.directions),
        joint_directions_(concurrency.joint_directions),
        all_steps_(all_steps),
        pair_steps_(concurrency.pair_steps),
        layers_left_(geometry.layers),
        side_(host.stream),
        main_host_(host, nullptr),
        side_host_(host, &side_) {}
  // Between the layers of a pair: the queued work of the first one uses memory
  // of the caller.
  ~LayerStreams() {
    if (first_queued_) static_cast<void>(side_.Join());
  }

  // take(steps, host) → Error as in cc/core/rnn_stack_forward.h; body(host,
  // direction) → Error, or body(host, first direction, second direction).
  template <class Take, class Body>
  Error Run(int64_t layer, const Take& take, const Body& body) {
    --layers_left_;
    if (first_queued_) return RunSecond(layer, take, body);
    if (pair_steps_ > 0 && layers_left_ > 0) return RunFirst(layer, take, body);
    const HostInterface& host = main_host_.For(1);
    if (Error error = take(all_steps_, host)) return error;
    if (joint_directions_) {
      return RunBody(&main_host_, host, body, Direction(layer, 0),
                     Direction(layer, 1));
    }
    for (int64_t n = 0; n < directions_; ++n) {
      if (Error error = RunBody(&main_host_, host, body, Direction(layer, n))) {
        return error;
      }
    }
    return nullptr;
  }

 private:
  // The second layer of a pair, which follows the first.
  template <class Take>
  struct Second {
    StepRecords* records;
    const Take& take;

    static Error BeforeBlock(void* context, int64_t first, int64_t steps,
                             const HostInterface& host) {
      const auto* const self = static_cast<const Second*>(context);
      if (Error error = self->records->Await(
              steps, static_cast<cudaStream_t>(host.stream))) {
        return error;
      }
      return self->take({first, steps}, host);
    }
  };

  static Error RecordBlock(void* records, int64_t, int64_t steps,
                           const HostInterface& host) {
    return static_cast<StepRecords*>(records)->Record(
        steps, static_cast<cudaStream_t>(host.stream));
  }

  // On the side stream: its allocations wait for the caller's stream, on which
  // nothing of the pair is queued yet.
  template <class Take, class Body>
  Error RunFirst(int64_t layer, const Take& take, const Body& body) {
    Error error = nullptr;
    if ((error = side_.Open()) || (error = side_.Fork())) return error;
    first_queued_ = true;
    records_.Clear();
    const BlockObserver observer = {&records_, nullptr, &RecordBlock,
                                    pair_steps_};
    const HostInterface& host = side_host_.For(2, &observer);
    if ((error = take(all_steps_, host))) return error;
    return RunBody(&side_host_, host, body, Direction(layer, 0));
  }

  template <class Take, class Body>
  Error RunSecond(int64_t layer, const Take& take, const Body& body) {
    Second<Take> second = {&records_, take};
    const BlockObserver observer = {&second, &Second<Take>::BeforeBlock,
                                    nullptr, pair_steps_};
    const Error error = RunBody(&main_host_, main_host_.For(2, &observer), body,
                                Direction(layer, 0));
    first_queued_ = false;
    const Error joined = side_.Join();
    return error != nullptr ? error : joined;
  }

  LayerDirection Direction(int64_t layer, int64_t direction) const {
    return {layer, direction, layer * directions_ + direction};
  }

  template <class Body, class... Directions>
  static Error RunBody(StreamHost* parent, const HostInterface& host,
                       const Body& body, const Directions&... directions) {
    const Error error = body(host, directions...);
    parent->Recycle();
    return error;
  }

  const int64_t directions_;
  const bool joint_directions_;
  const StepSpan all_steps_;
  const int64_t pair_steps_;
  int64_t layers_left_;
  bool first_queued_ =
      false;  // the first layer of a pair is queued, not the second
  SideStream side_;
  StepRecords records_;
  StreamHost main_host_;
  StreamHost side_host_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_
