#include "cc/inference/session.h"

#include <atomic>
#include <chrono>
#include <utility>
#include <variant>

#include "cc/inference/flush_denormals.h"

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

template <class Forward>
FrozenStackArgs<Forward> ArgsOf(
    const SessionCall& call, const std::vector<StackLayer<Forward>>& layers) {
  return {call, layers.data(), static_cast<int64_t>(layers.size())};
}

}  // namespace

SessionStatus Session::Init(const blockrnn_model& model,
                            blockrnn_precision precision) {
  const SessionStatus status = PackWeights(model, precision);
  return status.ok() ? StartPool(threads_, &pool_) : status;
}

void Session::Schedule(void* context, void (*run)(void* arg) noexcept,
                       void* arg) noexcept {
  Session* const session = static_cast<Workspace*>(context)->session;
  try {
    session->pool_->Schedule([run, arg] {
      const FlushDenormals flush;
      run(arg);
    });
  } catch (...) {
    run(arg);
  }
}

void* Session::Allocate(void* context, std::size_t bytes) noexcept {
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
  cpu::HostInterface host;
  host.context = workspace.get();
  host.num_threads = threads_;
  host.schedule = &Schedule;
  host.allocate = &Allocate;
  host.workers_awake = WorkersAwake();
  const cpu::Status status = std::visit(
      [&](const auto& layers) {
        return engine_->f32.Run(ArgsOf(call, layers), host);
      },
      layers_);
  GiveBack(std::move(workspace));
  if (threads_ > 1) last_call_.store(Now(), std::memory_order_relaxed);
  return status == cpu::Status::kOk ? SessionStatus() : OutOfMemory();
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

}  // namespace blockrnn
