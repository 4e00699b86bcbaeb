#include "tests/cpp/sequence_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/op.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

Tensor Row(const Tensor& rows, int64_t row, int64_t width) {
  return {rows.begin() + row * width, rows.begin() + (row + 1) * width};
}

void SetRow(const Tensor& from, int64_t row, Tensor* rows) {
  std::copy(from.begin(), from.end(),
            rows->begin() + row * static_cast<int64_t>(from.size()));
}

Tensor Plus(const Tensor& a, const Tensor& b) {
  Tensor sum;
  for (std::size_t j = 0; j < a.size(); ++j) sum.push_back(a[j] + b[j]);
  return sum;
}

// sums[k, column] += a[k] · d[column], of `count` columns from `first` on.
void AddOuter(const Tensor& a, const Tensor& d, int64_t first, int64_t count,
              Sums* sums) {
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (int64_t column = first; column < first + count; ++column) {
      (*sums)[k * d.size() + column].AddProduct(a[k], d[column]);
    }
  }
}

// A step reads the state as the previous step has stored it.
class StoredState {
 public:
  StoredState(const SequenceReference& of, const Dims& d)
      : rounds_(of.cell.Gates() == 1 && SizeOf(of.type) == 2),
        type_(of.type),
        tolerance_(
            RelativeTolerance(type_, false, (d.input + d.units) * d.steps)) {}

  // A value between two of the type's numbers may become either of them.
  Real Of(const Real& h) const {
    if (!rounds_) return h;
    const double error = tolerance_ * h.scale + AbsoluteTolerance(type_);
    const double apart =
        RoundTo(type_, h.value + error) - RoundTo(type_, h.value - error);
    const double either = std::isfinite(apart) ? apart / tolerance_ : 0;
    return {RoundTo(type_, h.value), h.scale + either, h.open};
  }

 private:
  const bool rounds_;
  const Type type_;
  const double tolerance_;
};

// q = rint(v · (127 / max)) of `count` values that are `stride` apart, all in
// float; returns the scale, max / 127.
float Quantise(const Real* v, std::size_t count, std::size_t stride,
               double* q) {
  std::fill(q, q + count, 0);
  float largest = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const auto x = static_cast<float>(v[k * stride].value);
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(x));
  }
  if (largest < std::ldexp(1.0f, -100)) return 0;
  const float reciprocal = 127.0f / largest;
  for (std::size_t k = 0; k < count; ++k) {
    const float scaled = static_cast<float>(v[k * stride].value) * reciprocal;
    q[k] = static_cast<double>(std::lrint(scaled));  // ties to even
  }
  return largest / 127.0f;
}

// Weights [depth, columns] in a precision, as cc/kernels/cpu/gemm/int8_panel.h
// defines them and rows.
class Matrix {
 public:
  Matrix(Precision precision, const Tensor& w, int64_t columns)
      : precision_(precision), columns_(columns), w_(w) {
    if (precision == Precision::kBFloat16) {
      for (Real& element : w_) {
        element = RoundTo(Type::kBfloat16, element.value);
      }
    }
    if (precision != Precision::kInt8 || columns == 0) return;
    const std::size_t depth = w.size() / columns;
    std::vector<double> q(depth);
    for (int64_t n = 0; n < columns; ++n) {
      const Real* const column = depth == 0 ? nullptr : w.data() + n;
      scales_.push_back(Quantise(column, depth, columns, q.data()));
      for (std::size_t k = 0; k < depth; ++k) w_[k * columns + n] = q[k];
    }
  }

  bool empty() const { return w_.empty(); }
  const Real& At(int64_t k, int64_t column) const {
    return w_[k * columns_ + column];
  }

  // a · the `count` columns from `first` on.
  Sums Multiply(Tensor a, int64_t first, int64_t count) const {
    Sums sums(count);
    float scale = 1;
    if (precision_ == Precision::kInt8) {
      std::vector<double> q(a.size());
      scale = Quantise(a.data(), a.size(), 1, q.data());
      a.assign(q.begin(), q.end());
    } else if (precision_ == Precision::kBFloat16 && MultipliesBfloat16()) {
      for (Real& element : a) element = RoundTo(Type::kBfloat16, element.value);
    }
    for (std::size_t k = 0; k < a.size(); ++k) {
      const Real* const w = w_.data() + k * columns_ + first;
      for (int64_t n = 0; n < count; ++n) sums[n].AddProduct(a[k], w[n]);
    }
    for (int64_t n = 0; n < count && !scales_.empty(); ++n) {
      const double product =
          double{scale} * double{scales_[first + n]} * sums[n].Total().value;
      sums[n] = Sum();
      sums[n].Add(product);
    }
    return sums;
  }

