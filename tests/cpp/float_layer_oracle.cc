// Implements the oracle of a step of a layer of float, in the precision of its
// frozen weights.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cpp/float_layer.h"
#include "tests/cpp/reference.h"
#include "tests/cpp/storage.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

// q = rint(v · (127 / max)) of `count` values that are `stride` apart, all in
// float; returns the scale, max / 127.
float Quantise(const float* v, int64_t count, int64_t stride,
               std::vector<int64_t>* q) {
  q->assign(count, 0);
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) {
    const float x = v[k * stride];
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(x));
  }
  if (largest < std::ldexp(1.0f, -100)) return 0;
  const float reciprocal = 127.0f / largest;
  for (int64_t k = 0; k < count; ++k) {
    const float scaled = v[k * stride] * reciprocal;
    (*q)[k] = std::lrint(scaled);  // to nearest, ties to even
  }
  return largest / 127.0f;
}

bool RoundsRows() {
  return std::strstr(blockrnn_cpu_engine()->isa, "bf16") != nullptr;
}

// Σ_k a[k] · w[k, j] for all columns j.
Tensor Multiply(Precision precision, const std::vector<float>& a,
                const Matrix& w) {
  Tensor products(w.columns);
  std::vector<int64_t> q_a, q_w;
  const float s_a = Quantise(a.data(), w.depth, 1, &q_a);
  for (int64_t j = 0; j < w.columns; ++j) {
    if (precision == Precision::kInt8) {
      const float s_w = Quantise(w.data() + j, w.depth, w.columns, &q_w);
      int64_t sum = 0;
      for (int64_t k = 0; k < w.depth; ++k) sum += q_a[k] * q_w[k];
      const double value = double{s_a} * double{s_w} * static_cast<double>(sum);
      products[j] = {value, std::fabs(value)};
      continue;
    }
    Sum sum;
    for (int64_t k = 0; k < w.depth; ++k) {
      double from_a = a[k], from_w = w.w[k * w.columns + j];
      if (precision == Precision::kBFloat16) {
        from_w = RoundTo(Type::kBfloat16, from_w);
        if (RoundsRows()) from_a = RoundTo(Type::kBfloat16, from_a);
      }
      sum.AddProduct(from_a, from_w);
    }
    products[j] = sum.Total();
  }
  return products;
}

// What a step computes, from what the engine has computed before.
struct Step {
  Tensor h;
  Tensor cs;
  Tensor first;  // as in LayerCall
};

struct StepInputs {
  std::vector<float> x;
  std::vector<float> h_prev;
  std::vector<float> cs_prev;
  std::vector<float> first;   // that the engine has computed
  std::vector<float> second;  // the same
};

Real Added(std::initializer_list<Real> terms) {
  Sum sum;
  for (const Real& term : terms) sum.Add(term);
  return sum.Total();
}

Step LstmStep(const FloatLayer& layer, Precision precision,
              const StepInputs& in) {
  const Activations act{false};
  const int64_t units = layer.units;
  const Tensor from_x = Multiply(precision, in.x, layer.w_x);
  const Tensor from_h = Multiply(precision, in.h_prev, layer.w_h);
  Step out;
  std::vector<float> m;
  for (int64_t j = 0; j < units; ++j) {
    const auto bar = [&](int64_t gate) {
      const int64_t at = gate * units + j;
      return Added({from_x[at], from_h[at], Real(layer.b[at])});
    };
    const Real cs = act.Gate(bar(0)) * act.Candidate(bar(2)) +
                    act.Gate(bar(1)) * Real(in.cs_prev[j]);
    const Real o = act.Gate(bar(3));
    out.cs.push_back(cs);
    out.first.push_back(o);
    out.h.push_back(o * act.Candidate(cs));
    m.push_back(in.first[j] * in.second[j]);
  }
  if (layer.cell == Cell::kLstmProjected) {
    out.h = Multiply(precision, m, layer.w_2);
  }
  return out;
}

Step GruStep(const FloatLayer& layer, Precision precision,
             const StepInputs& in) {
  const Activations act{false};
  const int64_t units = layer.units;
  const Tensor from_x = Multiply(precision, in.x, layer.w_x);
  const Tensor from_h = Multiply(precision, in.h_prev, layer.w_h);
  std::vector<float> h_r;
  for (int64_t j = 0; j < units; ++j) {
    h_r.push_back(in.h_prev[j] * in.first[j]);
  }
  const Tensor c_from_x = Multiply(precision, in.x, layer.w_c);
  const Tensor c_from_h = Multiply(precision, h_r, layer.w_2);
  Step out;
  for (int64_t j = 0; j < units; ++j) {
    const auto gate = [&](int64_t at) {
      return act.Gate(Added({from_x[at], from_h[at], Real(layer.b[at])}));
    };
    const Real u = gate(units + j);
    const Real c =
        act.Candidate(Added({c_from_x[j], c_from_h[j], Real(layer.b_h[j])}));
    out.first.push_back(gate(j));
    out.h.push_back(u * Real(in.h_prev[j]) + (Real(1) - u) * c);
  }
  return out;
}

