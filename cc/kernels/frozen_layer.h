// Declares what a process keeps of frozen weights: the packed form, one for all
// kernels whose op names the same weights (docs/adr/0019-frozen-weights.md).

#ifndef BLOCKRNN_KERNELS_FROZEN_LAYER_H_
#define BLOCKRNN_KERNELS_FROZEN_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/kernels/fingerprint.h"
#include "cc/kernels/op_call.h"

namespace blockrnn {

// Weights in the form that the engine of this process reads.
class PackedLayer {
 public:
  // data() is nullptr if there is no memory.
  explicit PackedLayer(int64_t bytes);
  ~PackedLayer();
  PackedLayer(const PackedLayer&) = delete;
  PackedLayer& operator=(const PackedLayer&) = delete;

  void* data() const { return data_; }

 private:
  int64_t bytes_;
  void* data_;
};

// The weights of a layer direction that an op's attr `frozen` names.
class FrozenLayer {
 public:
  // An input with weights, and the hex digits of its fingerprint.
  struct Weights {
    int input;
    std::string name;
    int64_t element_bytes;
    std::string fingerprint;
  };
  // Writes the size of the packed weights where `packed` is nullptr, else packs
  // them.
  using Pack = std::function<absl::Status(int64_t* bytes, void* packed)>;

  // The layer that all who hold one of this key share. frozen: the attr.
  static std::shared_ptr<FrozenLayer> Find(const std::string& key,
                                           const std::string& frozen);
  explicit FrozenLayer(const std::string& frozen) : frozen_(frozen) {}
  FrozenLayer(const FrozenLayer&) = delete;
  FrozenLayer& operator=(const FrozenLayer&) = delete;

  // Frees what is kept of all layers that the attr names, once the calls that
  // use it are done. The next call packs again.
  static void Release(const std::string& frozen);

  // Checks that the call has the weights that the fingerprints are of, and
  // returns them packed. Those with the addresses of the last call are the
  // same if they are held, or under XLA, which can't hold memory, if a sample
  // of them is. The sample is compared in either case: TensorFlow does not know
  // who has an address from it. Memory of other libraries is always compared
  // completely.
  absl::Status Use(const std::string& op, OpCall* call,
                   absl::Span<const Weights> weights, const Pack& pack,
                   std::shared_ptr<const PackedLayer>* packed);

 private:
  // A buffer that has been checked.
  struct Checked {
    const void* data = nullptr;
    std::shared_ptr<const void> held;
    Fingerprint sample;
  };

  static Fingerprint SampleOf(const void* data, std::size_t bytes, bool held);

  absl::Status Check(const std::string& op, const OpCall& call,
                     absl::Span<const Weights> weights);
  absl::Status PackOnce(const std::string& op, const Pack& pack);
  void Clear();

  const std::string frozen_;
  std::mutex mutex_;
  std::vector<Checked> checked_;               // under mutex_
  std::shared_ptr<const PackedLayer> packed_;  // under mutex_
};

}  // namespace blockrnn

extern "C" {

// Writes the fingerprint of an array as 32 hex digits and a 0.
void blockrnn_fingerprint(const void* data, int64_t bytes, char* text);

// The bytes of all packed weights in this process.
int64_t blockrnn_frozen_bytes();

// Frees the packed weights of all layers whose op has this attr `frozen`.
void blockrnn_release_frozen(const char* frozen);

}  // extern "C"

#endif  // BLOCKRNN_KERNELS_FROZEN_LAYER_H_
