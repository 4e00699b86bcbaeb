// Implements the layer of float: its weights, and calls of the engine.

#include "tests/cpp/float_layer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>

namespace blockrnn::test {
namespace {

int64_t Gates(Cell cell) {
  switch (cell) {
    case Cell::kLstm:
    case Cell::kLstmProjected:
      return 4;
    case Cell::kGru:
      return 2;
    case Cell::kGruAfter:
      return 3;
    default:
      return 1;
  }
}

std::vector<float> Numbers(int64_t count, double size, Random* random) {
  std::vector<float> numbers(count);
  for (float& x : numbers) x = static_cast<float>(size * random->Signed());
  return numbers;
}

Matrix Weights(int64_t depth, int64_t columns, double size, Random* random) {
  return {depth, columns, Numbers(depth * columns, size, random)};
}

const float* Pointer(const std::vector<float>& v) {
  return v.empty() ? nullptr : v.data();
}

// [H, P] as the engine takes it, [P, H].
std::vector<float> Transposed(const Matrix& m) {
  std::vector<float> w(m.w.size());
  for (int64_t k = 0; k < m.depth; ++k) {
    for (int64_t j = 0; j < m.columns; ++j) {
      w[j * m.depth + k] = m.w[k * m.columns + j];
    }
  }
  return w;
}

// Calls f(args) with the layer's weights.
template <class F>
void WithArgs(const FloatLayer& layer, const F& f) {
  const auto with_shape = [&](auto args) {
    args.shape.input = layer.input;
    args.shape.units = layer.units;
    return args;
  };
  if (layer.IsLstm()) {
    auto args = with_shape(LstmSequenceForwardArgs<float>());
    const std::vector<float> w_p = Transposed(layer.w_2);
    args.layout = kLstmIfco;
    args.proj = layer.cell == Cell::kLstmProjected ? layer.Width() : 0;
    args.w_x = layer.w_x.data();
    args.w_h = layer.w_h.data();
    args.w_p = Pointer(w_p);
    args.b = Pointer(layer.b);
    f(args);
  } else if (layer.cell == Cell::kGru) {
    auto args = with_shape(GruSequenceForwardArgs<float>());
    args.w_ru_x = layer.w_x.data();
    args.w_ru_h = layer.w_h.data();
    args.w_c_x = layer.w_c.data();
    args.w_c_h = layer.w_2.data();
    args.b_ru = Pointer(layer.b);
    args.b_c = Pointer(layer.b_h);
    f(args);
  } else if (layer.cell == Cell::kGruAfter) {
    auto args = with_shape(GruAfterSequenceForwardArgs<float>());
    args.w_x = layer.w_x.data();
    args.w_h = layer.w_h.data();
    args.b_x = Pointer(layer.b);
    args.b_h = Pointer(layer.b_h);
    f(args);
  } else {
    auto args = with_shape(SimpleRnnForwardArgs<float>());
    args.relu = layer.cell == Cell::kRelu;
    args.w_x = layer.w_x.data();
    args.w_h = layer.w_h.data();
    args.b = Pointer(layer.b);
    args.b_h = Pointer(layer.b_h);
    f(args);
  }
}

void SetOutputs(LayerCall* call, LstmSequenceForwardArgs<float>* args) {
  args->cs_prev = Pointer(call->cs_prev);
  args->cs = call->cs.data();
  args->o = call->first.data();
  args->co = call->second.data();
}
void SetOutputs(LayerCall* call, GruSequenceForwardArgs<float>* args) {
  args->r = call->first.data();
}
void SetOutputs(LayerCall*, GruAfterSequenceForwardArgs<float>*) {}
void SetOutputs(LayerCall*, SimpleRnnForwardArgs<float>*) {}

template <class Args>
void RunEngine(Args args, LayerCall* call, int threads, bool batch_invariant) {
  args.shape.steps = call->steps;
  args.shape.batch = call->batch;
  args.batch_invariant = batch_invariant;
  args.x = Pointer(call->x);
  args.h_prev = Pointer(call->h_prev);
  args.h = call->h.data();
  SetOutputs(call, &args);
  HostOptions options;
  options.num_threads = threads;
  TestHost host(options);
  const cpu::Status status = blockrnn_cpu_engine()->f32.Run(args, host.host());
  host.FreeScratch();
  host.FinishClosures();
  if (status != cpu::Status::kOk || !host.Problems().empty()) {
    throw std::runtime_error("the call failed: " + host.Problems());
  }
}

}  // namespace

const char* Name(Cell cell) {
  constexpr const char* kNames[] = {"LSTM",     "projected LSTM", "GRU",
                                    "GRUAfter", "tanh RNN",       "relu RNN"};
  return kNames[static_cast<int>(cell)];
}

FloatLayer::FloatLayer(Cell cell_in, int64_t input_in, int64_t units_in)
    : cell(cell_in), input(input_in), units(units_in) {
  Random random(7);
  const int64_t columns = Gates(cell) * units;
  const double size =
      2 / std::sqrt(static_cast<double>(std::max<int64_t>(input + units, 1)));
  w_x = Weights(input, columns, size, &random);
  w_h = Weights(Width(), columns, size, &random);
  b = Numbers(columns, 1, &random);
  if (cell == Cell::kLstmProjected) {
    w_2 = Weights(units, Width(), size, &random);
  } else if (cell == Cell::kGru) {
    w_2 = Weights(units, units, size, &random);
    w_c = Weights(input, units, size, &random);
    b_h = Numbers(units, 1, &random);
  }
  if (cell >= Cell::kGruAfter) b_h = Numbers(columns, 1, &random);
}

LayerCall::LayerCall(const FloatLayer& layer, int64_t steps_in,
                     int64_t batch_in, uint64_t seed)
    : steps(steps_in), batch(batch_in) {
  Random random(seed);
  const int64_t rows = steps * batch;
  x = Numbers(rows * layer.input, 1, &random);
  h_prev = Numbers(batch * layer.Width(), 1, &random);
  cs_prev = Numbers(batch * layer.units, 1, &random);
  h.assign(rows * layer.Width(), -7);
  cs.assign(rows * layer.units, -7);
  first = second = cs;
}

LayerCall LayerCall::Row(const FloatLayer& layer, int64_t b) const {
  LayerCall row(layer, steps, 1);
  row.x = RowOf(x, *this, b, layer.input);
  const auto state = [b](const std::vector<float>& from, int64_t width) {
    return std::vector<float>(from.begin() + b * width,
                              from.begin() + (b + 1) * width);
  };
  row.h_prev = state(h_prev, layer.Width());
  row.cs_prev = state(cs_prev, layer.units);
  return row;
}

FrozenFloatLayer::FrozenFloatLayer(const FloatLayer& layer, Precision precision,
                                   int threads, int filled)
    : layer_(layer) {
  HostOptions options;
  options.num_threads = threads;
  TestHost host(options);
  const auto pack = [&](const auto& args, auto* to) {
    to->emplace_back(args, precision, host.host(), filled);
    bytes_ = to->back().packed();
  };
  WithArgs(layer, [&](const auto& args) {
    using Args = std::decay_t<decltype(args)>;
    if constexpr (std::is_same_v<Args, LstmSequenceForwardArgs<float>>) {
      pack(args, &lstm_);
    } else if constexpr (std::is_same_v<Args, GruSequenceForwardArgs<float>>) {
      pack(args, &gru_);
    } else if constexpr (std::is_same_v<Args,
                                        GruAfterSequenceForwardArgs<float>>) {
      pack(args, &gru_after_);
    } else {
      pack(args, &simple_rnn_);
    }
  });
}

void FrozenFloatLayer::Run(LayerCall* call, int threads,
                           bool batch_invariant) const {
  FloatLayer no_weights = layer_;
  for (Matrix* m :
       {&no_weights.w_x, &no_weights.w_h, &no_weights.w_2, &no_weights.w_c}) {
    *m = Matrix();
  }
  no_weights.b.clear();
  no_weights.b_h.clear();
  const auto run = [&](auto args, const auto& packed) {
    if (packed.empty()) return;
    args.frozen = &packed.back().frozen();
    RunEngine(args, call, threads, batch_invariant);
    packed.back().Check();
  };
  WithArgs(no_weights, [&](const auto& args) {
    using Args = std::decay_t<decltype(args)>;
    if constexpr (std::is_same_v<Args, LstmSequenceForwardArgs<float>>) {
      run(args, lstm_);
    } else if constexpr (std::is_same_v<Args, GruSequenceForwardArgs<float>>) {
      run(args, gru_);
    } else if constexpr (std::is_same_v<Args,
                                        GruAfterSequenceForwardArgs<float>>) {
      run(args, gru_after_);
    } else {
      run(args, simple_rnn_);
    }
  });
}

void RunInPlace(const FloatLayer& layer, LayerCall* call, int threads,
                bool batch_invariant) {
  WithArgs(layer, [&](const auto& args) {
    RunEngine(args, call, threads, batch_invariant);
  });
}

std::vector<float> RowOf(const std::vector<float>& sequence,
                         const LayerCall& call, int64_t b, int64_t width) {
  std::vector<float> rows;
  for (int64_t t = 0; t < call.steps; ++t) {
    const auto from = sequence.begin() + (t * call.batch + b) * width;
    rows.insert(rows.end(), from, from + width);
  }
  return rows;
}

}  // namespace blockrnn::test