 private:
  const Precision precision_;
  const int64_t columns_;
  Tensor w_;
  std::vector<float> scales_;
};

// The weights of a call.
struct Matrices {
  Matrices(const SequenceReference& of, const NamedTensors& in)
      : x(of.precision, Find(in, "w_x"), Columns(of)),
        h(of.precision, Find(in, "w_h"), Columns(of)),
        p(of.precision, Transposed(Find(in, "w_p"), of.width), of.width) {}

  static int64_t Columns(const SequenceReference& of) {
    return of.cell.Gates() * of.steps.dims().units;
  }

  const Matrix x;
  const Matrix h;
  const Matrix p;
};

// The product of what the engine has stored as float.
Tensor StoredProduct(const Tensor& a, const Tensor& b) {
  Tensor product;
  for (std::size_t j = 0; j < a.size(); ++j) {
    product.push_back(RoundTo(Type::kFloat, a[j].value * b[j].value));
  }
  return product;
}

// The GEMMs of a row of the batch at a step.
class RowGemms : public Gemms {
 public:
  RowGemms(const SequenceReference& of, const NamedTensors& in,
           const Matrices& weights, int64_t b, int64_t row)
      : units_(of.steps.dims().units),
        columns_(of.cell.Gates() * units_),
        batch_(of.steps.dims().batch),
        width_(of.width),
        b_(b),
        x_(Row(Find(in, "x"), row, of.steps.InputWidth())),
        w_x_(weights.x),
        w_h_(weights.h),
        factors_(Find(in, "recurrent_dropout")) {}

  const Tensor& x() const { return x_; }

  // What the engine multiplies with the last gate's columns.
  void SetReset(const Tensor& h_r) { h_r_ = h_r; }

  Sums OfX() const override {
    if (!w_x_.empty() || x_.empty()) return w_x_.Multiply(x_, 0, columns_);
    Sums sums(columns_);
    for (int64_t n = 0; n < columns_; ++n) sums[n].Add(x_[n % x_.size()]);
    return sums;
  }

  Sums OfState(int64_t first, int64_t end, const Tensor& state) const override {
    Sums sums;
    for (int64_t gate = first; gate < end; ++gate) {
      const Tensor& from = first == 0 || h_r_.empty() ? state : h_r_;
      for (const Sum& sum :
           w_h_.Multiply(Seen(gate, from), gate * units_, units_)) {
        sums.push_back(sum);
      }
    }
    return sums;
  }

  Tensor StateGrad(int64_t first, int64_t end, const Tensor& d) const override {
    Tensor grad;
    for (int64_t k = 0; k < width_; ++k) {
      Sum sum;
      for (int64_t gate = first; gate < end; ++gate) {
        Sum of_gate;
        for (int64_t j = 0; j < units_; ++j) {
          of_gate.AddProduct(d[(gate - first) * units_ + j],
                             w_h_.At(k, gate * units_ + j));
        }
        if (factors_.empty()) {
          sum.Add(of_gate);
        } else {
          sum.AddProduct(of_gate.Total(), Factor(gate, k));
        }
      }
      grad.push_back(sum.Total());
    }
    return grad;
  }

  // By x, of those by the GEMM with w_x.
  Tensor InputGrad(const Tensor& d) const {
    if (x_.size() == d.size() && w_x_.empty()) return d;
    Tensor grad;
    for (std::size_t k = 0; k < x_.size(); ++k) {
      Sum sum;
      for (int64_t n = 0; n < columns_; ++n) {
        if (!w_x_.empty()) {
          sum.AddProduct(d[n], w_x_.At(k, n));
        } else if (n % x_.size() == k) {
          sum.Add(d[n]);
        }
      }
      grad.push_back(sum.Total());
    }
    return grad;
  }

  // What a gate reads of the state.
  Tensor Seen(int64_t gate, Tensor state) const {
    for (int64_t k = 0; k < width_ && !factors_.empty(); ++k) {
      state[k] = state[k] * Factor(gate, k);
    }
    return state;
  }

 private:
  const Real& Factor(int64_t gate, int64_t k) const {
    return factors_[(gate * batch_ + b_) * width_ + k];
  }

