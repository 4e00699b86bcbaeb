// Implements the equations of one step of one row, and their gradients, for the
// reference of a stack.

#ifndef BLOCKRNN_TESTS_CPP_RNN_STACK_CELL_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_RNN_STACK_CELL_REFERENCE_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/cpp/reference.h"
#include "tests/cpp/rnn_stack_variants.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test::stack {

// The positions of a layer direction's weights and biases in params.
struct Parts {
  int64_t width = 0;         // of its input
  std::vector<int64_t> w;    // [H, width] by gate; none: x itself
  std::vector<int64_t> r;    // [H, P] by gate
  int64_t w_p = 0;           // [P, H]
  std::vector<int64_t> b_w;  // [H] by gate
  std::vector<int64_t> b_r;  // [H] by gate
};

// One step of one row: what it takes and what it makes.
struct Step {
  const Real* x = nullptr;     // [width]
  Tensor h_prev;               // [P]
  Tensor c_prev;               // [H]
  std::array<Tensor, 4> gate;  // [H] each, in the order of params
  Tensor hc;                   // [H], of gru: R_c · h + b_r,c
  Tensor c;                    // [H]
  Tensor m;                    // [H], h before the projection
  Tensor h;                    // [P]
};

// Whether roundoff may have changed its sign.
inline bool IsUndecided(const Real& x) {
  return std::fabs(x.value) <= kReluUndecided * x.scale;
}

inline Real Relu(const Real& x) {
  if (x.value < 0) return {0, IsUndecided(x) ? x.scale : 0};
  return {x.value, x.scale + std::fabs(x.value)};
}

// d, but 0 where h is 0.
inline Real ReluGradient(const Real& h, const Real& d) {
  if (h.scale > 0 && IsUndecided(h)) {
    return {h.value <= 0 ? 0 : d.value, kAnything * std::fabs(d.value)};
  }
  return h.value <= 0 ? Real(0) : d;
}

// The gate sums of one unit, over x and over h.
struct GateSums {
  Sum x;
  Sum h;

  Real Both() const {
    Sum both = x;
    both.Add(h.Total());
    return both.Total();
  }
};

// The equations of the steps of one layer direction, and their gradient.
class Cell {
 public:
  Cell(const Stack& s, const Parts& parts, const Tensor& params)
      : s_(s), parts_(parts), params_(params) {}

  void Forward(Step* step) const {
    for (int64_t g = 0; g < s_.Gates(); ++g) step->gate[g].resize(s_.units);
    step->hc.resize(s_.units);
    step->c = step->c_prev;
    step->m.resize(s_.units);
    for (int64_t j = 0; j < s_.units; ++j) {
      switch (s_.choice.mode) {
        case RnnMode::kLstm:
          Lstm(j, step);
          break;
        case RnnMode::kGru:
          Gru(j, step);
          break;
        case RnnMode::kTanh:
          step->m[j] = act_.Candidate(Sums(*step, 0, j).Both());
          break;
        case RnnMode::kRelu:
          step->m[j] = Relu(Sums(*step, 0, j).Both());
          break;
      }
    }
    step->h = s_.projected ? Projected(step->m) : step->m;
  }

  // d_h, d_c: gradients by the state after the step; then by the one before.
  // Adds to those of params, and gives the one by x.
  Tensor Backward(const Step& step, Tensor* d_h, Tensor* d_c,
                  std::vector<Sum>* params_grad) const {
    const Tensor d_m =
        s_.projected ? FromProjection(step, *d_h, params_grad) : *d_h;
    std::array<Tensor, 4> d_x, d_r;  // by the gates' sums
    Tensor direct(s_.proj);          // of d_h, that does not pass the gates
    for (int64_t g = 0; g < s_.Gates(); ++g) {
      d_x[g].resize(s_.units);
      d_r[g].resize(s_.units);
    }
    for (int64_t j = 0; j < s_.units; ++j) {
      std::array<Real, 4> d;
      Real d_from_h_factor(1);
      const Real one(1);
      switch (s_.choice.mode) {
        case RnnMode::kLstm: {
          const Real i = step.gate[0][j], f = step.gate[1][j];
          const Real g = step.gate[2][j], o = step.gate[3][j];
          const Real co = act_.Candidate(step.c[j]);
          const Real d_cell = (*d_c)[j] + d_m[j] * o * (one - co * co);
          d[0] = d_cell * g * i * (one - i);
          d[1] = d_cell * step.c_prev[j] * f * (one - f);
          d[2] = d_cell * i * (one - g * g);
          d[3] = d_m[j] * co * o * (one - o);
          (*d_c)[j] = d_cell * f;
          break;
        }
        case RnnMode::kGru: {
          const Real r = step.gate[0][j], u = step.gate[1][j];
          const Real c = step.gate[2][j];
          d[2] = d_m[j] * (one - u) * (one - c * c);
          d[0] = d[2] * step.hc[j] * r * (one - r);
          d[1] = d_m[j] * (step.h_prev[j] - c) * u * (one - u);
          direct[j] = d_m[j] * u;
          d_from_h_factor = r;
          break;
        }
        case RnnMode::kTanh:
          d[0] = d_m[j] * (one - step.m[j] * step.m[j]);
          break;
        case RnnMode::kRelu:
          d[0] = ReluGradient(step.m[j], d_m[j]);
          break;
      }
      for (int64_t g = 0; g < s_.Gates(); ++g) {
        d_x[g][j] = d[g];
        d_r[g][j] = g == 2 && !s_.IsLstm() ? d[g] * d_from_h_factor : d[g];
      }
    }
    *d_h =
        ThroughWeights(d_r, parts_.r, step.h_prev.data(), s_.proj, params_grad);
    for (int64_t k = 0; k < s_.proj; ++k) (*d_h)[k] = (*d_h)[k] + direct[k];
    AddBiases(d_x, parts_.b_w, params_grad);
    AddBiases(d_r, parts_.b_r, params_grad);
    return ThroughWeights(d_x, parts_.w, step.x, parts_.width, params_grad);
  }

