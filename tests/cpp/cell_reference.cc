#include "tests/cpp/cell_reference.h"

#include <cmath>

#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

const Real kOne(1);

Real Over(const Real& a, std::size_t count) {
  const auto n = static_cast<double>(count);
  return {a.value / n, (a.scale + std::fabs(a.value)) / n, a.open};
}

// 1 / √(x + epsilon)
Real ReciprocalRoot(const Real& x, double epsilon) {
  const double root = 1 / std::sqrt(x.value + epsilon);
  const double slope = 0.5 * root * root * root;
  return {root, slope * (x.scale + std::fabs(x.value) + epsilon) + root,
          x.open};
}

// The row with a mean of 0 and a variance of 1, and 1 / √(its variance).
Tensor Normalize(const Tensor& row, double epsilon, Real* rstd) {
  Sum sum;
  for (const Real& element : row) sum.Add(element);
  const Real mean = Over(sum.Total(), row.size());
  Sum squares;
  Tensor hat;
  for (const Real& element : row) {
    hat.push_back(element - mean);
    squares.AddProduct(hat.back(), hat.back());
  }
  *rstd = ReciprocalRoot(Over(squares.Total(), row.size()), epsilon);
  for (Real& element : hat) element = element * *rstd;
  return hat;
}

// The gradient before a norm, of g = gamma ∘ d.
Tensor NormGrad(const Tensor& g, const Tensor& hat, const Real& rstd) {
  Sum sum, with_hat;
  for (std::size_t j = 0; j < g.size(); ++j) {
    sum.Add(g[j]);
    with_hat.AddProduct(g[j], hat[j]);
  }
  const Real mean = Over(sum.Total(), g.size());
  const Real mean_with_hat = Over(with_hat.Total(), g.size());
  Tensor out;
  for (std::size_t j = 0; j < g.size(); ++j) {
    out.push_back(rstd * (g[j] - mean - hat[j] * mean_with_hat));
  }
  return out;
}

// Whether roundoff may have changed its sign.
bool IsUndecided(const Real& x) {
  return std::fabs(x.value) <= kReluUndecided * x.scale;
}

Real Relu(const Real& x, bool rounds_state) {
  if (!(x.value < 0)) return x;
  const bool unsure = rounds_state || IsUndecided(x);
  return {0, unsure && !std::isinf(x.value) ? x.scale : 0, x.open};
}

// d, but 0 where h is 0.
Real ReluGrad(const Real& h, const Real& d) {
  if (h.scale > 0 && IsUndecided(h)) {
    return {h.value <= 0 ? 0 : d.value, kAnything * std::fabs(d.value),
            h.open || d.open};
  }
  return h.value <= 0 ? Real(0, 0, h.open) : d;
}

}  // namespace

const Tensor& Find(const NamedTensors& tensors, const std::string& name) {
  static const Tensor none;
  const auto found = tensors.find(name);
  return found == tensors.end() ? none : found->second;
}

Tensor Totals(const Sums& sums) {
  Tensor totals;
  for (const Sum& sum : sums) totals.push_back(sum.Total());
  return totals;
}

int64_t CellSpec::Gates() const {
  if (kind == CellKind::kLstm) return 4;
  return kind < CellKind::kTanh ? 3 : 1;
}

int64_t CellSpec::GatesOfState() const {
  return kind == CellKind::kGru ? 2 : Gates();
}

CellReference::CellReference(const CellSpec& spec, int64_t units,
                             Activations activations,
                             const NamedTensors& weights)
    : spec_(spec), units_(units), act_(activations), weights_(weights) {}

Sums CellReference::Biased(const std::string& of, const Tensor& hat,
                           Sums sums) const {
  const Tensor &gamma = Weight("gamma" + of), &beta = Weight("beta" + of);
  const Tensor& bias = Weight("b" + of);
  for (std::size_t n = 0; n < sums.size(); ++n) {
    if (spec_.normed) {
      sums[n] = Sum();
      sums[n].AddProduct(hat[n], gamma[n]);
      sums[n].Add(beta[n]);
    }
    if (!bias.empty()) sums[n].Add(bias[n]);
  }
  return sums;
}

