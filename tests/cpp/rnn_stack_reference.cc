#include "tests/cpp/rnn_stack_reference.h"

#include <algorithm>
#include <array>

#include "tests/cpp/rnn_stack_cell_reference.h"

namespace blockrnn::test {
namespace {

using stack::Cell;
using stack::Parts;
using stack::Step;

struct ParamParts {
  std::vector<Parts> layer_directions;
  int64_t count = 0;
};

ParamParts PartsOf(const Stack& s) {
  ParamParts all;
  const auto take = [&](int64_t size) {
    const int64_t at = all.count;
    all.count += size;
    return at;
  };
  for (int64_t n = 0; n < s.layer_directions; ++n) {
    const int64_t layer = n / s.choice.directions;
    Parts& parts = all.layer_directions.emplace_back();
    parts.width = s.InputWidth(layer);
    for (int64_t gate = 0; gate < s.Gates(); ++gate) {
      if (layer == 0 && s.choice.skip_input) break;
      parts.w.push_back(take(s.units * parts.width));
    }
    for (int64_t gate = 0; gate < s.Gates(); ++gate) {
      parts.r.push_back(take(s.units * s.proj));
    }
    if (s.projected) parts.w_p = take(s.proj * s.units);
  }
  for (Parts& parts : all.layer_directions) {
    for (auto* biases : {&parts.b_w, &parts.b_r}) {
      for (int64_t gate = 0; gate < s.Gates(); ++gate) {
        biases->push_back(take(s.units));
      }
    }
  }
  return all;
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

Tensor Slice(const Tensor& all, int64_t at, int64_t count) {
  return {all.begin() + at, all.begin() + at + count};
}

// The layers of a call that has been run.
class Run {
 public:
  Run(const Stack& s, bool drops, const StackInputs& in)
      : s_(s), in_(in), params_(PartsOf(s)) {
    if (drops) masks_ = Masks(s);
    inputs_.push_back(in.input);
    out_.output_h.resize(in.input_h.size());
    out_.output_c.resize(in.input_c.size());
    for (int64_t layer = 0; layer < s.choice.layers; ++layer) {
      Tensor h(s.steps * s.batch * s.OutputWidth());
      for (int64_t d = 0; d < s.choice.directions; ++d) {
        for (int64_t b = 0; b < s.batch; ++b) ForwardRow(layer, d, b, &h);
      }
      if (layer + 1 == s.choice.layers) {
        out_.output = h;
      } else {
        inputs_.push_back(drops ? Masked(h, masks_[layer]) : h);
      }
    }
  }

  const StackOutputs& out() const { return out_; }

  StackGradients Backward(const StackOutputs& grads) {
    StackGradients out;
    out.input_h.resize(in_.input_h.size());
    out.input_c.resize(in_.input_c.size());
    std::vector<Sum> params_grad(params_.count);
    Tensor h_grad = grads.output;
    for (int64_t layer = s_.choice.layers - 1; layer >= 0; --layer) {
      if (h_grad.empty()) h_grad.resize(s_.steps * s_.batch * s_.OutputWidth());
      Tensor x_grad(s_.steps * s_.batch * s_.InputWidth(layer));
      for (int64_t d = 0; d < s_.choice.directions; ++d) {
        for (int64_t b = 0; b < s_.batch; ++b) {
          BackwardRow(layer, d, b, grads, h_grad, &out, &x_grad, &params_grad);
        }
      }
      const bool drops = layer > 0 && !masks_.empty();
      h_grad = drops ? Masked(x_grad, masks_[layer - 1]) : x_grad;
    }
    out.input = h_grad;
    for (const Sum& sum : params_grad) out.params.push_back(sum.Total());
    return out;
  }

 private:
  int64_t LayerDirection(int64_t layer, int64_t d) const {
    return layer * s_.choice.directions + d;
  }

  // The row of the n-th step that is done of row b.
  int64_t Row(int64_t d, int64_t b, int64_t n) const {
    return s_.Row(d == 0 ? n : s_.Length(b) - 1 - n, b);
  }

  void ForwardRow(int64_t layer, int64_t d, int64_t b, Tensor* h) {
    const int64_t layer_direction = LayerDirection(layer, d);
    const Parts& parts = params_.layer_directions[layer_direction];
    const Cell cell(s_, parts, in_.params);
    Step step;
    step.h = Slice(in_.input_h, s_.State(layer_direction, b, s_.proj), s_.proj);
    step.c =
        Slice(in_.input_c, s_.State(layer_direction, b, s_.units), s_.units);
    auto& steps = steps_.emplace_back();
    for (int64_t n = 0; n < s_.Length(b); ++n) {
      step.h_prev = step.h;
      step.c_prev = step.c;
      const int64_t row = Row(d, b, n);
      step.x = inputs_[layer].data() + row * parts.width;
      cell.Forward(&step);
      std::copy(step.h.begin(), step.h.end(),
                h->begin() + row * s_.OutputWidth() + d * s_.proj);
      steps.push_back(step);
    }
    std::copy(step.h.begin(), step.h.end(),
              out_.output_h.begin() + s_.State(layer_direction, b, s_.proj));
    std::copy(step.c.begin(), step.c.end(),
              out_.output_c.begin() + s_.State(layer_direction, b, s_.units));
  }

  void BackwardRow(int64_t layer, int64_t d, int64_t b,
                   const StackOutputs& grads, const Tensor& h_grad,
                   StackGradients* out, Tensor* x_grad,
                   std::vector<Sum>* params_grad) const {
    const int64_t layer_direction = LayerDirection(layer, d);
    const Parts& parts = params_.layer_directions[layer_direction];
    const Cell cell(s_, parts, in_.params);
    const int64_t at_h = s_.State(layer_direction, b, s_.proj);
    const int64_t at_c = s_.State(layer_direction, b, s_.units);
    Tensor d_h(s_.proj), d_c(s_.units);
    if (!grads.output_h.empty()) d_h = Slice(grads.output_h, at_h, s_.proj);
    if (!grads.output_c.empty()) d_c = Slice(grads.output_c, at_c, s_.units);
    const auto& steps = steps_[layer_direction * s_.batch + b];
    for (int64_t n = s_.Length(b) - 1; n >= 0; --n) {
      const int64_t row = Row(d, b, n);
      for (int64_t k = 0; k < s_.proj; ++k) {
        d_h[k] = d_h[k] + h_grad[row * s_.OutputWidth() + d * s_.proj + k];
      }
      const Tensor d_x = cell.Backward(steps[n], &d_h, &d_c, params_grad);
      for (int64_t k = 0; k < parts.width; ++k) {
        Real& to = (*x_grad)[row * parts.width + k];
        to = to + d_x[k];
      }
    }
    std::copy(d_h.begin(), d_h.end(), out->input_h.begin() + at_h);
    std::copy(d_c.begin(), d_c.end(), out->input_c.begin() + at_c);
  }

  const Stack& s_;
  const StackInputs& in_;
  const ParamParts params_;
  std::vector<Tensor> masks_;
  std::vector<Tensor> inputs_;            // of each layer
  std::vector<std::vector<Step>> steps_;  // of each layer direction and row
  StackOutputs out_;
};

}  // namespace

int64_t StackParams(const Stack& stack) { return PartsOf(stack).count; }

StackOutputs StackForward(const Stack& stack, bool drops,
                          const StackInputs& in) {
  return Run(stack, drops, in).out();
}

StackGradients StackBackward(const Stack& stack, bool drops,
                             const StackInputs& in, const StackOutputs& grads) {
  return Run(stack, drops, in).Backward(grads);
}

}  // namespace blockrnn::test
