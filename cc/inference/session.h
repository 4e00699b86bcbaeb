// Declares a session: recurrent layers whose weights are packed once, and the
// threads and memory with which the CPU engine runs them. It needs neither
// TensorFlow nor Python.

#ifndef BLOCKRNN_INFERENCE_SESSION_H_
#define BLOCKRNN_INFERENCE_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "cc/core/engine_args.h"
#include "cc/core/frozen_stack_args.h"
#include "cc/inference/arena.h"
#include "cc/inference/blockrnn.h"
#include "cc/inference/session_pool.h"
#include "cc/inference/session_status.h"
#include "cc/kernels/cpu/engine.h"

namespace blockrnn {

// Arrays that live as long as this object.
class Arrays {
 public:
  // Aligned to 64 bytes; throws std::bad_alloc.
  template <class T>
  T* New(int64_t count) {
    return static_cast<T*>(
        NewBytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  void* NewBytes(std::size_t bytes);

  std::vector<std::unique_ptr<void, Free>> arrays_;
};

using SessionCall = FrozenStackCall<float>;

class Session {
 public:
  // Only a session that Init accepts can be used.
  Session(const cpu::Engine* engine, int threads)
      : engine_(engine), threads_(threads) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Packs the weights and starts the threads. `model` has been checked.
  SessionStatus Init(const blockrnn_model& model, blockrnn_precision precision);

  // The arguments have been checked.
  SessionStatus Run(const SessionCall& call);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  bool has_step() const { return has_step_; }
  int64_t state_size() const { return state_size_; }
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  template <class Forward>
  using LayersOf = std::vector<StackLayer<Forward>>;
  template <template <class> class... Forward>
  static std::variant<LayersOf<Forward<float>>...> OneOf(ArgsList<Forward...>);

  // What one call works with, from a list of those that no call uses.
  struct Workspace {
    Session* session = nullptr;
    Arena arena;
  };

  static void Schedule(void* context, void (*run)(void* arg) noexcept,
                       void* arg) noexcept;
  static void* Allocate(void* context, std::size_t bytes) noexcept;

  SessionStatus PackWeights(const blockrnn_model& model,
                            blockrnn_precision precision);
  template <class Forward>
  SessionStatus InitLayers(const blockrnn_model& model, Precision precision);
  template <class Forward>
  SessionStatus Pack(FreezeArgs<Forward>* args, FrozenWeights* weights);

  std::unique_ptr<Workspace> TakeWorkspace();
  void GiveBack(std::unique_ptr<Workspace> workspace);

  // Whether the pool's threads still spin, since calls follow closely on one
  // another; to be called once when a call begins.
  bool WorkersAwake();

  const cpu::Engine* const engine_;
  const int threads_;
  int64_t inputs_ = 0;
  int64_t outputs_ = 0;
  bool has_step_ = true;
  int64_t state_size_ = 0;
  int64_t weight_bytes_ = 0;
  decltype(OneOf(SequenceForwards())) layers_;  // of the cell
  Arrays arrays_;  // that the layers read: packed weights, peepholes

  std::atomic<int64_t> last_call_{0};  // its end, nanoseconds of a clock
  std::atomic<int> close_calls_{0};    // each soon after the one before it
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;  // under mutex_
  // Last, so that its threads end first.
  std::unique_ptr<SessionPool> pool_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_SESSION_H_
