#include "cc/kernels/frozen_layer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

std::atomic<int64_t> packed_bytes = 0;

// The layers that somebody holds.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<FrozenLayer>> layers;  // under mutex
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

void Forget(const std::string& key, const FrozenLayer* layer) {
  delete layer;
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.layers.find(key);
  // Another layer of this key may have been made meanwhile.
  if (found != registry.layers.end() && found->second.expired()) {
    registry.layers.erase(found);
  }
}

}  // namespace

PackedLayer::PackedLayer(int64_t bytes)
    : bytes_(bytes),
      data_(tensorflow::cpu_allocator()->AllocateRaw(
          tensorflow::Allocator::kAllocatorAlignment,
          std::max<int64_t>(1, bytes))) {
  if (data_ != nullptr) packed_bytes += bytes_;
}

PackedLayer::~PackedLayer() {
  if (data_ == nullptr) return;
  tensorflow::cpu_allocator()->DeallocateRaw(data_);
  packed_bytes -= bytes_;
}

std::shared_ptr<FrozenLayer> FrozenLayer::Find(const std::string& key,
                                               const std::string& frozen) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::weak_ptr<FrozenLayer>& known = registry.layers[key];
  std::shared_ptr<FrozenLayer> layer = known.lock();
  if (layer == nullptr) {
    layer = std::shared_ptr<FrozenLayer>(
        new FrozenLayer(frozen),
        [key](const FrozenLayer* unused) { Forget(key, unused); });
    known = layer;
  }
  return layer;
}

void FrozenLayer::Release(const std::string& frozen) {
  std::vector<std::shared_ptr<FrozenLayer>> layers;
  {
    Registry& registry = TheRegistry();
    const std::lock_guard<std::mutex> lock(registry.mutex);
    for (const auto& [key, known] : registry.layers) {
      if (std::shared_ptr<FrozenLayer> layer = known.lock()) {
        layers.push_back(std::move(layer));
      }
    }
  }
  // Outside the lock, which the last owner of a layer takes.
  for (const auto& layer : layers) {
    if (layer->frozen_ == frozen) layer->Clear();
  }
}

void FrozenLayer::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  checked_.clear();
  packed_.reset();
}

absl::Status FrozenLayer::Use(const std::string& op, OpCall* call,
                              absl::Span<const Weights> weights,
                              const Pack& pack,
                              std::shared_ptr<const PackedLayer>* packed) {
  // Whoever packs uses the threads of the pool and never waits for one that
  // has not started; so others may wait here on theirs.
  const std::lock_guard<std::mutex> lock(mutex_);
  TF_RETURN_IF_ERROR(Check(op, *call, weights));
  TF_RETURN_IF_ERROR(PackOnce(op, pack));
  *packed = packed_;
  return absl::OkStatus();
}

// Inputs that are not held may have been written to, or be others at the same
// address. Small ones are read whole, as biases that a program computes. Those
// that are held only other libraries write to, which got the address from
// TensorFlow; a part is a cache line, for the weights are no longer in caches.
Fingerprint FrozenLayer::SampleOf(const void* data, std::size_t bytes,
                                  bool held) {
  constexpr std::size_t kMostParts = 64;
  constexpr std::size_t kLargestPart = 256;
  const std::size_t whole = held ? 1024 : 32768;
  const std::size_t num_parts = held ? 16 : kMostParts;
  const std::size_t part = held ? 64 : kLargestPart;
  if (bytes <= whole) return FingerprintOf(data, bytes);
  std::array<char, kMostParts * kLargestPart> parts;
  const std::size_t stride = (bytes - part) / (num_parts - 1);
  for (std::size_t k = 0; k < num_parts; ++k) {
    std::memcpy(&parts[k * part], static_cast<const char*>(data) + k * stride,
                part);
  }
  return FingerprintOf(parts.data(), num_parts * part);
}

absl::Status FrozenLayer::Check(const std::string& op, const OpCall& call,
                                absl::Span<const Weights> weights) {
  checked_.resize(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    const Weights& expected = weights[k];
    Checked& checked = checked_[k];
    const void* const data = call.input(expected.input);
    const std::size_t bytes =
        InputElements(call, expected.input) * expected.element_bytes;
    const bool foreign = call.IsForeign(expected.input);
    if (!foreign && data == checked.data &&
        checked.sample == SampleOf(data, bytes, checked.held != nullptr)) {
      continue;
    }
    const std::string found = HexDigits(FingerprintOf(data, bytes));
    if (found != expected.fingerprint) {
      return absl::InvalidArgumentError(absl::StrCat(
          op, ": ", expected.name, " must have the fingerprint ",
          expected.fingerprint, " of the attr frozen, got ", found,
          ": the weights of a frozen layer have changed; freeze the model "
          "again"));
    }
    if (foreign) continue;
    checked = {data, call.Hold(expected.input), {}};
    checked.sample = SampleOf(data, bytes, checked.held != nullptr);
  }
  return absl::OkStatus();
}

absl::Status FrozenLayer::PackOnce(const std::string& op, const Pack& pack) {
  if (packed_ != nullptr) return absl::OkStatus();
  int64_t bytes = 0;
  TF_RETURN_IF_ERROR(pack(&bytes, nullptr));
  auto packed = std::make_shared<PackedLayer>(bytes);
  if (packed->data() == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        op, ": no memory for ", bytes, " bytes of packed weights"));
  }
  TF_RETURN_IF_ERROR(pack(&bytes, packed->data()));
  packed_ = std::move(packed);
  return absl::OkStatus();
}

}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT void blockrnn_fingerprint(const void* data, int64_t bytes,
                                          char* text) {
  const std::string digits =
      blockrnn::HexDigits(blockrnn::FingerprintOf(data, bytes));
  std::memcpy(text, digits.c_str(), digits.size() + 1);
}

BLOCKRNN_EXPORT int64_t blockrnn_frozen_bytes() {
  return blockrnn::packed_bytes;
}

BLOCKRNN_EXPORT void blockrnn_release_frozen(const char* frozen) {
  blockrnn::FrozenLayer::Release(frozen);
}

}  // extern "C"