Tensor CellReference::BiasedGrad(const std::string& of, const Tensor& hat,
                                 const Real& rstd, const Tensor& d,
                                 NamedSums* sums) const {
  Sums& bias = (*sums)["b" + of];
  bias.resize(d.size());
  for (std::size_t n = 0; n < d.size(); ++n) bias[n].Add(d[n]);
  if (!spec_.normed) return d;
  Sums& gamma = (*sums)["gamma" + of];
  gamma.resize(d.size());
  Tensor g;
  for (std::size_t n = 0; n < d.size(); ++n) {
    gamma[n].AddProduct(d[n], hat[n]);
    g.push_back(d[n] * Weight("gamma" + of)[n]);
  }
  return NormGrad(g, hat, rstd);
}

Sum CellReference::Bar(const Sums& x, const Sums& h, int64_t gate,
                       int64_t j) const {
  Sum bar = x[At(gate, j)];
  bar.Add(h[At(gate, j)]);
  return bar;
}

// The gates are i, ci, f, o:
//   cs = ci ∘ i + cs_prev ∘ f, clipped     h = o ∘ tanh(cs)
// or, with norms, h and, unless norm_output_only, cs from the norm of that.
void CellReference::Lstm(const Sums& x, const Sums& h, const Tensor& cs_prev,
                         Step* step) const {
  const Tensor &wci = Weight("wci"), &wcf = Weight("wcf");
  const Tensor& wco = Weight("wco");
  for (auto& gate : step->gates) gate.resize(units_);
  auto& [i, ci, f, o] = step->gates;
  step->cs.resize(units_);
  for (int64_t j = 0; j < units_; ++j) {
    Sum i_bar = Bar(x, h, kI, j), f_bar = Bar(x, h, kF, j);
    f_bar.Add(Real(spec_.forget_bias));
    if (!wci.empty()) i_bar.AddProduct(cs_prev[j], wci[j]);
    if (!wcf.empty()) f_bar.AddProduct(cs_prev[j], wcf[j]);
    i[j] = act_.Gate(i_bar.Total());
    ci[j] = act_.Candidate(Bar(x, h, kCi, j).Total());
    f[j] = act_.Gate(f_bar.Total());
    step->cs[j] = ci[j] * i[j] + cs_prev[j] * f[j];
    if (spec_.cell_clip > 0) step->cs[j] = ClipTo(step->cs[j], spec_.cell_clip);
  }
  Tensor read = step->cs;
  if (spec_.normed) {
    step->c_hat = Normalize(read, spec_.epsilon, &step->c_rstd);
    for (int64_t j = 0; j < units_; ++j) {
      read[j] = step->c_hat[j] * Weight("gamma_c")[j] + Weight("beta_c")[j];
    }
    if (!spec_.norm_output_only) step->cs = read;
  }
  for (int64_t j = 0; j < units_; ++j) {
    Sum o_bar = Bar(x, h, kO, j);
    if (!wco.empty()) o_bar.AddProduct(step->cs[j], wco[j]);
    o[j] = act_.Gate(o_bar.Total());
    step->co.push_back(act_.Candidate(read[j]));
    step->m.push_back(o[j] * step->co[j]);
  }
}

void CellReference::GruGates(const Sums& x, const Sums& h, Step* step) const {
  for (const int gate : {kR, kU}) {
    for (int64_t j = 0; j < units_; ++j) {
      step->gates[gate].push_back(act_.Gate(Bar(x, h, gate, j).Total()));
    }
  }
}

// h = u ∘ h_prev + (1 − u) ∘ c
void CellReference::GruState(const Sums& c_bar, const Tensor& h_prev,
                             Step* step) const {
  for (int64_t j = 0; j < units_; ++j) {
    const Real c = act_.Candidate(c_bar[j].Total());
    const Real u = step->gates[kU][j];
    step->gates[kC].push_back(c);
    step->m.push_back(u * h_prev[j] + (kOne - u) * c);
  }
}

