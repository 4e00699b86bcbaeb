#include "cc/inference/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "cc/core/gate_layout.h"
#include "cc/inference/flush_denormals.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn {
namespace {

// A thread of Eigen's pool spins about this long before it sleeps.
constexpr int64_t kAwakeNanoseconds = 50'000;
// Calls that follow one another so closely before the threads are counted on:
// the first of them to use one has to wake it.
constexpr int kCloseCalls = 8;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Precision EnginePrecision(blockrnn_precision precision) {
  switch (precision) {
    case BLOCKRNN_BFLOAT16:
      return Precision::kBFloat16;
    case BLOCKRNN_INT8:
      return Precision::kInt8;
    default:
      return Precision::kStorage;
  }
}

}  // namespace

Session::Session(const cpu::Engine* engine, const blockrnn_model& model,
                 blockrnn_precision precision, int threads)
    : engine_(engine),
      cell_(model.cell),
      cell_clip_(model.cell_clip),
      zoneout_h_(model.zoneout_state),
      zoneout_c_(model.zoneout),
      epsilon_(HasNorms(model.cell) ? model.epsilon : 0.0f),
      norm_output_only_(HasNorms(model.cell) && model.norm_output_only != 0),
      precision_(EnginePrecision(precision)),
      threads_(threads) {
  if (threads > 1) pool_ = std::make_unique<Eigen::ThreadPool>(threads - 1);
}

SessionStatus Session::Init(const blockrnn_model& model) {
  for (int64_t n = 0; n < model.num_layers; ++n) {
    const blockrnn_layer& from = model.layers[n];
    Layer layer;
    layer.inputs = from.inputs;
    layer.units = from.units;
    layer.outputs = from.outputs;
    for (const blockrnn_direction* weights : {from.forward, from.backward}) {
      if (weights == nullptr) continue;
      Direction direction;
      direction.state_offset = state_size_;
      const int64_t size = layer.outputs + (IsLstm(cell_) ? layer.units : 0);
      state_size_ += size;
      widest_state_ = std::max({widest_state_, layer.outputs, layer.units});
      const SessionStatus status = Freeze(*weights, layer, &direction);
      if (!status.ok()) return status;
      layer.directions.push_back(std::move(direction));
    }
    has_step_ &= layer.directions.size() == 1;
    widest_output_ = std::max(widest_output_, layer.OutputWidth());
    layers_.push_back(std::move(layer));
  }
  return {};
}

void Session::Schedule(void* context, void (*run)(void* arg), void* arg) {
  Session* const session = static_cast<Workspace*>(context)->session;
  session->pool_->Schedule([run, arg] {
    const FlushDenormals flush;
    run(arg);
  });
}

void* Session::Allocate(void* context, std::size_t bytes) {
  return static_cast<Workspace*>(context)->arena.Allocate(bytes);
}

std::unique_ptr<Session::Workspace> Session::TakeWorkspace() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!workspaces_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(workspaces_.back());
      workspaces_.pop_back();
      return workspace;
    }
  }
  auto workspace = std::make_unique<Workspace>();
  workspace->session = this;
  return workspace;
}

void Session::GiveBack(std::unique_ptr<Workspace> workspace) {
  workspace->arena.Reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  workspaces_.push_back(std::move(workspace));
}

SessionStatus Session::Run(const SessionCall& call) {
  const FlushDenormals flush;
  std::unique_ptr<Workspace> workspace = TakeWorkspace();
  workspace->workers_awake = WorkersAwake();
  SessionStatus status = RunLayers(call, workspace.get());
  GiveBack(std::move(workspace));
  if (threads_ > 1) last_call_.store(Now(), std::memory_order_relaxed);
  return status;
}

