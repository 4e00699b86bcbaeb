// Implements the packing of a session's weights.

#include <algorithm>
#include <new>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/inference/session.h"

namespace blockrnn {
namespace {

static_assert(static_cast<int>(Precision::kStorage) == BLOCKRNN_FLOAT32 &&
              static_cast<int>(Precision::kBFloat16) == BLOCKRNN_BFLOAT16 &&
              static_cast<int>(Precision::kInt8) == BLOCKRNN_INT8);

int NumGates(blockrnn_cell cell) {
  switch (cell) {
    case BLOCKRNN_LSTM:
    case BLOCKRNN_LAYER_NORM_LSTM:
      return kLstmGates;
    case BLOCKRNN_RNN_TANH:
    case BLOCKRNN_RNN_RELU:
      return 1;
    default:
      return kGruAfterGates;
  }
}

// One direction of a layer, from the C interface to the arguments of its cell.
class DirectionReader {
 public:
  // What calls read besides the packed weights goes to `kept`; what is packed
  // lives as long as the reader.
  DirectionReader(const blockrnn_model& model, const blockrnn_layer& layer,
                  const blockrnn_direction& weights, Arrays* kept)
      : kept_(*kept),
        model_(model),
        weights_(weights),
        inputs_(layer.inputs),
        units_(layer.units),
        outputs_(layer.outputs),
        gates_(NumGates(model.cell)) {}

  // Sets what calls need besides the packed weights.
  template <class Args>
  void ReadOptions(Args* args) {
    args->shape.input = inputs_;
    args->shape.units = units_;
    args->zoneout_h.rate = model_.zoneout_h;
    ReadCell(args);
  }

  // Sets what is packed.
  void ReadWeights(LstmSequenceForwardArgs<float>* args) {
    ReadMatrices(args);
    args->b = Sum(weights_.b_x, weights_.b_h);
    args->w_p = weights_.w_p;
  }
  void ReadWeights(GruSequenceForwardArgs<float>* args) {
    ReadMatrices(args);
    args->b = Sum(weights_.b_x, weights_.b_h);
  }
  void ReadWeights(GruAfterSequenceForwardArgs<float>* args) {
    ReadMatrices(args);
    args->b_x = Sum(weights_.b_x, nullptr);
    args->b_h = Sum(weights_.b_h, nullptr);
  }
  void ReadWeights(SimpleRnnForwardArgs<float>* args) {
    ReadMatrices(args);
    args->b = Sum(weights_.b_x, weights_.b_h);
  }
  void ReadWeights(LayerNormLstmForwardArgs<float>* args) {
    ReadMatrices(args);
    ReadNorms(args);
    args->b = Sum(weights_.b_x, weights_.b_h);
    args->gamma_c = weights_.norm_c;
    args->beta_c = weights_.norm_c + units_;
  }
  void ReadWeights(LayerNormGruForwardArgs<float>* args) {
    ReadMatrices(args);
    ReadNorms(args);
    args->b_x = Sum(weights_.b_x, nullptr);
    args->b_h = Sum(weights_.b_h, nullptr);
  }

 private:
  void ReadCell(LstmSequenceForwardArgs<float>* args) {
    args->layout = kLstmIfco;
    args->activations = OfModel();
    args->options.cell_clip = model_.cell_clip;
    args->zoneout_c.rate = model_.zoneout_c;
    args->proj = weights_.w_p == nullptr ? 0 : outputs_;
    args->options.use_peephole = weights_.peepholes != nullptr;
    if (weights_.peepholes == nullptr) return;
    float* const peepholes = kept_.New<float>(3 * units_);
    std::copy_n(weights_.peepholes, 3 * units_, peepholes);
    args->wci = peepholes;
    args->wcf = peepholes + units_;
    args->wco = peepholes + 2 * units_;
  }
  void ReadCell(GruSequenceForwardArgs<float>* args) {
    args->layout = kGruRuc;
    args->activations = OfModel();
  }
  void ReadCell(GruAfterSequenceForwardArgs<float>* args) {
    args->layout = kGruRuc;
    args->activations = OfModel();
  }
  void ReadCell(SimpleRnnForwardArgs<float>* args) {
    args->relu = model_.cell == BLOCKRNN_RNN_RELU;
  }
  void ReadCell(LayerNormLstmForwardArgs<float>* args) {
    args->layout = kLstmIfco;
    args->epsilon = model_.epsilon;
    args->norm_output_only = model_.norm_output_only != 0;
  }
  void ReadCell(LayerNormGruForwardArgs<float>* args) {
    args->layout = kGruRuc;
    args->epsilon = model_.epsilon;
  }

  ActivationOptions OfModel() const {
    return {model_.hard_sigmoid, model_.activation == BLOCKRNN_RELU};
  }

