// Implements the oracle of a step of a layer of float, in the precision of its
// frozen weights.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cpp/cell_reference.h"
#include "tests/cpp/float_layer.h"
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
Sums Multiply(Precision precision, const std::vector<float>& a,
              const Matrix& w) {
  Sums products(w.columns);
  std::vector<int64_t> q_a, q_w;
  const float s_a = Quantise(a.data(), w.depth, 1, &q_a);
  for (int64_t j = 0; j < w.columns; ++j) {
    if (precision == Precision::kInt8) {
      const float s_w = Quantise(w.data() + j, w.depth, w.columns, &q_w);
      int64_t sum = 0;
      for (int64_t k = 0; k < w.depth; ++k) sum += q_a[k] * q_w[k];
      products[j].Add(double{s_a} * double{s_w} * static_cast<double>(sum));
      continue;
    }
    for (int64_t k = 0; k < w.depth; ++k) {
      double from_a = a[k], from_w = w.w[k * w.columns + j];
      if (precision == Precision::kBFloat16) {
        from_w = RoundTo(Type::kBfloat16, from_w);
        if (RoundsRows()) from_a = RoundTo(Type::kBfloat16, from_a);
      }
      products[j].AddProduct(from_a, from_w);
    }
  }
  return products;
}

// Joins what products the columns of two matrices have.
Sums Joined(Sums left, const Sums& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// One step, from what the engine has computed before.
class LayerGemms : public Gemms {
 public:
  LayerGemms(const FloatLayer& layer, Precision precision,
             const LayerCall& call, int64_t t, int64_t b)
      : layer_(layer),
        precision_(precision),
        x_(RowAt(call.x, call, t, b, layer.input)),
        h_prev_(t == 0 ? RowAt(call.h_prev, call, 0, b, layer.Width())
                       : RowAt(call.h, call, t - 1, b, layer.Width())),
        r_(RowAt(call.first, call, t, b, layer.units)) {}

  Sums OfX() const override {
    return Joined(Multiply(precision_, x_, layer_.w_x),
                  Multiply(precision_, x_, layer_.w_c));
  }
  // The state is rounded as the engine has stored it.
  Sums OfState(int64_t first, int64_t, const Tensor&) const override {
    if (first == 0) return Multiply(precision_, h_prev_, layer_.w_h);
    std::vector<float> h_r;
    for (std::size_t j = 0; j < r_.size(); ++j) {
      h_r.push_back(h_prev_[j] * r_[j]);
    }
    return Multiply(precision_, h_r, layer_.w_2);
  }
  Tensor StateGrad(int64_t, int64_t, const Tensor&) const override {
    return {};
  }

  Tensor h_prev() const { return {h_prev_.begin(), h_prev_.end()}; }

  static std::vector<float> RowAt(const std::vector<float>& rows,
                                  const LayerCall& call, int64_t t, int64_t b,
                                  int64_t width) {
    const auto from = rows.begin() + (t * call.batch + b) * width;
    return {from, from + width};
  }

 private:
  const FloatLayer& layer_;
  const Precision precision_;
  const std::vector<float> x_;
  const std::vector<float> h_prev_;
  const std::vector<float> r_;
};

CellSpec CellOf(const FloatLayer& layer) {
  CellSpec cell;
  if (layer.IsLstm()) {
    cell.places = {0, 2, 1, 3};
  } else {
    constexpr CellKind kKinds[] = {CellKind::kGru, CellKind::kGruAfter,
                                   CellKind::kTanh, CellKind::kRelu};
    cell.kind =
        kKinds[static_cast<int>(layer.cell) - static_cast<int>(Cell::kGru)];
  }
  return cell;
}

NamedTensors BiasesOf(const FloatLayer& layer) {
  NamedTensors biases = {{"b_x", {layer.b.begin(), layer.b.end()}},
                         {"b_h", {layer.b_h.begin(), layer.b_h.end()}}};
  if (layer.cell == Cell::kGru) {
    // That of the candidate is behind those of the gates.
    Tensor& all = biases["b_x"];
    all.insert(all.end(), layer.b_h.begin(), layer.b_h.end());
    biases.erase("b_h");
  }
  return biases;
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
  const auto compare = [&](const char* name, const Tensor& expected,
                           const std::vector<float>& got, int64_t row) {
    for (std::size_t j = 0; j < expected.size(); ++j) {
      const double scale = std::isfinite(expected[j].scale)
                               ? expected[j].scale
                               : std::fabs(expected[j].value);
      const double tolerance = relative * scale + absolute;
      const float value = got[row * expected.size() + j];
      if (InRange(Type::kFloat, value, expected[j].value, tolerance)) continue;
      if (count++ > 0) continue;
      wrong << Name(layer.cell) << " " << name << "[" << row << ", " << j
            << "] is " << value << ", must be " << expected[j].value
            << " within " << tolerance;
    }
  };
  const NamedTensors biases = BiasesOf(layer);
  const CellReference cell(CellOf(layer), layer.units, Activations(), biases);
  for (int64_t t = 0; t < call.steps; ++t) {
    for (int64_t b = 0; b < call.batch; ++b) {
      const auto at = [&](const std::vector<float>& rows, int64_t step) {
        return LayerGemms::RowAt(rows, call, step, b, layer.units);
      };
      const std::vector<float> cs_prev =
          t == 0 ? at(call.cs_prev, 0) : at(call.cs, t - 1);
      const LayerGemms gemms(layer, precision, call, t, b);
      const Step want =
          cell.Forward(gemms, gemms.h_prev(), {cs_prev.begin(), cs_prev.end()});
      const int64_t row = t * call.batch + b;
      Tensor h = want.m;
      if (layer.cell == Cell::kLstmProjected) {
        std::vector<float> m = at(call.first, t);
        const std::vector<float> co = at(call.second, t);
        for (std::size_t j = 0; j < m.size(); ++j) m[j] *= co[j];
        h = Totals(Multiply(precision, m, layer.w_2));
      }
      compare("h", h, call.h, row);
      compare("cs", want.cs, call.cs, row);
      if (layer.IsLstm()) compare("o", want.gates[kO], call.first, row);
      if (layer.cell == Cell::kGru) {
        compare("r", want.gates[kR], call.first, row);
      }
    }
  }
  if (count > 0) wrong << " (" << count << " are wrong)";
  return wrong.str();
}

}  // namespace blockrnn::test
