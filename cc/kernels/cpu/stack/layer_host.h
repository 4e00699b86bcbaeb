// Owns what a stack lends to the sequences it runs: a share of its host's
// threads, and scratch that the layers have one after another.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_LAYER_HOST_H_
#define BLOCKRNN_KERNELS_CPU_STACK_LAYER_HOST_H_

#include <cstddef>

#include "cc/core/scratch_pool.h"
#include "cc/kernels/cpu/engine.h"

namespace blockrnn::cpu {

// The host of one sequence at a time.
class LayerHost {
 public:
  LayerHost(const HostInterface& lender, int num_threads, int sequences_at_once)
      : lender_(lender) {
    host_.context = this;
    host_.num_threads = num_threads;
    host_.sequences_at_once = sequences_at_once;
    if (lender.schedule != nullptr) host_.schedule = &Schedule;
    host_.allocate = &Allocate;
    if (lender.cancelled != nullptr) host_.cancelled = &Cancelled;
  }
  LayerHost(const LayerHost&) = delete;
  LayerHost& operator=(const LayerHost&) = delete;

  const HostInterface& host() const { return host_; }

  // The sequence is over, and its scratch the next one's. A helper that still
  // comes reads none of it.
  void Recycle() { scratch_.Recycle(); }

 private:
  static void Schedule(void* context, void (*run)(void* arg), void* arg) {
    const HostInterface& lender = static_cast<LayerHost*>(context)->lender_;
    lender.schedule(lender.context, run, arg);
  }

  static bool Cancelled(void* context) {
    const HostInterface& lender = static_cast<LayerHost*>(context)->lender_;
    return lender.cancelled(lender.context);
  }

  static void* Allocate(void* context, std::size_t bytes) {
    return static_cast<LayerHost*>(context)->Take(bytes);
  }

  void* Take(std::size_t bytes) {
    if (void* const data = scratch_.Take(bytes)) return data;
    void* const data = lender_.allocate(lender_.context, bytes);
    if (data != nullptr) scratch_.Add(data, bytes);
    return data;
  }

  const HostInterface& lender_;
  HostInterface host_;
  ScratchPool scratch_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_LAYER_HOST_H_
