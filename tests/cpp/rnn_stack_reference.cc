#include "tests/cpp/rnn_stack_reference.h"

#include <algorithm>
#include <array>

#include "tests/cpp/sequence_reference.h"

namespace blockrnn::test {
namespace {

CellSpec CellOf(const Stack& s) {
  CellSpec cell;
  switch (s.choice.mode) {
    case RnnMode::kLstm:
      cell.places = {0, 2, 1, 3};
      break;
    case RnnMode::kGru:
      cell.kind = CellKind::kGruAfter;
      break;
    case RnnMode::kTanh:
      cell.kind = CellKind::kTanh;
      break;
    case RnnMode::kRelu:
      cell.kind = CellKind::kRelu;
      break;
  }
  return cell;
}

// Calls f(layer direction, name, element, place in params) for each parameter:
// the element of the tensor that SequenceReference has of that name. Gives
// their number.
template <class F>
int64_t ForEachParam(const Stack& s, const F& f) {
  int64_t at = 0;
  const int64_t gates = s.Gates();
  const auto by_gate = [&](int64_t n, const char* name, int64_t depth) {
    for (int64_t gate = 0; gate < gates; ++gate) {
      for (int64_t j = 0; j < s.units; ++j) {
        for (int64_t k = 0; k < depth; ++k) {
          f(n, name, (k * gates + gate) * s.units + j, at++);
        }
      }
    }
  };
  for (int64_t n = 0; n < s.layer_directions; ++n) {
    const int64_t layer = n / s.choice.directions;
    if (layer > 0 || !s.choice.skip_input) {
      by_gate(n, "w_x", s.InputWidth(layer));
    }
    by_gate(n, "w_h", s.proj);
    for (int64_t k = 0; k < s.proj * s.units && s.projected; ++k) {
      f(n, "w_p", k, at++);
    }
  }
  for (int64_t n = 0; n < s.layer_directions; ++n) {
    by_gate(n, "b_x", 1);
    by_gate(n, "b_h", 1);
  }
  return at;
}

// The four numbers of a counter, as in the paper.
std::array<uint32_t, 4> Philox(PhiloxState s) {
  auto& c = s.counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * c[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * c[2];
    const auto high = [](uint64_t product) {
      return static_cast<uint32_t>(product >> 32);
    };
    const uint32_t next[4] = {
        high(odd) ^ c[1] ^ s.key[0], static_cast<uint32_t>(odd),
        high(even) ^ c[3] ^ s.key[1], static_cast<uint32_t>(even)};
    std::copy(next, next + 4, c);
    s.key[0] += 0x9E3779B9;
    s.key[1] += 0xBB67AE85;
  }
  return {c[0], c[1], c[2], c[3]};
}

void Next(PhiloxState* state) {
  for (uint32_t& digit : state->counter) {
    if (++digit != 0) return;
  }
}

// 0 or 1 / (1 - rate) for each element between the layers, mask by mask.
std::vector<Tensor> Masks(const Stack& s) {
  std::vector<Tensor> masks;
  PhiloxState state = Stack::Philox();
  const double rate = s.Dropout();
  const Real scale(1 / (1 - rate), 2 / (1 - rate));
  for (int64_t layer = 0; layer + 1 < s.choice.layers; ++layer) {
    Tensor& mask = masks.emplace_back(s.steps * s.batch * s.OutputWidth());
    for (std::size_t n = 0; n < mask.size(); n += 4, Next(&state)) {
      const auto numbers = Philox(state);
      for (std::size_t k = 0; k < 4 && n + k < mask.size(); ++k) {
        mask[n + k] = numbers[k] / 0x1p32 < rate ? Real(0) : scale;
      }
    }
  }
  return masks;
}

// What is dropped is 0, whatever it was.
Tensor Masked(const Tensor& a, const Tensor& mask) {
  Tensor masked;
  for (std::size_t n = 0; n < a.size(); ++n) {
    masked.push_back(mask[n].value == 0 ? Real(0) : a[n] * mask[n]);
  }
  return masked;
}

// The layers of a call that has been run.
class Run {
 public:
  Run(const Stack& s, bool drops, const StackInputs& in)
      : s_(s), calls_(s.layer_directions) {
    if (drops) masks_ = Masks(s);
    ForEachParam(s,
                 [&](int64_t n, const char* name, int64_t element, int64_t at) {
                   Tensor& to = calls_[n][name];
                   if (static_cast<int64_t>(to.size()) <= element)
                     to.resize(element + 1);
                   to[element] = in.params[at];
                 });
    out_.output_h.resize(in.input_h.size());
    out_.output_c.resize(in.input_c.size());
    Tensor x = in.input;
    for (int64_t layer = 0; layer < s.choice.layers; ++layer) {
      if (layer > 0 && drops) x = Masked(x, masks_[layer - 1]);
      Tensor h(s.steps * s.batch * s.OutputWidth());
      for (int64_t d = 0; d < s.choice.directions; ++d) {
        const int64_t n = layer * s.choice.directions + d;
        NamedTensors& call = calls_[n];
        call["x"] = x;
        call["h_prev"] = StateOf(in.input_h, n, s.proj);
        call["cs_prev"] = StateOf(in.input_c, n, s.units);
        call.merge(ReferenceOf(layer, d).Forward(call));
        SetState(call["h_last"], n, s.proj, &out_.output_h);
        if (s.IsLstm()) SetState(call["cs_last"], n, s.units, &out_.output_c);
        ForEachOutput(
            d, [&](int64_t from, int64_t to) { h[to] = call["h"][from]; });
      }
      x = h;
    }
    out_.output = x;
  }

