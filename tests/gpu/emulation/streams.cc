// Implements the emulated streams and events. Work runs when it is queued; or,
// at the checks' request, only when the host waits, and then as much of one
// stream as its events allow before the next stream runs, or piece by piece in
// random order. So an order that the engine left unspecified shows.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/cuda_runtime.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// How often an event has been recorded, and how many of these records the
// device has reached.
struct Records {
  uint64_t queued = 0;
  uint64_t done = 0;
};

// A piece of work, or a wait for a record.
struct Item {
  std::function<cudaError_t()> work;
  std::shared_ptr<Records> awaited;
  uint64_t record = 0;

  bool ready() const { return awaited == nullptr || awaited->done >= record; }
};

enum Order { kAtOnce, kFirstStreamFirst, kLastStreamFirst, kByChance };
Order order = kAtOnce;
uint32_t chance = 0;
cudaError_t failure = cudaSuccess;  // of what ran late

}  // namespace

struct EmulatedStream {
  std::deque<Item> items;
};

struct EmulatedEvent {
  std::shared_ptr<Records> records = std::make_shared<Records>();
};

namespace {

// In the order in which they were created. None is ever destroyed.
std::vector<std::unique_ptr<EmulatedStream>>& Streams() {
  static auto* const streams = new std::vector<std::unique_ptr<EmulatedStream>>;
  return *streams;
}

EmulatedStream* NextToRun() {
  auto& streams = Streams();
  chance = chance * 1664525u + 1013904223u;
  const std::size_t first = order == kByChance ? chance >> 16 : 0;
  for (std::size_t n = 0; n < streams.size(); ++n) {
    const std::size_t turn = order == kLastStreamFirst
                                 ? streams.size() - 1 - n
                                 : (first + n) % streams.size();
    EmulatedStream& stream = *streams[turn];
    if (!stream.items.empty() && stream.items.front().ready()) return &stream;
  }
  return nullptr;
}

void RunOne(EmulatedStream* stream) {
  const Item item = std::move(stream->items.front());
  stream->items.pop_front();
  if (!item.work) return;
  const cudaError_t code = emulation::ReportOfKernel(item.work());
  if (failure == cudaSuccess) failure = code;
}

cudaError_t TakeFailure() { return std::exchange(failure, cudaSuccess); }

// Runs until `stream` is empty, and other streams as far as their turn comes.
cudaError_t Drain(EmulatedStream* stream) {
  while (!stream->items.empty()) {
    EmulatedStream* const next = NextToRun();
    if (next == nullptr) return cudaErrorLaunchFailure;  // all wait for ever
    RunOne(next);
  }
  return TakeFailure();
}

cudaError_t Add(cudaStream_t stream, Item item) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  stream->items.push_back(std::move(item));
  return order == kAtOnce ? Drain(stream) : cudaSuccess;
}

}  // namespace

namespace emulation {

cudaError_t Enqueue(cudaStream_t stream, std::function<cudaError_t()> work) {
  if (const cudaError_t code = FailureNow(); code != cudaSuccess) return code;
  return Add(stream, {std::move(work), nullptr, 0});
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

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t code = emulation::FailureNow(); code != cudaSuccess) {
    return code;
  }
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const uint64_t record = event->records->queued + 1;
  const cudaError_t code =
      emulation::Enqueue(stream, [records = event->records, record] {
        records->done = record;
        return cudaSuccess;
      });
  if (code == cudaSuccess) event->records->queued = record;
  return code;
}

// To CUDA waiting for nothing is no error; here it is one, since it is never
// intended.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (const cudaError_t code = emulation::FailureNow(); code != cudaSuccess) {
    return code;
  }
  if (event->records->queued == 0) return cudaErrorInvalidValue;
  return Add(stream, {nullptr, event->records, event->records->queued});
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

// 0: work runs when it is queued. 1, 2: when the host waits; the oldest stream
// runs first, or last. 3 and more: in random order, with that seed.
EXPORT void emulation_vary_streams(int new_order) {
  order = static_cast<Order>(std::min<int>(new_order, kByChance));
  chance = static_cast<uint32_t>(new_order);
}

// For the substitute of cuBLAS, a library of its own, which checks by itself
// whether a call is to fail.
EXPORT int emulation_enqueue(void* stream, int (*work)(void*), void* data) {
  const auto run = [work, data] {
    return work(data) == 0 ? cudaSuccess : cudaErrorLaunchFailure;
  };
  return Add(static_cast<cudaStream_t>(stream), {run, nullptr, 0});
}

EXPORT int emulation_fails_now() { return emulation::FailsNow() ? 1 : 0; }
