// Defines how the tests call the engine with frozen weights: they are packed
// into guarded memory, and the call does not get the weights themselves.

#ifndef BLOCKRNN_TESTS_CPP_FROZEN_H_
#define BLOCKRNN_TESTS_CPP_FROZEN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/heap.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

// Calls f(&pointer, depth, columns) for each matrix that
// SequenceShape::weights_by_unit transposes.
template <class T, class F>
void ForEachMatrix(LstmSequenceForwardArgs<T>* args, const F& f) {
  const int64_t units = args->shape.units;
  f(&args->w_x, args->shape.input, 4 * units);
  f(&args->w_h, args->proj > 0 ? args->proj : units, 4 * units);
}
template <class T, class F>
void ForEachMatrix(GruAfterSequenceForwardArgs<T>* args, const F& f) {
  const int64_t units = args->shape.units;
  f(&args->w_x, args->shape.input, 3 * units);
  f(&args->w_h, units, 3 * units);
}
template <class T, class F>
void ForEachMatrix(SimpleRnnForwardArgs<T>* args, const F& f) {
  const int64_t units = args->shape.units;
  f(&args->w_x, args->shape.input, units);
  f(&args->w_h, units, units);
}
template <class T, class F>
void ForEachMatrix(LayerNormLstmForwardArgs<T>* args, const F& f) {
  const int64_t units = args->shape.units;
  f(&args->w_x, args->shape.input, 4 * units);
  f(&args->w_h, units, 4 * units);
}
template <class T, class F>
void ForEachMatrix(LayerNormGruForwardArgs<T>* args, const F& f) {
  const int64_t units = args->shape.units;
  f(&args->w_x, args->shape.input, 3 * units);
  f(&args->w_h, units, 3 * units);
}
template <class T, class F>  // which does not read weights_by_unit
void ForEachMatrix(GruSequenceForwardArgs<T>*, const F&) {}

// All weights and biases that frozen weights replace.
template <class T>
std::vector<const T**> Weights(LstmSequenceForwardArgs<T>* args) {
  return {&args->w_x, &args->w_h, &args->w_p, &args->b, &args->b_h};
}
template <class T>
std::vector<const T**> Weights(GruSequenceForwardArgs<T>* args) {
  return {&args->w_ru_x, &args->w_ru_h, &args->w_c_x,
          &args->w_c_h,  &args->b_ru,   &args->b_c};
}
template <class T>
std::vector<const T**> Weights(GruAfterSequenceForwardArgs<T>* args) {
  return {&args->w_x, &args->w_h, &args->b_x, &args->b_h};
}
template <class T>
std::vector<const T**> Weights(SimpleRnnForwardArgs<T>* args) {
  return {&args->w_x, &args->w_h, &args->b, &args->b_h};
}
template <class T>
std::vector<const T**> Weights(LayerNormLstmForwardArgs<T>* args) {
  return {&args->w_x,     &args->w_h,     &args->b,
          &args->gamma_x, &args->beta_x,  &args->gamma_h,
          &args->beta_h,  &args->gamma_c, &args->beta_c};
}
template <class T>
std::vector<const T**> Weights(LayerNormGruForwardArgs<T>* args) {
  return {&args->w_x,     &args->w_h,    &args->b_x,     &args->b_h,
          &args->gamma_x, &args->beta_x, &args->gamma_h, &args->beta_h};
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
    for (const auto weights : Weights(&layer)) *weights = nullptr;
    int64_t bytes = -1;
    Freeze({layer, precision, &bytes, nullptr}, host);
    return static_cast<std::size_t>(bytes);
  }

  GuardedBlock block_;
  FrozenWeights frozen_;
  std::vector<unsigned char> packed_;
};

// Transposes the matrices that weights_by_unit is about, into `storage`. Of T
// only the size is known: half and bfloat16 are incomplete types here.
template <class Args>
void GiveByUnit(std::size_t size, Args* args,
                std::vector<std::vector<unsigned char>>* storage) {
  const HeapIsDry heap(false);
  args->shape.weights_by_unit = true;
  ForEachMatrix(args, [&](auto* w, int64_t depth, int64_t columns) {
    if (*w == nullptr) return;
    const auto* const from = reinterpret_cast<const unsigned char*>(*w);
    auto& to = storage->emplace_back(depth * columns * size);
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        std::memcpy(to.data() + (j * depth + k) * size,
                    from + (k * columns + j) * size, size);
      }
    }
    *w = reinterpret_cast<std::decay_t<decltype(*w)>>(to.data());
  });
}

// Makes a call whose form of weights is another than kAsDrawn. Short calls of
// bfloat16 may read the weights; all others get none.
template <class T, class Args>
cpu::Status RunWithWeights(const EngineCall& call, Args args) {
  const auto& functions = Functions(static_cast<T*>(nullptr));
  std::vector<std::vector<unsigned char>> transposed;
  if (call.weights.by_unit) GiveByUnit(SizeOf(call.type), &args, &transposed);
  args.recurrent_dropout = nullptr;
  if (call.weights.kind != WeightForm::kFrozen) {
    return functions.Run(args, *call.host);
  }
  const PackedLayer<Args> packed(args, call.weights.precision, *call.host);
  args.frozen = &packed.frozen();
  if (call.type != Type::kBfloat16) {
    for (const auto weights : Weights(&args)) *weights = nullptr;
  }
  const cpu::Status status = functions.Run(args, *call.host);
  packed.Check();
  return status;
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_FROZEN_H_