// Of calls from several threads it may count some that are not there, which
// costs a little time.
bool Session::WorkersAwake() {
  if (threads_ == 1) return false;
  if (Now() - last_call_.load(std::memory_order_relaxed) > kAwakeNanoseconds) {
    close_calls_.store(0, std::memory_order_relaxed);
    return false;
  }
  const int calls = close_calls_.load(std::memory_order_relaxed);
  if (calls < kCloseCalls) {
    close_calls_.store(calls + 1, std::memory_order_relaxed);
  }
  return calls >= kCloseCalls;
}

cpu::HostInterface Session::Host(Workspace* workspace, int num_threads) const {
  cpu::HostInterface host;
  host.context = workspace;
  host.num_threads = num_threads;
  host.schedule = &Schedule;
  host.allocate = &Allocate;
  host.workers_awake = workspace->workers_awake;
  return host;
}

SessionStatus Session::RunLayers(const SessionCall& call,
                                 Workspace* workspace) {
  const auto new_array = [workspace](int64_t count) {
    return static_cast<float*>(workspace->arena.Allocate(
        static_cast<std::size_t>(count) * sizeof(float)));
  };
  float* zeros = nullptr;
  if (call.state == nullptr) {
    zeros = new_array(call.batch * widest_state_);
    if (zeros == nullptr) return OutOfMemory();
    std::fill_n(zeros, call.batch * widest_state_, 0.0f);
  }
  // A layer reads what the one below it wrote.
  float* between[2] = {};
  const float* x = call.x;
  for (size_t n = 0; n < layers_.size(); ++n) {
    const Layer& layer = layers_[n];
    float* h = call.y;
    if (n + 1 < layers_.size()) {
      float*& buffer = between[n % 2];
      if (buffer == nullptr) {
        buffer = new_array(call.batch * call.steps * widest_output_);
      }
      if (buffer == nullptr) return OutOfMemory();
      h = buffer;
    }
    if (RunDirections(call, layer, x, h, zeros, workspace) !=
        cpu::Status::kOk) {
      return OutOfMemory();
    }
    x = h;
  }
  return {};
}

// What the calling thread and one of the pool share: who comes first runs the
// backward direction.
struct Session::OtherDirection {
  std::unique_ptr<Workspace> workspace;
  std::atomic<bool> taken{false};
  std::atomic<bool> done{false};
  cpu::Status status = cpu::Status::kOk;
};

bool Session::RunsConcurrently(const SessionCall& call,
                               const Layer& layer) const {
  if (layer.directions.size() != 2 || threads_ == 1) return false;
  const double gates = static_cast<double>(NumGates(cell_)) * layer.units;
  const double rows = static_cast<double>(call.batch) * call.steps;
  if (rows * gates * (layer.inputs + layer.outputs) <
      cpu::Tuning::kMacsPerAwakeLoopWorker) {
    return false;
  }
  return cpu::DirectionsFitConcurrently(call.batch,
                                        gates * layer.outputs * sizeof(float));
}

