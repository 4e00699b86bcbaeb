// Implements an LSTM with layer normalisation over a sequence on the CPU,
// forward and backward, as cells of sequence_forward.h and sequence_backward.h.
// The equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/sequence/normalized_backward.h"
#include "cc/kernels/cpu/sequence/normalized_forward.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

// What is added to gamma_x ∘ x_hat.
template <class C, class Args>
C LayerNormLstmOffset(const Args& args, int64_t column) {
  return (static_cast<C>(args.beta_x[column]) +
          static_cast<C>(args.beta_h[column])) +
         static_cast<C>(args.b[column]);
}

template <class T, class P>
struct LayerNormLstmPanels
    : LayerNormPanels<T, LayerNormLstmForwardArgs<T>, kLstmGates, P> {
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using Base = LayerNormPanels<T, Args, kLstmGates, P>;

  LayerNormLstmPanels(const Args& args, PanelMemory* memory,
                      const Packing& packing)
      : Base(args, memory, packing, [&](int64_t column) {
          return LayerNormLstmOffset<C>(args, column);
        }) {
    const int64_t units = args.shape.units;
    C* const of_state = memory->Take<C>(2 * units);
    if (of_state == nullptr) return;
    gamma_c = of_state;
    beta_c = of_state + units;
    if (memory->frozen()) return;
    CopyRow(args.gamma_c, units, of_state);
    CopyRow(args.beta_c, units, of_state + units);
  }

  const C* gamma_c = nullptr;  // [H]
  const C* beta_c = nullptr;   // [H]
};

// The gates, the norm of the cell state, and h from the norms of
// NormalizedForward.
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LayerNormLstmForwardCell
    : public NormalizedForward<LayerNormLstmPanels<StorageType, Element>> {
 public:
  using T = StorageType;
  using Args = LayerNormLstmForwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Norms = NormalizedForward<LayerNormLstmPanels<T, Element>>;

  LayerNormLstmForwardCell(const Args& args,
                           const typename Norms::Context& context)
      : Norms(args, context),
        o_(context.scratch->template Array<C>(args.shape.batch * units_)),
        c_(context.scratch->template Array<C>(args.shape.batch * units_)),
        cs_(context.scratch->template Array<C>(args.shape.batch * units_)) {}

  void Step(int64_t step, int stage, Share share, Range rows) const {
    Norms::Step(step, stage, share, rows, [&](int64_t b, const Row* row) {
      const int64_t state = b * units_;
      T* const cs = this->SavedRow(args_.cs, step, b, units_);
      if (row == nullptr) {
        if (cs != nullptr) CopyRow(cs_ + state, units_, cs);
        return;
      }
      const V sum = Gates(*row, state);
      Output(step, b, cs, CentreRow(c_ + state, units_, sum, epsilon_));
    });
  }

  // Of width H; NormalizedForward does what there is to do for the others.
  std::array<T*, 1> SavedForBackward() const { return {args_.cs}; }

  CellState<T> State() const {
    return {cs_, args_.cs_prev, args_.cs, args_.cs_last};
  }

 private:
  using Norms::args_;
  using Norms::context_;
  using Norms::epsilon_;
  using Norms::packed_;
  using Norms::units_;
  using Row = typename Norms::Row;

  // Writes o and c, and c as the state where the output alone reads its norm.
  // Returns the lanes' sums of c.
  EIGEN_DONT_INLINE V Gates(const Row& row, int64_t state) const {
    const LstmGateLayout& layout = args_.layout;
    V sum(0);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      const auto bar = [&](int gate) {
        return this->OfState(row, gate, unit, at,
                             this->OfInput(row, gate, unit, at, lanes), lanes);
      };
      const LayerNormLstmGates<V> out = LayerNormLstmForward<Activations>(
          LstmPreActivations<V>{bar(layout.i), bar(layout.ci), bar(layout.f),
                                bar(layout.o)},
          Load<C>(cs_ + state + unit, lanes));
      Store(o_ + state + unit, out.o, lanes);
      Store(c_ + state + unit, out.c, lanes);
      if (args_.norm_output_only) Store(cs_ + state + unit, out.c, lanes);
      sum = sum + ZeroOtherLanes(out.c, lanes);
    });
    return sum;
  }

  // saved: where cs goes as well, or nullptr.
  EIGEN_DONT_INLINE void Output(int64_t step, int64_t b, T* saved,
                                C rstd) const {
    const int64_t state = b * units_;
    const V rstd_v(rstd);
    C* const next = context_.h.Next(step) + state;
    T* const h = context_.h.OutputRow(step, b);
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const V normalized = MulAdd(Load<C>(c_ + state + j, lanes) * rstd_v,
                                  Load<C>(packed_.gamma_c + j, lanes),
                                  Load<C>(packed_.beta_c + j, lanes));
      const V new_h =
          Load<C>(o_ + state + j, lanes) * Activations::Candidate(normalized);
      V new_cs = normalized;
      if (args_.norm_output_only) {
        new_cs = Load<C>(cs_ + state + j, lanes);
      } else {
        Store(cs_ + state + j, new_cs, lanes);
      }
      StoreIf(saved, j, new_cs, lanes);
      StoreIf(h, j, new_h, lanes);
      Store(next + j, new_h, lanes);
    });
  }

  C* const o_;   // [B, H]
  C* const c_;   // [B, H], before its norm, then its deviations
  C* const cs_;  // [B, H]
};