  const int64_t units_;
  const int64_t columns_;
  const int64_t batch_;
  const int64_t width_;
  const int64_t b_;
  const Tensor x_;
  const Matrix& w_x_;
  const Matrix& w_h_;
  const Tensor& factors_;
  Tensor h_r_;
};

// By m, of w_p · m, where w_p is [P, H].
Tensor ProjectedGrad(const Tensor& w_p, int64_t units, const Tensor& d_h) {
  Sums sums(units);
  for (std::size_t k = 0; k < d_h.size(); ++k) {
    for (int64_t j = 0; j < units; ++j) {
      sums[j].AddProduct(d_h[k], w_p[k * units + j]);
    }
  }
  return Totals(sums);
}

}  // namespace

Tensor Transposed(const Tensor& w, int64_t rows) {
  Tensor transposed(w.size());
  const auto columns = rows == 0 ? 0 : w.size() / rows;
  for (std::size_t n = 0; n < w.size(); ++n) {
    transposed[n % columns * rows + n / columns] = w[n];
  }
  return transposed;
}

NamedTensors SequenceReference::Forward(const NamedTensors& in) const {
  const Dims& d = steps.dims();
  const CellReference reference(cell, d.units, activations, in);
  const StoredState stored(*this, d);
  const int64_t rows = d.steps * d.batch;
  const int64_t cs_width = cell.HasCellState() ? d.units : 0;
  const Matrices weights(*this, in);
  NamedTensors out = {{"h", Tensor(rows * width)},
                      {"cs", Tensor(rows * cs_width)},
                      {"h_last", Find(in, "h_prev")},
                      {"cs_last", Find(in, "cs_prev")}};
  Tensor &h_last = out["h_last"], &cs_last = out["cs_last"];
  for (int64_t step = 0; step < d.steps; ++step) {
    for (int64_t b = 0; b < d.batch; ++b) {
      if (steps.Past(step, b)) continue;
      const int64_t row = steps.At(step, b);
      if (steps.Begins(step, b)) {
        SetRow(Tensor(width), b, &h_last);
        SetRow(Tensor(cs_width), b, &cs_last);
      }
      Tensor h = Row(h_last, b, width), cs = Row(cs_last, b, cs_width);
      if (steps.Counts(step, b)) {
        RowGemms gemms(*this, in, weights, b, row);
        if (computed != nullptr) {
          h = steps.Before(step, b, Find(in, "h_prev"), Find(*computed, "h"),
                           width);
          cs = steps.Before(step, b, Find(in, "cs_prev"), Find(*computed, "cs"),
                            cs_width);
          if (cell.kind == CellKind::kGru) {
            gemms.SetReset(
                StoredProduct(h, Row(Find(*computed, "r"), row, d.units)));
          }
        }
        Step made = reference.Forward(gemms, h, cs);
        Tensor now = made.m;
        if (!weights.p.empty()) {
          if (computed != nullptr) {
            now = StoredProduct(Row(Find(*computed, "o"), row, d.units),
                                Row(Find(*computed, "co"), row, d.units));
          }
          now = Totals(weights.p.Multiply(now, 0, width));
        }
        for (int64_t k = 0; k < width; ++k) {
          if (!steps.Keeps(0, step, b, k)) h[k] = stored.Of(now[k]);
        }
        for (int64_t j = 0; j < cs_width; ++j) {
          if (!steps.Keeps(1, step, b, j)) cs[j] = made.cs[j];
        }
        reference.ForEachSaved(&made, [&](const char* name, Tensor* saved) {
          out[name].resize(rows * saved->size());
          SetRow(*saved, row, &out[name]);
        });
        SetRow(h, b, &h_last);
        SetRow(cs, b, &cs_last);
      }
      SetRow(h, row, &out["h"]);
      SetRow(cs, row, &out["cs"]);
    }
  }
  return out;
}