cpu::Status Session::RunDirections(const SessionCall& call, const Layer& layer,
                                   const float* x, float* h, const float* zeros,
                                   Workspace* workspace) {
  const auto run = [&](int direction, Workspace* own, int num_threads) {
    return RunDirection(call, layer, direction, x, h, zeros,
                        Host(own, num_threads));
  };
  const auto directions = static_cast<int>(layer.directions.size());
  if (!RunsConcurrently(call, layer)) {
    cpu::Status status = cpu::Status::kOk;
    for (int d = 0; d < directions && status == cpu::Status::kOk; ++d) {
      status = run(d, workspace, threads_);
    }
    return status;
  }
  const auto other = std::make_shared<OtherDirection>();
  other->workspace = TakeWorkspace();
  other->workspace->workers_awake = workspace->workers_awake;
  // `run` is of this call, which waits for it once it is taken.
  pool_->Schedule([this, other, &run] {
    if (other->taken.exchange(true, std::memory_order_acq_rel)) return;
    const FlushDenormals flush;
    other->status = run(1, other->workspace.get(), threads_ / 2);
    other->done.store(true, std::memory_order_release);
  });
  const cpu::Status first = run(0, workspace, (threads_ + 1) / 2);
  cpu::Status second = cpu::Status::kOk;
  if (!other->taken.exchange(true, std::memory_order_acq_rel)) {
    second = run(1, workspace, threads_);
  } else {
    while (!other->done.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
    second = other->status;
  }
  GiveBack(std::move(other->workspace));
  return first == cpu::Status::kOk ? second : first;
}

cpu::Status Session::RunDirection(const SessionCall& call, const Layer& layer,
                                  int index, const float* x, float* h,
                                  const float* zeros,
                                  const cpu::HostInterface& host) const {
  const Direction& direction = layer.directions[index];
  if (layer.outputs == 0) return cpu::Status::kOk;  // then there are no units
  // The states of h and, for an LSTM, of cs.
  const auto state = [&](auto* states, int64_t offset) {
    return states == nullptr ? states : states + call.batch * offset;
  };
  const int64_t h_offset = direction.state_offset;
  const int64_t cs_offset = h_offset + layer.outputs;
  const auto fill = [&](auto* args) {
    args->shape.steps = call.steps;
    args->shape.batch = call.batch;
    args->shape.input = layer.inputs;
    args->shape.units = layer.units;
    args->shape.time_major = false;
    args->shape.backwards = index == 1;
    args->shape.lengths = call.lengths;
    args->shape.h_width = layer.OutputWidth();
    args->x = x;
    args->h_prev = zeros != nullptr ? zeros : state(call.state, h_offset);
    args->frozen = &direction.frozen;
    args->batch_invariant = call.rows_apart;
    args->zoneout_h.rate = zoneout_h_;
    args->h = h + index * layer.outputs;
    args->h_last = state(call.new_state, h_offset);
  };
  switch (cell_) {
    case BLOCKRNN_LSTM: {
      LstmSequenceForwardArgs<float> args;
      fill(&args);
      args.layout = kLstmIfco;
      args.options.cell_clip = cell_clip_;
      args.zoneout_c.rate = zoneout_c_;
      args.options.use_peephole = direction.peepholes != nullptr;
      args.wci = direction.peepholes.get();
      args.wcf = args.wci + layer.units;
      args.wco = args.wcf + layer.units;
      args.proj = direction.projection;
      args.cs_prev = zeros != nullptr ? zeros : state(call.state, cs_offset);
      args.cs_last = state(call.new_state, cs_offset);
      return engine_->f32.Run(args, host);
    }
    case BLOCKRNN_LAYER_NORM_LSTM: {
      LayerNormLstmForwardArgs<float> args;
      fill(&args);
      args.layout = kLstmIfco;
      args.epsilon = epsilon_;
      args.norm_output_only = norm_output_only_;
      args.cs_prev = zeros != nullptr ? zeros : state(call.state, cs_offset);
      args.cs_last = state(call.new_state, cs_offset);
      return engine_->f32.Run(args, host);
    }
    case BLOCKRNN_GRU_RESET_BEFORE: {
      GruSequenceForwardArgs<float> args;
      fill(&args);
      return engine_->f32.Run(args, host);
    }
    case BLOCKRNN_GRU_RESET_AFTER: {
      GruAfterSequenceForwardArgs<float> args;
      fill(&args);
      args.layout = kGruRuc;
      return engine_->f32.Run(args, host);
    }
    case BLOCKRNN_LAYER_NORM_GRU: {
      LayerNormGruForwardArgs<float> args;
      fill(&args);
      args.layout = kGruRuc;
      args.epsilon = epsilon_;
      return engine_->f32.Run(args, host);
    }
    default: {
      SimpleRnnForwardArgs<float> args;
      fill(&args);
      args.relu = cell_ == BLOCKRNN_RNN_RELU;
      return engine_->f32.Run(args, host);
    }
  }
}

}  // namespace blockrnn