// The gradients of NormalizedBackward: those behind the norms are the same for
// x and for h.
template <class StorageType>
class LayerNormLstmBackwardCell
    : public NormalizedBackward<
          StorageType, LayerNormLstmBackwardArgs<StorageType>, kLstmGates> {
 public:
  using T = StorageType;
  using Args = LayerNormLstmBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Norms = NormalizedBackward<T, Args, kLstmGates>;

  LayerNormLstmBackwardCell(const Args& args,
                            const typename Norms::Context& context)
      : Norms(args, context),
        epsilon_(static_cast<C>(args.epsilon)),
        gamma_c_(Norms::Array(units_)),
        beta_c_(Norms::Array(units_)),
        cs_grad_(Rows()),
        c_hat_(Rows()),
        c_grad_(Rows()),
        gamma_c_sums_(Rows()),
        beta_c_sums_(Rows()) {}

  StateGradient<T> CellGrad() const {
    return {cs_grad_,           units_,
            args_.cs_grad,      units_,
            args_.cs_last_grad, args_.cs_prev_grad};
  }

  void Begin() const {
    Norms::Begin([&](int64_t n) { return LayerNormLstmOffset<C>(args_, n); });
    CopyRow(args_.gamma_c, units_, gamma_c_);
    CopyRow(args_.beta_c, units_, beta_c_);
    for (C* sums : {gamma_c_sums_, beta_c_sums_}) {
      ZeroRow(args_.shape.batch * units_, sums);
    }
  }

  void SecondStage(int64_t step, Share share, Range rows) const {
    Norms::ForEachRow(step, share, rows, [&](const Row& row, bool masked) {
      StepRow(step, row, masked);
    });
  }

  void Finish() const {
    const int64_t width = kLstmGates * units_;
    Norms::Finish();
    std::copy_n(args_.beta_x_grad, width, args_.b_grad);
    std::copy_n(args_.beta_x_grad, width, args_.beta_h_grad);
    SumRows(gamma_c_sums_, args_.shape.batch, units_, args_.gamma_c_grad);
    SumRows(beta_c_sums_, args_.shape.batch, units_, args_.beta_c_grad);
  }

 private:
  using Norms::args_;
  using Norms::context_;
  using Norms::units_;
  using Row = typename Norms::Row;  // dz has the gates for a while
  using RowSums = typename Norms::RowSums;

  // Where a row has the numbers of its cell state.
  struct CellRow {
    const T* prev;  // [H]
    const T* grad;  // [H], or nullptr
    int64_t at;     // in arrays [B, H]
  };

  C* Rows() const { return Norms::Array(args_.shape.batch * units_); }

  void StepRow(int64_t step, const Row& row, bool masked) const {
    const SequenceRows& rows = context_.rows;
    const CellRow cs = {
        step == 0 ? rows.FirstState(args_.cs_prev, units_, row.b)
                  : args_.cs + rows.SavedRow(step - 1, row.b) * units_,
        RowPointer(args_.cs_grad, rows.MemoryRow(step, row.b), units_),
        row.b * units_};
    if (masked) {
      if (cs.grad != nullptr) AddRow(cs.grad, units_, cs_grad_ + cs.at);
      return;
    }
    // 1. The gates and the cell state before its norm, once more.
    const V sum = Gates(row, cs);
    const C c_rstd = CentreRow(c_hat_ + cs.at, units_, sum, epsilon_);
    // 2. The gradients of ō and of the cell state, behind its norm.
    const GradMeans<C> of_c = OutputGrads(row, cs, c_rstd);
    // 3. Those of the other gates.
    const RowSums sums = GateGrads(row, cs, c_rstd, of_c);
    // 4. Those before the norms.
    Norms::BeforeNorms(row, row.dz, sums);
  }

  // Gates to row.dz, in their order, and c to c_hat_. Returns the lanes' sums
  // of c.
  EIGEN_DONT_INLINE V Gates(const Row& row, const CellRow& cs) const {
    const LstmGateLayout& at = args_.layout;
    V sum(0);
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const auto bar = [&](int gate) {
        const int64_t n = gate * units_ + j;
        return this->OfState(row, n, this->OfInput(row, n, lanes), lanes);
      };
      const auto out = LayerNormLstmForward<StandardActivations>(
          LstmPreActivations<V>{bar(at.i), bar(at.ci), bar(at.f), bar(at.o)},
          Load<C>(cs.prev + j, lanes));
      Store(row.dz + at.i * units_ + j, out.i, lanes);
      Store(row.dz + at.ci * units_ + j, out.ci, lanes);
      Store(row.dz + at.f * units_ + j, out.f, lanes);
      Store(row.dz + at.o * units_ + j, out.o, lanes);
      Store(c_hat_ + cs.at + j, out.c, lanes);
      sum = sum + ZeroOtherLanes(out.c, lanes);
    });
    return sum;
  }

  // From the deviations of c: c_hat_, gamma_c ∘ dn, and do in row.dz.
  EIGEN_DONT_INLINE GradMeans<C> OutputGrads(const Row& row, const CellRow& cs,
                                             C rstd) const {
    const V rstd_v(rstd);
    C* const o = row.dz + args_.layout.o * units_;
    GradSums<C> sums;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const int64_t state = cs.at + j;
      const V gamma = Load<C>(gamma_c_ + j, lanes);
      const V hat = Load<C>(c_hat_ + state, lanes) * rstd_v;
      const V new_cs = MulAdd(hat, gamma, Load<C>(beta_c_ + j, lanes));
      V cs_grad = Load<C>(cs_grad_ + state, lanes);
      if (cs.grad != nullptr) {
        cs_grad = cs_grad + Load<C>(cs.grad + j, lanes);
      }
      if (args_.norm_output_only) {
        Store(cs_grad_ + state, cs_grad, lanes);
        cs_grad = V(0);
      }
      const LayerNormLstmOutputGrad<V> out =
          LayerNormLstmOutputBackward(Load<C>(o + j, lanes), Tanh(new_cs),
                                      cs_grad, Load<C>(row.d_h + j, lanes));
      const V g = gamma * out.dn;
      // All of h_prev's gradient comes through h · w_h.
      Store(row.d_h + j, V(0), lanes);
      Store(o + j, out.d_o, lanes);
      Store(c_hat_ + state, hat, lanes);
      Store(c_grad_ + state, g, lanes);
      AddTo(gamma_c_sums_ + state, out.dn * hat, lanes);
      AddTo(beta_c_sums_ + state, out.dn, lanes);
      sums.Add(g, hat);
    });
    return sums.Means(units_);
  }

  // The gates' gradients in row.dz, what they add to the gradients of gammas
  // and biases, and the sums for the gradients of the norms.
  EIGEN_DONT_INLINE RowSums GateGrads(const Row& row, const CellRow& cs,
                                      C c_rstd,
                                      const GradMeans<C>& of_c) const {
    const LstmGateLayout& at = args_.layout;
    const V rstd(c_rstd);
    const V mean_g(of_c.g);
    const V mean_g_hat(of_c.g_s_hat);
    RowSums sums;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const int64_t state = cs.at + j;
      const auto gate = [&](int n) {
        return Load<C>(row.dz + n * units_ + j, lanes);
      };
      V dc = LayerNormBackward(Load<C>(c_grad_ + state, lanes),
                               Load<C>(c_hat_ + state, lanes), mean_g,
                               mean_g_hat, rstd);
      if (args_.norm_output_only) dc = dc + Load<C>(cs_grad_ + state, lanes);
      const LayerNormLstmGateGrad<V> out = LayerNormLstmGateBackward(
          gate(at.i), gate(at.f), gate(at.ci), Load<C>(cs.prev + j, lanes), dc);
      Store(cs_grad_ + state, out.cs_prev_grad, lanes);
      const auto add = [&](int which, const V& dz) {
        const int64_t n = which * units_ + j;
        Store(row.dz + n, dz, lanes);
        this->Add(row, n, dz, dz, lanes, &sums);
      };
      const V d_o = gate(at.o);
      add(at.i, out.di);
      add(at.ci, out.dci);
      add(at.f, out.df);
      add(at.o, d_o);
    });
    return sums;
  }

  const C epsilon_;
  C* const gamma_c_;       // [H]
  C* const beta_c_;        // [H]
  C* const cs_grad_;       // [B, H], from the next step
  C* const c_hat_;         // [B, H], c, its deviations, c_hat
  C* const c_grad_;        // [B, H], gamma_c ∘ dn
  C* const gamma_c_sums_;  // [B, H], Σ dn ∘ c_hat
  C* const beta_c_sums_;   // [B, H], Σ dn
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_H_
