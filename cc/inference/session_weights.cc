// Implements the packing of a session's weights.

#include <algorithm>
#include <new>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/inference/session.h"

namespace blockrnn {
namespace {

// Aligned to 64 bytes; throws std::bad_alloc.
template <class T>
AlignedArray<T> NewArray(int64_t count) {
  constexpr std::size_t kAlignment = 64;
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  void* const memory = std::aligned_alloc(
      kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return AlignedArray<T>(static_cast<T*>(memory));
}

// Gates [first, first + count) of weights [G, rows, H] as the engine has them,
// [rows, count · H].
AlignedArray<float> GatesSideBySide(const float* weights, int first, int count,
                                    int64_t rows, int64_t units) {
  AlignedArray<float> out = NewArray<float>(rows * count * units);
  for (int gate = 0; gate < count; ++gate) {
    const float* from = weights + (first + gate) * rows * units;
    for (int64_t k = 0; k < rows; ++k) {
      std::copy_n(from + k * units, units,
                  out.get() + (k * count + gate) * units);
    }
  }
  return out;
}

// b_x + b_h, zeros for NULL; [G, H].
AlignedArray<float> SumOfBiases(const float* b_x, const float* b_h,
                                int64_t count) {
  AlignedArray<float> out = NewArray<float>(count);
  for (int64_t j = 0; j < count; ++j) {
    const float x = b_x == nullptr ? 0.0f : b_x[j];
    // Without the other bias this one unchanged, a negative zero too.
    out[j] = b_x == nullptr   ? (b_h == nullptr ? 0.0f : b_h[j])
             : b_h == nullptr ? x
                              : x + b_h[j];
  }
  return out;
}

}  // namespace

template <class FreezeArgs>
SessionStatus Session::Pack(FreezeArgs* args, Direction* direction) {
  const std::unique_ptr<Workspace> workspace = TakeWorkspace();
  cpu::HostInterface host;
  host.context = workspace.get();
  host.allocate = &Allocate;
  int64_t bytes = 0;
  args->precision = precision_;
  args->bytes = &bytes;
  cpu::Status status = engine_->f32.Run(*args, host);
  if (status != cpu::Status::kOk) return OutOfMemory();
  direction->packed = NewArray<char>(bytes);
  args->packed = direction->packed.get();
  status = engine_->f32.Run(*args, host);
  if (status != cpu::Status::kOk) return OutOfMemory();
  direction->frozen = {precision_, direction->packed.get()};
  weight_bytes_ += bytes;
  return {};
}

SessionStatus Session::Freeze(const blockrnn_direction& weights,
                              const Layer& layer, Direction* direction) {
  if (cell_ == BLOCKRNN_LSTM) return FreezeLstm(weights, layer, direction);
  if (cell_ == BLOCKRNN_LAYER_NORM_LSTM) {
    return FreezeLayerNormLstm(weights, layer, direction);
  }
  if (cell_ == BLOCKRNN_LAYER_NORM_GRU) {
    return FreezeLayerNormGru(weights, layer, direction);
  }
  const int gates = NumGates(cell_);
  const int64_t units = layer.units;
  SequenceShape shape;
  shape.input = layer.inputs;
  shape.units = units;
  if (cell_ == BLOCKRNN_GRU_RESET_BEFORE) {
    const auto w_ru_x = GatesSideBySide(weights.w_x, 0, 2, shape.input, units);
    const auto w_ru_h = GatesSideBySide(weights.w_h, 0, 2, units, units);
    const auto b = SumOfBiases(weights.b_x, weights.b_h, gates * units);
    GruFreezeArgs<float> args;
    args.layer.shape = shape;
    args.layer.w_ru_x = w_ru_x.get();
    args.layer.w_ru_h = w_ru_h.get();
    args.layer.w_c_x = weights.w_x + 2 * shape.input * units;
    args.layer.w_c_h = weights.w_h + 2 * units * units;
    args.layer.b_ru = b.get();
    args.layer.b_c = b.get() + 2 * units;
    return Pack(&args, direction);
  }
  const auto w_x = GatesSideBySide(weights.w_x, 0, gates, shape.input, units);
  const auto w_h = GatesSideBySide(weights.w_h, 0, gates, layer.outputs, units);
  if (cell_ == BLOCKRNN_GRU_RESET_AFTER) {
    const auto b_x = SumOfBiases(weights.b_x, nullptr, gates * units);
    const auto b_h = SumOfBiases(weights.b_h, nullptr, gates * units);
    GruAfterFreezeArgs<float> args;
    args.layer.shape = shape;
    args.layer.layout = kGruRuc;
    args.layer.w_x = w_x.get();
    args.layer.w_h = w_h.get();
    args.layer.b_x = b_x.get();
    args.layer.b_h = b_h.get();
    return Pack(&args, direction);
  }
  const auto b = SumOfBiases(weights.b_x, weights.b_h, gates * units);
  SimpleRnnFreezeArgs<float> args;
  args.layer.shape = shape;
  args.layer.w_x = w_x.get();
  args.layer.w_h = w_h.get();
  args.layer.b = b.get();
  return Pack(&args, direction);
}

SessionStatus Session::FreezeLstm(const blockrnn_direction& weights,
                                  const Layer& layer, Direction* direction) {
  const int64_t units = layer.units;
  const auto w_x =
      GatesSideBySide(weights.w_x, 0, kLstmGates, layer.inputs, units);
  const auto w_h =
      GatesSideBySide(weights.w_h, 0, kLstmGates, layer.outputs, units);
  const auto b = SumOfBiases(weights.b_x, weights.b_h, kLstmGates * units);
  if (weights.peepholes != nullptr) {
    direction->peepholes = NewArray<float>(3 * units);
    std::copy_n(weights.peepholes, 3 * units, direction->peepholes.get());
  }
  direction->projection = weights.w_p == nullptr ? 0 : layer.outputs;
  LstmFreezeArgs<float> args;
  args.layer.shape.input = layer.inputs;
  args.layer.shape.units = units;
  args.layer.layout = kLstmIfco;
  args.layer.w_x = w_x.get();
  args.layer.w_h = w_h.get();
  args.layer.proj = direction->projection;
  args.layer.w_p = weights.w_p;
  args.layer.b = b.get();
  return Pack(&args, direction);
}

SessionStatus Session::FreezeLayerNormLstm(const blockrnn_direction& weights,
                                           const Layer& layer,
                                           Direction* direction) {
  const int64_t units = layer.units;
  const auto w_x =
      GatesSideBySide(weights.w_x, 0, kLstmGates, layer.inputs, units);
  const auto w_h = GatesSideBySide(weights.w_h, 0, kLstmGates, units, units);
  const auto b = SumOfBiases(weights.b_x, weights.b_h, kLstmGates * units);
  LayerNormLstmFreezeArgs<float> args;
  args.layer.shape.input = layer.inputs;
  args.layer.shape.units = units;
  args.layer.layout = kLstmIfco;
  args.layer.w_x = w_x.get();
  args.layer.w_h = w_h.get();
  args.layer.b = b.get();
  args.layer.gamma_x = weights.norm_x;
  args.layer.beta_x = weights.norm_x + kLstmGates * units;
  args.layer.gamma_h = weights.norm_h;
  args.layer.beta_h = weights.norm_h + kLstmGates * units;
  args.layer.gamma_c = weights.norm_c;
  args.layer.beta_c = weights.norm_c + units;
  return Pack(&args, direction);
}

SessionStatus Session::FreezeLayerNormGru(const blockrnn_direction& weights,
                                          const Layer& layer,
                                          Direction* direction) {
  constexpr int kGates = kGruAfterGates;
  const int64_t units = layer.units;
  const auto w_x = GatesSideBySide(weights.w_x, 0, kGates, layer.inputs, units);
  const auto w_h = GatesSideBySide(weights.w_h, 0, kGates, units, units);
  const auto b_x = SumOfBiases(weights.b_x, nullptr, kGates * units);
  const auto b_h = SumOfBiases(weights.b_h, nullptr, kGates * units);
  LayerNormGruFreezeArgs<float> args;
  args.layer.shape.input = layer.inputs;
  args.layer.shape.units = units;
  args.layer.layout = kGruRuc;
  args.layer.w_x = w_x.get();
  args.layer.w_h = w_h.get();
  args.layer.b_x = b_x.get();
  args.layer.b_h = b_h.get();
  args.layer.gamma_x = weights.norm_x;
  args.layer.beta_x = weights.norm_x + kGates * units;
  args.layer.gamma_h = weights.norm_h;
  args.layer.beta_h = weights.norm_h + kGates * units;
  return Pack(&args, direction);
}

}  // namespace blockrnn
