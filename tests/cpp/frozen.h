// Defines how the tests call the engine with frozen weights: they are packed
// into guarded memory, and the call does not get the weights themselves.

#ifndef BLOCKRNN_TESTS_CPP_FROZEN_H_
#define BLOCKRNN_TESTS_CPP_FROZEN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cc/core/argument_members.h"
#include "cc/core/engine_args.h"
#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

// f(&pointer, name) for all weights and biases that frozen weights replace.
template <template <class> class Args, class T, class F>
void ForEachWeight(Args<T>* args, const F& f) {
  static constexpr ArgumentMembers<Args<float>> kMembers;
  for (const ArgumentMember& member : kMembers) {
    const std::string_view name = member.name;
    const bool peephole = name.substr(0, 2) == "wc";
    if (peephole || std::string_view("wbg").find(name[0]) == name.npos)
      continue;
    const T* pointer = nullptr;
    char* const at = reinterpret_cast<char*>(args) + member.offset;
    std::memcpy(&pointer, at, sizeof(pointer));
    f(&pointer, name);
    std::memcpy(at, &pointer, sizeof(pointer));
  }
}

template <class Args>
void ForgetWeights(Args* args) {
  ForEachWeight(args, [](auto** w, std::string_view) { *w = nullptr; });
}

// The packed weights of a layer. Packing must succeed.
template <class Args>
class PackedLayer {
 public:
  // All bytes are `filled` before they are packed.
  PackedLayer(const Args& layer, Precision precision,
              const cpu::HostInterface& host, int filled = 0xFF)
      : block_(Bytes(layer, precision, host), 0),
        frozen_{precision, block_.data()} {
    std::fill_n(block_.data(), block_.size(), filled);
    int64_t bytes = -1;
    Freeze({layer, precision, &bytes, block_.data()}, host);
    if (bytes != static_cast<int64_t>(block_.size())) {
      throw std::runtime_error("packing took other memory than was measured");
    }
    packed_.assign(block_.data(), block_.data() + bytes);
  }

  const FrozenWeights& frozen() const { return frozen_; }
  const std::vector<unsigned char>& packed() const { return packed_; }

  // Throws if something other than the packing wrote to the memory, or the
  // packing outside of it.
  void Check() const {
    if (!std::equal(packed_.begin(), packed_.end(), block_.data())) {
      throw std::runtime_error("a call wrote to the frozen weights");
    }
    if (!block_.Intact()) {
      throw std::runtime_error("wrote outside the frozen weights");
    }
  }

 private:
  static void Freeze(const FreezeArgs<Args>& args,
                     const cpu::HostInterface& host) {
    using T =
        std::remove_const_t<std::remove_pointer_t<decltype(args.layer.x)>>;
    if (Functions(static_cast<T*>(nullptr)).Run(args, host) !=
        cpu::Status::kOk) {
      throw std::runtime_error("weights were not packed");
    }
  }

  // Measured without the weights.
  static std::size_t Bytes(Args layer, Precision precision,
                           const cpu::HostInterface& host) {
    ForgetWeights(&layer);
    int64_t bytes = -1;
    Freeze({layer, precision, &bytes, nullptr}, host);
    return static_cast<std::size_t>(bytes);
  }

  GuardedBlock block_;
  FrozenWeights frozen_;
  std::vector<unsigned char> packed_;
};

// Makes a call whose form of weights is another than kAsDrawn. Short calls of
// bfloat16 may read the weights; all others get none.
template <class T, class Args>
cpu::Status RunWithWeights(const EngineCall& call, Args args) {
  const WeightForm& weights = call.of.weights;
  args.recurrent_dropout = nullptr;
  if (weights.kind != WeightForm::kFrozen) return RunEngine<T>(call, args);
  const PackedLayer<Args> packed(args, weights.precision, call.host,
                                 weights.filled);
  *call.packed = packed.packed();
  args.frozen = &packed.frozen();
  if (call.of.type != Type::kBfloat16) ForgetWeights(&args);
  const cpu::Status status = RunEngine<T>(call, args);
  packed.Check();
  return status;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_FROZEN_H_