 private:
  GateSums Sums(const Step& step, int64_t gate, int64_t j) const {
    GateSums sums;
    if (parts_.w.empty()) {
      sums.x.Add(step.x[j]);
    } else {
      const Real* const w = &params_[parts_.w[gate]] + j * parts_.width;
      for (int64_t k = 0; k < parts_.width; ++k) {
        sums.x.AddProduct(w[k], step.x[k]);
      }
    }
    const Real* const r = &params_[parts_.r[gate]] + j * s_.proj;
    for (int64_t k = 0; k < s_.proj; ++k) {
      sums.h.AddProduct(r[k], step.h_prev[k]);
    }
    sums.x.Add(params_[parts_.b_w[gate] + j]);
    sums.h.Add(params_[parts_.b_r[gate] + j]);
    return sums;
  }

  void Lstm(int64_t j, Step* step) const {
    const Real i = act_.Gate(Sums(*step, 0, j).Both());
    const Real f = act_.Gate(Sums(*step, 1, j).Both());
    const Real g = act_.Candidate(Sums(*step, 2, j).Both());
    const Real o = act_.Gate(Sums(*step, 3, j).Both());
    step->gate[0][j] = i;
    step->gate[1][j] = f;
    step->gate[2][j] = g;
    step->gate[3][j] = o;
    step->c[j] = f * step->c_prev[j] + i * g;
    step->m[j] = o * act_.Candidate(step->c[j]);
  }

  void Gru(int64_t j, Step* step) const {
    const Real r = act_.Gate(Sums(*step, 0, j).Both());
    const Real u = act_.Gate(Sums(*step, 1, j).Both());
    GateSums candidate = Sums(*step, 2, j);
    step->hc[j] = candidate.h.Total();
    candidate.x.AddProduct(r, step->hc[j]);
    const Real c = act_.Candidate(candidate.x.Total());
    step->gate[0][j] = r;
    step->gate[1][j] = u;
    step->gate[2][j] = c;
    step->m[j] = (Real(1) - u) * c + u * step->h_prev[j];
  }

  Tensor Projected(const Tensor& m) const {
    Tensor h;
    for (int64_t k = 0; k < s_.proj; ++k) {
      Sum sum;
      for (int64_t j = 0; j < s_.units; ++j) {
        sum.AddProduct(params_[parts_.w_p + k * s_.units + j], m[j]);
      }
      h.push_back(sum.Total());
    }
    return h;
  }

  Tensor FromProjection(const Step& step, const Tensor& d_h,
                        std::vector<Sum>* params_grad) const {
    Tensor d_m;
    for (int64_t j = 0; j < s_.units; ++j) {
      Sum sum;
      for (int64_t k = 0; k < s_.proj; ++k) {
        const int64_t at = parts_.w_p + k * s_.units + j;
        sum.AddProduct(params_[at], d_h[k]);
        (*params_grad)[at].AddProduct(d_h[k], step.m[j]);
      }
      d_m.push_back(sum.Total());
    }
    return d_m;
  }

  // The gradient by `from` of what enters the gates through weights at `w`.
  Tensor ThroughWeights(const std::array<Tensor, 4>& d,
                        const std::vector<int64_t>& w, const Real* from,
                        int64_t width, std::vector<Sum>* params_grad) const {
    std::vector<Sum> sums(width);
    for (int64_t g = 0; g < s_.Gates(); ++g) {
      for (int64_t j = 0; j < s_.units; ++j) {
        if (w.empty()) {
          sums[j].Add(d[g][j]);
          continue;
        }
        for (int64_t k = 0; k < width; ++k) {
          const int64_t at = w[g] + j * width + k;
          sums[k].AddProduct(params_[at], d[g][j]);
          (*params_grad)[at].AddProduct(from[k], d[g][j]);
        }
      }
    }
    Tensor total;
    for (const Sum& sum : sums) total.push_back(sum.Total());
    return total;
  }

  void AddBiases(const std::array<Tensor, 4>& d, const std::vector<int64_t>& b,
                 std::vector<Sum>* params_grad) const {
    for (int64_t g = 0; g < s_.Gates(); ++g) {
      for (int64_t j = 0; j < s_.units; ++j) {
        (*params_grad)[b[g] + j].Add(d[g][j]);
      }
    }
  }

  const Stack& s_;
  const Parts& parts_;
  const Tensor& params_;
  const Activations act_;
};

}  // namespace blockrnn::test::stack

#endif  // BLOCKRNN_TESTS_CPP_RNN_STACK_CELL_REFERENCE_H_