Step GruAfterStep(const FloatLayer& layer, Precision precision,
                  const StepInputs& in) {
  const Activations act{false};
  const int64_t units = layer.units;
  const Tensor from_x = Multiply(precision, in.x, layer.w_x);
  const Tensor from_h = Multiply(precision, in.h_prev, layer.w_h);
  Step out;
  for (int64_t j = 0; j < units; ++j) {
    const auto x_bar = [&](int64_t at) {
      return Added({from_x[at], Real(layer.b[at])});
    };
    const auto h_bar = [&](int64_t at) {
      return Added({from_h[at], Real(layer.b_h[at])});
    };
    const Real r = act.Gate(Added({x_bar(j), h_bar(j)}));
    const Real u = act.Gate(Added({x_bar(units + j), h_bar(units + j)}));
    const int64_t last = 2 * units + j;
    const Real c = act.Candidate(x_bar(last) + r * h_bar(last));
    out.h.push_back(u * Real(in.h_prev[j]) + (Real(1) - u) * c);
  }
  return out;
}

Step SimpleRnnStep(const FloatLayer& layer, Precision precision,
                   const StepInputs& in) {
  const Activations act{false};
  const Tensor from_x = Multiply(precision, in.x, layer.w_x);
  const Tensor from_h = Multiply(precision, in.h_prev, layer.w_h);
  Step out;
  for (int64_t j = 0; j < layer.units; ++j) {
    const Real bar =
        Added({from_x[j], from_h[j], Real(layer.b[j]), Real(layer.b_h[j])});
    if (layer.cell == Cell::kTanh) {
      out.h.push_back(act.Candidate(bar));
    } else {
      out.h.push_back(bar.value < 0 ? Real(0, bar.scale) : bar);
    }
  }
  return out;
}

Step StepOf(const FloatLayer& layer, Precision precision,
            const StepInputs& in) {
  if (layer.IsLstm()) return LstmStep(layer, precision, in);
  if (layer.cell == Cell::kGru) return GruStep(layer, precision, in);
  if (layer.cell == Cell::kGruAfter) return GruAfterStep(layer, precision, in);
  return SimpleRnnStep(layer, precision, in);
}

}  // namespace

std::string CompareSteps(const FloatLayer& layer, Precision precision,
                         const LayerCall& call) {
  const int64_t depth = layer.input + layer.units;
  const double relative = RelativeTolerance(Type::kFloat, false, depth);
  const double absolute =
      AbsoluteTolerance(Type::kFloat) + FlushedOperands(depth);
  std::ostringstream wrong;
  int count = 0;
  for (int64_t t = 0; t < call.steps; ++t) {
    for (int64_t b = 0; b < call.batch; ++b) {
      const auto row = [&](const std::vector<float>& v, int64_t step,
                           int64_t width) {
        const auto from = v.begin() + (step * call.batch + b) * width;
        return std::vector<float>(from, from + width);
      };
      const int64_t units = layer.units;
      const StepInputs in = {
          row(call.x, t, layer.input),
          t == 0 ? row(call.h_prev, 0, layer.Width())
                 : row(call.h, t - 1, layer.Width()),
          t == 0 ? row(call.cs_prev, 0, units) : row(call.cs, t - 1, units),
          row(call.first, t, units), row(call.second, t, units)};
      const Step want = StepOf(layer, precision, in);
      const auto compare = [&](const char* name, const Tensor& expected,
                               const std::vector<float>& got) {
        for (std::size_t j = 0; j < expected.size(); ++j) {
          const double scale = std::isfinite(expected[j].scale)
                                   ? expected[j].scale
                                   : std::fabs(expected[j].value);
          if (InRange(Type::kFloat, got[j], expected[j].value,
                      relative * scale + absolute)) {
            continue;
          }
          if (count++ == 0) {
            wrong << Name(layer.cell) << " " << name << "[" << t << ", " << b
                  << ", " << j << "] is " << got[j] << ", must be "
                  << expected[j].value << " within "
                  << relative * scale + absolute;
          }
        }
      };
      compare("h", want.h, row(call.h, t, layer.Width()));
      compare("cs", want.cs, row(call.cs, t, units));
      compare("o or r", want.first, in.first);
    }
  }
  if (count > 0) wrong << " (" << count << " are wrong)";
  return wrong.str();
}

}  // namespace blockrnn::test