  const StackOutputs& out() const { return out_; }

  StackGradients Backward(const StackOutputs& grads) {
    StackGradients out;
    out.input_h.resize(out_.output_h.size());
    out.input_c.resize(out_.output_c.size());
    std::vector<NamedTensors> all(s_.layer_directions);
    Tensor h_grad = grads.output;
    h_grad.resize(out_.output.size());
    for (int64_t layer = s_.choice.layers - 1; layer >= 0; --layer) {
      Tensor x_grad(s_.steps * s_.batch * s_.InputWidth(layer));
      for (int64_t d = 0; d < s_.choice.directions; ++d) {
        const int64_t n = layer * s_.choice.directions + d;
        NamedTensors& call = calls_[n];
        Tensor& of_h = call["h_grad"];
        of_h.resize(call["h"].size());
        ForEachOutput(
            d, [&](int64_t to, int64_t from) { of_h[to] = h_grad[from]; });
        call["h_last_grad"] = StateOf(grads.output_h, n, s_.proj);
        call["cs_last_grad"] = StateOf(grads.output_c, n, s_.units);
        all[n] = ReferenceOf(layer, d).Backward(call);
        SetState(all[n]["h_prev_grad"], n, s_.proj, &out.input_h);
        if (s_.IsLstm()) {
          SetState(all[n]["cs_prev_grad"], n, s_.units, &out.input_c);
        }
        const Tensor& of_x = all[n]["x_grad"];
        for (std::size_t k = 0; k < of_x.size(); ++k) {
          x_grad[k] = x_grad[k] + of_x[k];
        }
      }
      const bool drops = layer > 0 && !masks_.empty();
      h_grad = drops ? Masked(x_grad, masks_[layer - 1]) : x_grad;
    }
    out.input = h_grad;
    ForEachParam(
        s_, [&](int64_t n, const std::string& name, int64_t element, int64_t) {
          out.params.push_back(all[n][name + "_grad"][element]);
        });
    return out;
  }

 private:
  SequenceReference ReferenceOf(int64_t layer, int64_t direction) const {
    Order order = {Mask::kNone, s_.choice.time_major, direction == 1};
    order.lengths = s_.choice.lengths;
    const Dims dims = {s_.batch, s_.InputWidth(layer), s_.units, s_.steps};
    const CellSpec cell = CellOf(s_);
    return {cell, Steps(dims, order, cell.Gates()), s_.proj, Type::kDouble, {}};
  }

  // f(element of a direction's h, its element in the layer's output)
  template <class F>
  void ForEachOutput(int64_t direction, const F& f) const {
    for (int64_t row = 0; row < s_.steps * s_.batch; ++row) {
      for (int64_t k = 0; k < s_.proj; ++k) {
        f(row * s_.proj + k, row * s_.OutputWidth() + direction * s_.proj + k);
      }
    }
  }

  // Of a layer direction, [batch, width]; empty where `all` is.
  Tensor StateOf(const Tensor& all, int64_t n, int64_t width) const {
    Tensor state;
    for (int64_t b = 0; b < s_.batch && !all.empty(); ++b) {
      const auto from = all.begin() + s_.State(n, b, width);
      state.insert(state.end(), from, from + width);
    }
    return state;
  }
  void SetState(const Tensor& state, int64_t n, int64_t width,
                Tensor* all) const {
    for (int64_t b = 0; b < s_.batch; ++b) {
      std::copy_n(state.begin() + b * width, width,
                  all->begin() + s_.State(n, b, width));
    }
  }

  const Stack& s_;
  std::vector<Tensor> masks_;
  std::vector<NamedTensors> calls_;  // of each layer direction
  StackOutputs out_;
};

}  // namespace

int64_t StackParams(const Stack& stack) {
  return ForEachParam(stack, [](int64_t, const char*, int64_t, int64_t) {});
}

StackOutputs StackForward(const Stack& stack, bool drops,
                          const StackInputs& in) {
  return Run(stack, drops, in).out();
}

StackGradients StackBackward(const Stack& stack, bool drops,
                             const StackInputs& in, const StackOutputs& grads) {
  return Run(stack, drops, in).Backward(grads);
}

}  // namespace blockrnn::test