Step CellReference::Forward(const Gemms& gemms, const Tensor& h_prev,
                            const Tensor& cs_prev) const {
  Step step;
  const Sums x = gemms.OfX();
  const Sums h = gemms.OfState(0, spec_.GatesOfState(), h_prev);
  if (spec_.normed) {
    step.x_hat = Normalize(Totals(x), spec_.epsilon, &step.rstd[0]);
    step.h_hat = Normalize(Totals(h), spec_.epsilon, &step.rstd[1]);
  }
  Apply(x, h, &gemms, h_prev, cs_prev, &step);
  return step;
}

void CellReference::Apply(const Sums& of_x, const Sums& of_h,
                          const Gemms* gemms, const Tensor& h_prev,
                          const Tensor& cs_prev, Step* step) const {
  const Sums x = Biased("_x", step->x_hat, of_x);
  const Sums h = Biased("_h", step->h_hat, of_h);
  Sums c_bar;
  switch (spec_.kind) {
    case CellKind::kLstm:
      Lstm(x, h, cs_prev, step);
      break;
    case CellKind::kGru: {
      GruGates(x, h, step);
      Tensor h_r;
      for (int64_t j = 0; j < units_; ++j) {
        h_r.push_back(h_prev[j] * step->gates[kR][j]);
      }
      c_bar = gemms->OfState(2, 3, h_r);
      for (int64_t j = 0; j < units_; ++j) c_bar[j].Add(x[At(kC, j)]);
      GruState(c_bar, h_prev, step);
      break;
    }
    case CellKind::kGruAfter:
      GruGates(x, h, step);
      for (int64_t j = 0; j < units_; ++j) {
        step->hc.push_back(h[At(kC, j)].Total());
        c_bar.push_back(x[At(kC, j)]);
        c_bar[j].AddProduct(step->gates[kR][j], step->hc[j]);
      }
      GruState(c_bar, h_prev, step);
      break;
    default:
      for (int64_t j = 0; j < units_; ++j) {
        const Real bar = Bar(x, h, 0, j).Total();
        step->m.push_back(spec_.kind == CellKind::kRelu
                              ? Relu(bar, spec_.rounds_state)
                              : act_.Candidate(bar));
      }
  }
}

void CellReference::Restore(const Tensor& h_prev, const Tensor& cs_prev,
                            bool loses_cs, Step* step) const {
  if (spec_.normed) {
    const Sums none(spec_.Gates() * units_);
    Apply(none, none, nullptr, h_prev, cs_prev, step);
    return;
  }
  if (spec_.kind != CellKind::kLstm) return;
  const auto& [i, ci, f, o] = step->gates;
  for (int64_t j = 0; j < units_; ++j) {
    if (loses_cs) {
      const Real cs = ci[j] * i[j] + cs_prev[j] * f[j];
      step->cs[j] = spec_.cell_clip > 0 ? ClipTo(cs, spec_.cell_clip) : cs;
    }
    if (loses_cs || step->co.size() < step->cs.size()) {
      step->co.resize(j);
      step->co.push_back(act_.Candidate(step->cs[j]));
    }
    step->m.push_back(o[j] * step->co[j]);
  }
}

