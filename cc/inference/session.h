// Declares a session: recurrent layers whose weights are packed once, and calls
// of the CPU engine with them. It needs neither TensorFlow nor Python.

#ifndef BLOCKRNN_INFERENCE_SESSION_H_
#define BLOCKRNN_INFERENCE_SESSION_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "Eigen/ThreadPool"
#include "cc/core/gate_layout.h"
#include "cc/core/sequence_args.h"
#include "cc/inference/arena.h"
#include "cc/inference/blockrnn.h"
#include "cc/kernels/cpu/engine.h"

namespace blockrnn {

// A code of the C interface, and its text.
struct SessionStatus {
  blockrnn_status code = BLOCKRNN_OK;
  std::string text;

  bool ok() const { return code == BLOCKRNN_OK; }
};

inline SessionStatus InvalidArgument(std::string text) {
  return {BLOCKRNN_INVALID_ARGUMENT, std::move(text)};
}
inline SessionStatus OutOfMemory() {
  return {BLOCKRNN_OUT_OF_MEMORY, "there is no memory for it"};
}

// Whether the cell has layer normalisation.
inline bool HasNorms(blockrnn_cell cell) {
  return cell == BLOCKRNN_LAYER_NORM_LSTM || cell == BLOCKRNN_LAYER_NORM_GRU;
}

inline bool IsGru(blockrnn_cell cell) {
  return cell == BLOCKRNN_GRU_RESET_BEFORE ||
         cell == BLOCKRNN_GRU_RESET_AFTER || cell == BLOCKRNN_LAYER_NORM_GRU;
}

// Whether there is a cell state.
inline bool IsLstm(blockrnn_cell cell) {
  return cell == BLOCKRNN_LSTM || cell == BLOCKRNN_LAYER_NORM_LSTM;
}

inline int NumGates(blockrnn_cell cell) {
  if (IsLstm(cell)) return kLstmGates;
  return IsGru(cell) ? kGruAfterGates : 1;
}

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using AlignedArray = std::unique_ptr<T[], FreeDeleter>;

// One call of run or step.
struct SessionCall {
  const float* x = nullptr;  // [B, T, I]
  int64_t batch = 0;
  int64_t steps = 0;
  const int64_t* lengths = nullptr;
  const float* state = nullptr;
  float* new_state = nullptr;
  float* y = nullptr;  // [B, T, D · P]
  bool rows_apart = false;
};

class Session {
 public:
  // `model` has been checked. Only a session that Init accepts can be used.
  Session(const cpu::Engine* engine, const blockrnn_model& model,
          blockrnn_precision precision, int threads);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  SessionStatus Init(const blockrnn_model& model);

  // The arguments have been checked.
  SessionStatus Run(const SessionCall& call);

  int64_t inputs() const { return layers_.front().inputs; }
  int64_t outputs() const { return layers_.back().OutputWidth(); }
  bool has_step() const { return has_step_; }
  int64_t state_size() const { return state_size_; }
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  struct Direction {
    AlignedArray<char> packed;
    AlignedArray<float> peepholes;  // [3, H], or null
    FrozenWeights frozen;
    int64_t state_offset = 0;  // of h, in states of one row; cs follows
    int64_t projection = 0;    // P where there is one, else 0
  };
  struct Layer {
    int64_t inputs = 0;
    int64_t units = 0;
    int64_t outputs = 0;
    std::vector<Direction> directions;

    int64_t OutputWidth() const {
      return outputs * static_cast<int64_t>(directions.size());
    }
  };
  // What one call works with, from a list of those that no call uses.
  struct Workspace {
    Session* session = nullptr;
    Arena arena;
    bool workers_awake = false;
  };

  static void Schedule(void* context, void (*run)(void* arg), void* arg);
  static void* Allocate(void* context, std::size_t bytes);

  SessionStatus Freeze(const blockrnn_direction& weights, const Layer& layer,
                       Direction* direction);
  SessionStatus FreezeLstm(const blockrnn_direction& weights,
                           const Layer& layer, Direction* direction);
  SessionStatus FreezeLayerNormLstm(const blockrnn_direction& weights,
                                    const Layer& layer, Direction* direction);
  SessionStatus FreezeLayerNormGru(const blockrnn_direction& weights,
                                   const Layer& layer, Direction* direction);
  template <class FreezeArgs>
  SessionStatus Pack(FreezeArgs* args, Direction* direction);

  std::unique_ptr<Workspace> TakeWorkspace();
  void GiveBack(std::unique_ptr<Workspace> workspace);

  struct OtherDirection;

  // Whether the pool's threads still spin, since calls follow closely on one
  // another; to be called once when a call begins.
  bool WorkersAwake();

  cpu::HostInterface Host(Workspace* workspace, int num_threads) const;
  bool RunsConcurrently(const SessionCall& call, const Layer& layer) const;
  SessionStatus RunLayers(const SessionCall& call, Workspace* workspace);
  cpu::Status RunDirections(const SessionCall& call, const Layer& layer,
                            const float* x, float* h, const float* zeros,
                            Workspace* workspace);
  cpu::Status RunDirection(const SessionCall& call, const Layer& layer,
                           int index, const float* x, float* h,
                           const float* zeros,
                           const cpu::HostInterface& host) const;

  const cpu::Engine* const engine_;
  const blockrnn_cell cell_;
  const float cell_clip_;
  const float zoneout_h_;  // rates
  const float zoneout_c_;
  const float epsilon_;
  const bool norm_output_only_;
  const Precision precision_;
  const int threads_;
  bool has_step_ = true;
  int64_t state_size_ = 0;
  int64_t widest_state_ = 0;   // of one direction
  int64_t widest_output_ = 0;  // of a layer
  int64_t weight_bytes_ = 0;
  std::vector<Layer> layers_;

  std::atomic<int64_t> last_call_{0};  // its end, nanoseconds of a clock
  std::atomic<int> close_calls_{0};    // each soon after the one before it
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;  // under mutex_
  // Last, so that its threads end first.
  std::unique_ptr<Eigen::ThreadPool> pool_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_SESSION_H_
