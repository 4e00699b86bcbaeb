// Owns what runs side by side on the GPU, on the caller's stream and on one
// beside it: the directions of a layer, or layers in pairs, the second of which
// does a block of steps when the first has done it.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cc/core/rnn_geometry.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/scratch_pool.h"
#include "cc/kernels/cuda/blas/blas.h"
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
  // The other way round. What is queued beside the caller's stream uses memory
  // of the caller: where that can't be made to wait, the host does.
  Error Join();

 private:
  Error Order(cudaStream_t first, cudaStream_t then);

  const cudaStream_t main_;
  cudaStream_t side_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// The host of the sequences of a stream, one after another, with scratch that
// each has in its turn.
class StreamHost {
 public:
  // side: what its work is queued on, or nullptr for the lender's own stream.
  StreamHost(const HostInterface& lender, SideStream* side);
  StreamHost(const StreamHost&) = delete;
  StreamHost& operator=(const StreamHost&) = delete;

  // Of a sequence that is one of `side_by_side`, when the side stream is open.
  const HostInterface& For(int side_by_side, const BlockWatch* watch = nullptr);

  // The sequence is queued, and its scratch the next one's, which runs after it
  // on the same stream.
  void Recycle() { scratch_.Recycle(); }

 private:
  static void* AllocateFromPool(void* context, std::size_t bytes);
  static void* AllocateFromLender(void* context, std::size_t bytes);
  static Error Product(void* context, const BlasProduct& product,
                       const HostInterface&);

  const HostInterface& lender_;
  SideStream* const side_;
  ScratchPool scratch_;
  Blas blas_;
  HostInterface host_;
  // For the BLAS, which keeps its scratch from layer to layer.
  HostInterface unpooled_;
};

// How far the first layer of a pair is, for the second.
class StepRecords {
 public:
  StepRecords() = default;
  ~StepRecords();
  StepRecords(const StepRecords&) = delete;
  StepRecords& operator=(const StepRecords&) = delete;

  // For the next pair.
  void Clear() { count_ = recorded_ = awaited_ = 0; }

  // The first layer has queued `steps` more.
  Error Record(int64_t steps, cudaStream_t stream);
  // What the second layer queues from now on waits for `steps` more. Not before
  // all has been recorded.
  Error Await(int64_t steps, cudaStream_t stream);

 private:
  // With more blocks the last event stands for all from there on.
  static constexpr int kMostEvents = 16;

  int events_ = 0;  // that have been made
  cudaEvent_t event_[kMostEvents] = {};
  int64_t done_[kMostEvents] = {};  // steps, when the event comes
  int count_ = 0;
  int64_t recorded_ = 0;
  int64_t awaited_ = 0;
};

// How a stack runs.
struct StackStreams {
  int64_t pair_steps = 0;  // of a block, where layers run in pairs; else 0
  bool directions_in_turn = false;  // each with the whole device
};

class LayerStreams {
 public:
  LayerStreams(const HostInterface& host, const RnnGeometry& geometry,
               const StepSpan& all_steps, const StackStreams& streams)
      : directions_(geometry.directions),
        at_once_(streams.directions_in_turn
                     ? 1
                     : static_cast<int>(geometry.directions)),
        all_steps_(all_steps),
        pair_steps_(streams.pair_steps),
        layers_left_(geometry.layers),
        side_(host.stream),
        main_host_(host, nullptr),
        side_host_(host, &side_) {}
  // Between the layers of a pair: what the first has queued uses memory of the
  // caller.
  ~LayerStreams() {
    if (leads_) static_cast<void>(side_.Join());
  }

  // take(steps, host) → Error and body(pseudo, host) → Error as in
  // cc/core/rnn_stack_forward.h.
  template <class Take, class Body>
  Error Run(int64_t layer, const Take& take, const Body& body) {
    --layers_left_;
    if (leads_) return RunSecond(layer, take, body);
    if (pair_steps_ > 0 && layers_left_ > 0) return RunFirst(layer, take, body);
    const HostInterface& host = main_host_.For(at_once_);
    if (Error error = take(all_steps_, host)) return error;
    if (at_once_ == 1) {
      for (int64_t direction = 0; direction < directions_; ++direction) {
        if (Error error = RunOne(layer, direction, &main_host_, host, body)) {
          return error;
        }
      }
      return nullptr;
    }
    if (Error error = Fork()) return error;
    // The second direction first: its allocations wait for the caller's stream,
    // which has nothing of this layer yet.
    Error error = RunOne(layer, 1, &side_host_, side_host_.For(at_once_), body);
    if (error == nullptr) error = RunOne(layer, 0, &main_host_, host, body);
    // After a failure too.
    const Error joined = side_.Join();
    return error != nullptr ? error : joined;
  }

 private:
  // The second layer of a pair, as it follows the first.
  template <class Take>
  struct Second {
    StepRecords* records;
    const Take& take;

    static Error Enter(void* context, int64_t first, int64_t steps,
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

  // On the side stream: its allocations wait for the caller's stream, which has
  // nothing of the pair yet.
  template <class Take, class Body>
  Error RunFirst(int64_t layer, const Take& take, const Body& body) {
    if (Error error = Fork()) return error;
    leads_ = true;
    records_.Clear();
    const BlockWatch watch = {&records_, nullptr, &RecordBlock, pair_steps_};
    const HostInterface& host = side_host_.For(2, &watch);
    if (Error error = take(all_steps_, host)) return error;
    return RunOne(layer, 0, &side_host_, host, body);
  }

  template <class Take, class Body>
  Error RunSecond(int64_t layer, const Take& take, const Body& body) {
    Second<Take> second = {&records_, take};
    const BlockWatch watch = {&second, &Second<Take>::Enter, nullptr,
                              pair_steps_};
    const Error error =
        RunOne(layer, 0, &main_host_, main_host_.For(2, &watch), body);
    leads_ = false;
    const Error joined = side_.Join();
    return error != nullptr ? error : joined;
  }

  Error Fork() {
    if (Error error = side_.Open()) return error;
    return side_.Fork();
  }

  template <class Body>
  Error RunOne(int64_t layer, int64_t direction, StreamHost* lender,
               const HostInterface& host, const Body& body) const {
    const Error error =
        body(Pseudo{layer, direction, layer * directions_ + direction}, host);
    lender->Recycle();
    return error;
  }

  const int64_t directions_;
  const int at_once_;  // directions
  const StepSpan all_steps_;
  const int64_t pair_steps_;
  int64_t layers_left_;
  bool leads_ = false;  // the first layer of a pair is queued, not the second
  SideStream side_;
  StepRecords records_;
  StreamHost main_host_;
  StreamHost side_host_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_STREAMS_CUH_