NamedTensors SequenceReference::Backward(const NamedTensors& in) const {
  const Dims& d = steps.dims();
  const CellReference reference(cell, d.units, activations, in);
  const int64_t cs_width = cell.HasCellState() ? d.units : 0;
  const int64_t columns = cell.Gates() * d.units;
  const int64_t rows = d.steps * d.batch;
  const auto given = [&](const char* name, int64_t count) {
    const Tensor& tensor = Find(in, name);
    return tensor.empty() ? Tensor(count) : tensor;
  };
  const Tensor& w_p = Find(in, "w_p");
  const Matrices weights(*this, in);
  const Tensor h_grad = given("h_grad", rows * width);
  const Tensor cs_grad = given("cs_grad", rows * cs_width);
  NamedTensors out = {
      {"x_grad", Tensor(rows * steps.InputWidth())},
      {"gates_grad", Tensor(rows * columns)},
      {"h_prev_grad", given("h_last_grad", d.batch * width)},
      {"cs_prev_grad", given("cs_last_grad", d.batch * cs_width)}};
  NamedSums sums;
  for (const char* name : {"w_x", "w_h", "w_p", "wci", "wcf", "wco", "gamma_c",
                           "beta_c", "gamma_x", "gamma_h"}) {
    sums[name].resize(Find(in, name).size());
  }
  for (const char* name : {"b_x", "b_h"}) sums[name].resize(columns);
  Tensor &h_prev_grad = out["h_prev_grad"], &x_grad = out["x_grad"];
  Tensor& cs_prev_grad = out["cs_prev_grad"];
  for (int64_t step = d.steps - 1; step >= 0; --step) {
    for (int64_t b = 0; b < d.batch; ++b) {
      if (steps.Past(step, b)) continue;
      const int64_t row = steps.At(step, b);
      Tensor d_h = Plus(Row(h_prev_grad, b, width), Row(h_grad, row, width));
      Tensor d_cs =
          Plus(Row(cs_prev_grad, b, cs_width), Row(cs_grad, row, cs_width));
      SetRow(d_h, b, &h_prev_grad);
      SetRow(d_cs, b, &cs_prev_grad);
      const auto end_step = [&] {
        if (!steps.Begins(step, b)) return;
        SetRow(Tensor(width), b, &h_prev_grad);
        SetRow(Tensor(cs_width), b, &cs_prev_grad);
      };
      if (!steps.Counts(step, b)) {
        end_step();
        continue;
      }
      const Tensor h_kept = steps.SplitGrad(0, step, b, &d_h);
      const Tensor cs_kept = steps.SplitGrad(1, step, b, &d_cs);
      const Tensor h_prev =
          steps.Before(step, b, Find(in, "h_prev"), Find(in, "h"), width);
      const Tensor cs_prev =
          steps.Before(step, b, Find(in, "cs_prev"), Find(in, "cs"), cs_width);
      const RowGemms gemms(*this, in, weights, b, row);

      Step made;
      reference.ForEachSaved(&made, [&](const char* name, Tensor* saved) {
        const Tensor& all = Find(in, name);
        if (!all.empty()) *saved = Row(all, row, all.size() / rows);
      });
      if (cell.HasCellState()) made.cs = Row(Find(in, "cs"), row, cs_width);
      if (cell.Gates() == 1) made.m = Row(Find(in, "h"), row, width);
      reference.Restore(h_prev, cs_prev, steps.order().zones, &made);

      if (!w_p.empty()) AddOuter(d_h, made.m, 0, d.units, &sums["w_p"]);
      const StepGrads grads = reference.Backward(
          made, &gemms, h_prev, cs_prev,
          w_p.empty() ? d_h : ProjectedGrad(w_p, d.units, d_h), d_cs, &sums);
      SetRow(grads.of_x, row, &out["gates_grad"]);
      SetRow(gemms.InputGrad(grads.of_x), row, &x_grad);
      if (!sums["w_x"].empty()) {
        AddOuter(gemms.x(), grads.of_x, 0, columns, &sums["w_x"]);
      }
      for (int64_t gate = 0; gate < cell.Gates(); ++gate) {
        const bool of_h_r = gate >= cell.GatesOfState();
        AddOuter(gemms.Seen(gate, of_h_r ? grads.h_r : h_prev), grads.of_h,
                 gate * d.units, d.units, &sums["w_h"]);
      }
      Tensor back = gemms.StateGrad(0, cell.GatesOfState(), grads.of_h);
      if (!grads.h_prev.empty()) back = Plus(back, grads.h_prev);
      SetRow(h_kept.empty() ? back : Plus(back, h_kept), b, &h_prev_grad);
      SetRow(cs_kept.empty() ? grads.cs_prev : Plus(grads.cs_prev, cs_kept), b,
             &cs_prev_grad);
      end_step();
    }
  }
  for (const auto& [name, sum] : sums) out[name + "_grad"] = Totals(sum);
  out["beta_x_grad"] = out["b_x_grad"];
  out["beta_h_grad"] = out["b_h_grad"];
  return out;
}

}  // namespace blockrnn::test