  template <class Args>
  void ReadMatrices(Args* args) {
    args->w_x = GatesSideBySide(weights_.w_x, inputs_);
    args->w_h = GatesSideBySide(weights_.w_h, outputs_);
  }
  template <class Args>
  void ReadNorms(Args* args) {
    args->gamma_x = weights_.norm_x;
    args->beta_x = weights_.norm_x + gates_ * units_;
    args->gamma_h = weights_.norm_h;
    args->beta_h = weights_.norm_h + gates_ * units_;
  }

  // Weights [G, rows, H] as the engine has them, [rows, G · H].
  const float* GatesSideBySide(const float* weights, int64_t rows) {
    float* const out = until_packed_.New<float>(rows * gates_ * units_);
    for (int64_t gate = 0; gate < gates_; ++gate) {
      for (int64_t k = 0; k < rows; ++k) {
        std::copy_n(weights + (gate * rows + k) * units_, units_,
                    out + (k * gates_ + gate) * units_);
      }
    }
    return out;
  }

  // b_x + b_h, zeros for NULL; [G, H].
  const float* Sum(const float* b_x, const float* b_h) {
    float* const out = until_packed_.New<float>(gates_ * units_);
    for (int64_t j = 0; j < gates_ * units_; ++j) {
      // Without the other bias one is unchanged, a negative zero too.
      out[j] = b_x == nullptr   ? (b_h == nullptr ? 0.0f : b_h[j])
               : b_h == nullptr ? b_x[j]
                                : b_x[j] + b_h[j];
    }
    return out;
  }

  Arrays& kept_;
  Arrays until_packed_;
  const blockrnn_model& model_;
  const blockrnn_direction& weights_;
  const int64_t inputs_;
  const int64_t units_;
  const int64_t outputs_;
  const int64_t gates_;
};

}  // namespace

void* Arrays::NewBytes(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  std::unique_ptr<void, Free> memory(std::aligned_alloc(
      kAlignment, (bytes + kAlignment) / kAlignment * kAlignment));
  if (memory == nullptr) throw std::bad_alloc();
  arrays_.push_back(std::move(memory));
  return arrays_.back().get();
}

template <class Forward>
SessionStatus Session::Pack(FreezeArgs<Forward>* args, FrozenWeights* weights) {
  Workspace workspace;
  cpu::HostInterface host;
  host.context = &workspace;
  host.allocate = &Allocate;
  int64_t bytes = 0;
  args->bytes = &bytes;
  if (engine_->f32.Run(*args, host) != cpu::Status::kOk) return OutOfMemory();
  args->packed = arrays_.New<char>(bytes);
  if (engine_->f32.Run(*args, host) != cpu::Status::kOk) return OutOfMemory();
  *weights = {args->precision, args->packed};
  weight_bytes_ += bytes;
  return {};
}

template <class Forward>
SessionStatus Session::InitLayers(const blockrnn_model& model,
                                  Precision precision) {
  auto& layers = layers_.emplace<LayersOf<Forward>>(model.num_layers);
  for (int64_t n = 0; n < model.num_layers; ++n) {
    const blockrnn_layer& from = model.layers[n];
    StackLayer<Forward>& layer = layers[n];
    layer.directions = from.backward == nullptr ? 1 : 2;
    layer.gates = NumGates(model.cell);
    layer.outputs = from.outputs;
    for (int64_t d = 0; d < layer.directions; ++d) {
      DirectionReader reader(model, from,
                             d == 0 ? *from.forward : *from.backward, &arrays_);
      reader.ReadOptions(&layer.options[d]);
      FreezeArgs<Forward> freeze;
      freeze.layer = layer.options[d];
      freeze.precision = precision;
      reader.ReadWeights(&freeze.layer);
      const SessionStatus status = Pack(&freeze, &layer.weights[d]);
      if (!status.ok()) return status;
    }
    has_step_ &= layer.directions == 1;
    outputs_ = layer.directions * from.outputs;
    state_size_ += layer.directions *
                   (from.outputs + (kHasCellState<Forward> ? from.units : 0));
  }
  inputs_ = model.layers[0].inputs;
  return {};
}

SessionStatus Session::PackWeights(const blockrnn_model& model,
                                   blockrnn_precision precision) {
  const auto to = static_cast<Precision>(precision);
  switch (model.cell) {
    case BLOCKRNN_LSTM:
      return InitLayers<LstmSequenceForwardArgs<float>>(model, to);
    case BLOCKRNN_GRU_RESET_BEFORE:
      return InitLayers<GruSequenceForwardArgs<float>>(model, to);
    case BLOCKRNN_GRU_RESET_AFTER:
      return InitLayers<GruAfterSequenceForwardArgs<float>>(model, to);
    case BLOCKRNN_LAYER_NORM_LSTM:
      return InitLayers<LayerNormLstmForwardArgs<float>>(model, to);
    case BLOCKRNN_LAYER_NORM_GRU:
      return InitLayers<LayerNormGruForwardArgs<float>>(model, to);
    default:
      return InitLayers<SimpleRnnForwardArgs<float>>(model, to);
  }
}

}  // namespace blockrnn