void CellReference::LstmGrads(const Step& step, const Tensor& cs_prev,
                              const Tensor& d_m, const Tensor& d_cs,
                              StepGrads* out, NamedSums* sums) const {
  const auto& [i, ci, f, o] = step.gates;
  const Tensor& co = step.co;
  const bool past_norm = !spec_.normed || !spec_.norm_output_only;
  const bool peephole = !Weight("wco").empty();
  Tensor d_c;  // by the cell state before its norm
  Tensor& d = out->of_x;
  for (int64_t j = 0; j < units_; ++j) {
    const Real d_o = o[j] * (kOne - o[j]) * d_m[j] * co[j];
    d[At(kO, j)] = d_o;
    Sum d_read;
    d_read.Add((kOne - co[j] * co[j]) * d_m[j] * o[j]);
    if (past_norm) d_read.Add(d_cs[j]);
    if (peephole) d_read.AddProduct(d_o, Weight("wco")[j]);
    d_c.push_back(d_read.Total());
  }
  if (spec_.normed) {
    for (int64_t j = 0; j < units_; ++j) {
      (*sums)["gamma_c"][j].AddProduct(d_c[j], step.c_hat[j]);
      (*sums)["beta_c"][j].Add(d_c[j]);
      d_c[j] = d_c[j] * Weight("gamma_c")[j];
    }
    d_c = NormGrad(d_c, step.c_hat, step.c_rstd);
    for (int64_t j = 0; j < units_ && !past_norm; ++j) {
      d_c[j] = d_c[j] + d_cs[j];
    }
  }
  for (int64_t j = 0; j < units_; ++j) {
    const Real d_i = i[j] * (kOne - i[j]) * d_c[j] * ci[j];
    const Real d_f = f[j] * (kOne - f[j]) * d_c[j] * cs_prev[j];
    d[At(kI, j)] = d_i;
    d[At(kF, j)] = d_f;
    d[At(kCi, j)] = (kOne - ci[j] * ci[j]) * d_c[j] * i[j];
    Sum before;
    before.AddProduct(d_c[j], f[j]);
    if (peephole) {
      before.AddProduct(d_i, Weight("wci")[j]);
      before.AddProduct(d_f, Weight("wcf")[j]);
      (*sums)["wci"][j].AddProduct(d_i, cs_prev[j]);
      (*sums)["wcf"][j].AddProduct(d_f, cs_prev[j]);
      (*sums)["wco"][j].AddProduct(d[At(kO, j)], step.cs[j]);
    }
    out->cs_prev.push_back(before.Total());
  }
  out->of_h = d;
}

void CellReference::GruGrads(const Step& step, const Gemms* gemms,
                             const Tensor& h_prev, const Tensor& d_h,
                             StepGrads* out) const {
  const Tensor &r = step.gates[kR], &u = step.gates[kU], &c = step.gates[kC];
  const bool after = spec_.kind == CellKind::kGruAfter;
  Tensor& d = out->of_x;
  Tensor d_c;
  for (int64_t j = 0; j < units_; ++j) {
    const Real keep = kOne - u[j];
    d_c.push_back(d_h[j] * keep * (kOne - c[j] * c[j]));
    d[At(kC, j)] = d_c[j];
    d[At(kU, j)] = d_h[j] * (h_prev[j] - c[j]) * u[j] * keep;
  }
  const Tensor d_hr = after ? d_c : gemms->StateGrad(2, 3, d_c);
  for (int64_t j = 0; j < units_; ++j) {
    const Real& factor = after ? step.hc[j] : h_prev[j];
    d[At(kR, j)] = d_hr[j] * factor * r[j] * (kOne - r[j]);
    const Real direct = d_h[j] * u[j];
    out->h_prev.push_back(after ? direct : d_hr[j] * r[j] + direct);
    if (!after) out->h_r.push_back(h_prev[j] * r[j]);
  }
  out->of_h = d;
  for (int64_t j = 0; j < units_ && after; ++j) {
    out->of_h[At(kC, j)] = d_c[j] * r[j];
  }
}

StepGrads CellReference::Backward(const Step& step, const Gemms* gemms,
                                  const Tensor& h_prev, const Tensor& cs_prev,
                                  const Tensor& d_m, const Tensor& d_cs,
                                  NamedSums* sums) const {
  StepGrads out;
  out.of_x.resize(spec_.Gates() * units_);
  if (spec_.kind == CellKind::kLstm) {
    LstmGrads(step, cs_prev, d_m, d_cs, &out, sums);
  } else if (spec_.Gates() > 1) {
    GruGrads(step, gemms, h_prev, d_m, &out);
  } else {
    for (int64_t j = 0; j < units_; ++j) {
      const Real& h = step.m[j];
      out.of_x[j] = spec_.kind == CellKind::kRelu ? ReluGrad(h, d_m[j])
                                                  : d_m[j] * (kOne - h * h);
    }
    out.of_h = out.of_x;
  }
  out.of_x = BiasedGrad("_x", step.x_hat, step.rstd[0], out.of_x, sums);
  out.of_h = BiasedGrad("_h", step.h_hat, step.rstd[1], out.of_h, sums);
  return out;
}

}  // namespace blockrnn::test
