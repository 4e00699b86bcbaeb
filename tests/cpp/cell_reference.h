// Declares the equations of all cells for the references: one step of one row,
// forward and backward. Every reference uses these. They are written from the
// cells' papers, row by row, and share nothing with cc/core.

#ifndef BLOCKRNN_TESTS_CPP_CELL_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_CELL_REFERENCE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cpp/reference.h"

namespace blockrnn::test {

using Sums = std::vector<Sum>;
using NamedSums = std::map<std::string, Sums>;

// Of a tensor that is not there, an empty one.
const Tensor& Find(const NamedTensors& tensors, const std::string& name);
Tensor Totals(const Sums& sums);

enum class CellKind { kLstm, kGru, kGruAfter, kTanh, kRelu };

// Gates in the order of the equations.
enum LstmGate { kI, kCi, kF, kO };
enum GruGate { kR, kU, kC };

struct CellSpec {
  CellKind kind = CellKind::kLstm;
  std::array<int, 4> places = {0, 1, 2, 3};  // of each gate's columns
  double forget_bias = 0;
  double cell_clip = 0;  // no clip unless > 0
  bool normed = false;   // with layer normalisation
  double epsilon = 0;
  bool norm_output_only = false;
  // Whether a relu reads what was rounded by more than float's roundoff: as far
  // as its sum may be off, it may be above 0.
  bool rounds_state = false;

  int64_t Gates() const;
  bool HasCellState() const { return kind == CellKind::kLstm; }
  // The gates whose GEMM with the state is that of the state before the step.
  int64_t GatesOfState() const;
};

// The GEMMs of one row.
class Gemms {
 public:
  virtual ~Gemms() = default;
  // Of x and w_x, [gates · H].
  virtual Sums OfX() const = 0;
  // Of a state and the columns of w_h of the gates [first, end).
  virtual Sums OfState(int64_t first, int64_t end,
                       const Tensor& state) const = 0;
  // The gradient by that state, of those by the columns of all gates.
  virtual Tensor StateGrad(int64_t first, int64_t end,
                           const Tensor& d) const = 0;
};

struct Step {
  std::array<Tensor, 4> gates;  // [H] each
  Tensor hc;                    // [H], of a GRU with the reset after the GEMM
  Tensor cs;                    // [H], the new cell state
  Tensor co;                    // [H]
  Tensor m;                     // [H], h before a projection
  Tensor x_hat, h_hat, c_hat;   // the normalised sums
  Tensor rstd = Tensor(2);      // of x_hat and h_hat
  Real c_rstd;
};

struct StepGrads {
  Tensor of_x;     // [gates · H], by the GEMM with w_x
  Tensor of_h;     // [gates · H], by the GEMM with w_h
  Tensor h_r;      // [H], what the last gate multiplies with w_h; empty: h_prev
  Tensor h_prev;   // [H], what does not come through w_h; empty: nothing
  Tensor cs_prev;  // [H]
};

class CellReference {
 public:
  // weights: biases b_x and b_h, peepholes, gamma and beta, as far as there are
  // any.
  CellReference(const CellSpec& spec, int64_t units, Activations activations,
                const NamedTensors& weights);

  Step Forward(const Gemms& gemms, const Tensor& h_prev,
               const Tensor& cs_prev) const;

  // Completes a step of which a backward pass has the arrays of ForEachSaved,
  // and cs. loses_cs: that is not what the step has made.
  void Restore(const Tensor& h_prev, const Tensor& cs_prev, bool loses_cs,
               Step* step) const;

  // d_m, d_cs: by what the step has made. Adds to `sums` what is by biases,
  // peepholes, gamma and beta. gemms and h_prev: only of GRUs.
  StepGrads Backward(const Step& step, const Gemms* gemms, const Tensor& h_prev,
                     const Tensor& cs_prev, const Tensor& d_m,
                     const Tensor& d_cs, NamedSums* sums) const;

  // f(name, tensor) for each array that is saved for the backward pass, but cs.
  template <class F>
  void ForEachSaved(Step* step, const F& f) const {
    auto& gates = step->gates;
    if (spec_.normed) {
      f("x_hat", &step->x_hat);
      f("h_hat", &step->h_hat);
      f("rstd", &step->rstd);
    } else if (spec_.kind == CellKind::kLstm) {
      f("i", &gates[kI]);
      f("f", &gates[kF]);
      f("o", &gates[kO]);
      f("ci", &gates[kCi]);
      f("co", &step->co);
    } else if (spec_.Gates() > 1) {
      f("r", &gates[kR]);
      f("u", &gates[kU]);
      f("c", &gates[kC]);
      if (spec_.kind == CellKind::kGruAfter) f("hc", &step->hc);
    }
  }

 private:
  // The sums behind a gate of unit j.
  int64_t At(int64_t gate, int64_t j) const {
    return spec_.places[gate] * units_ + j;
  }
  Sum Bar(const Sums& x, const Sums& h, int64_t gate, int64_t j) const;
  // The equations, of the GEMMs' sums.
  void Apply(const Sums& of_x, const Sums& of_h, const Gemms* gemms,
             const Tensor& h_prev, const Tensor& cs_prev, Step* step) const;
  void Lstm(const Sums& x, const Sums& h, const Tensor& cs_prev,
            Step* step) const;
  void GruGates(const Sums& x, const Sums& h, Step* step) const;
  void GruState(const Sums& c_bar, const Tensor& h_prev, Step* step) const;
  void LstmGrads(const Step& step, const Tensor& cs_prev, const Tensor& d_m,
                 const Tensor& d_cs, StepGrads* out, NamedSums* sums) const;
  void GruGrads(const Step& step, const Gemms* gemms, const Tensor& h_prev,
                const Tensor& d_h, StepGrads* out) const;
  // What norms and biases make of the sums of a GEMM: of "_x" or of "_h".
  Sums Biased(const std::string& of, const Tensor& hat, Sums sums) const;
  // The gradient by the sums themselves.
  Tensor BiasedGrad(const std::string& of, const Tensor& hat, const Real& rstd,
                    const Tensor& d, NamedSums* sums) const;
  const Tensor& Weight(const std::string& name) const {
    return Find(weights_, name);
  }

  const CellSpec spec_;
  const int64_t units_;
  const Activations act_;
  const NamedTensors& weights_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_CELL_REFERENCE_H_
