// Implements a GRU with layer normalisation over a sequence on the CPU, forward
// and backward, as cells of sequence_forward.h and sequence_backward.h. The
// equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/cpu/sequence/normalized_backward.h"
#include "cc/kernels/cpu/sequence/normalized_forward.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

// What is added to gamma_x ∘ x_hat. The reset gate multiplies the candidate's
// share of h, with what is added to it; r and u have all that is added here.
// The candidate's gate is the last in every layout.
template <class Args>
class LayerNormGruOffsets {
 public:
  explicit LayerNormGruOffsets(const Args& args) : args_(args) {}

  template <class C>
  C OfInput(int64_t column) const {
    const C of_x = static_cast<C>(args_.beta_x[column]) +
                   static_cast<C>(args_.b_x[column]);
    return column < Candidate(0) ? of_x + OfState<C>(column) : of_x;
  }
  // Of a unit's candidate.
  template <class C>
  C OfCandidate(int64_t unit) const {
    return OfState<C>(Candidate(unit));
  }

 private:
  int64_t Candidate(int64_t unit) const {
    return (kGruAfterGates - 1) * args_.shape.units + unit;
  }
  template <class C>
  C OfState(int64_t column) const {
    return static_cast<C>(args_.beta_h[column]) +
           static_cast<C>(args_.b_h[column]);
  }

  const Args& args_;
};

template <class T, class P>
struct LayerNormGruPanels
    : LayerNormPanels<T, LayerNormGruForwardArgs<T>, kGruAfterGates, P> {
  using Args = LayerNormGruForwardArgs<T>;
  using C = ComputeType<T>;
  using Base = LayerNormPanels<T, Args, kGruAfterGates, P>;

  LayerNormGruPanels(const Args& args, PanelMemory* memory,
                     const Packing& packing)
      : Base(args, memory, packing, [&](int64_t column) {
          return LayerNormGruOffsets(args).template OfInput<C>(column);
        }) {
    C* const packed = memory->Take<C>(args.shape.units);
    bias_hc = packed;
    if (packed == nullptr || memory->frozen()) return;
    for (int64_t unit = 0; unit < args.shape.units; ++unit) {
      packed[unit] = LayerNormGruOffsets(args).template OfCandidate<C>(unit);
    }
  }

  const C* bias_hc;  // [H], the candidate's beta_h + b_h
};

// The gates and h from the norms of NormalizedForward.
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class LayerNormGruForwardCell
    : public NormalizedForward<LayerNormGruPanels<StorageType, Element>> {
 public:
  using T = StorageType;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Norms = NormalizedForward<LayerNormGruPanels<T, Element>>;
  using Norms::Norms;

  void Step(int64_t step, int stage, Share share, Range rows) const {
    Norms::Step(step, stage, share, rows, [&](int64_t b, const Row* row) {
      if (row != nullptr) Gates(step, b, *row);
    });
  }

 private:
  using Norms::args_;
  using Norms::context_;
  using Norms::packed_;
  using Norms::units_;
  using Row = typename Norms::Row;

  EIGEN_DONT_INLINE void Gates(int64_t step, int64_t b, const Row& row) const {
    const GruGateLayout& layout = args_.layout;
    const C* const previous = context_.h.Previous(step) + b * units_;
    C* const next = context_.h.Next(step) + b * units_;
    T* const h = context_.h.OutputRow(step, b);
    packed_.rows.ForEach([&](int64_t unit, int64_t at, auto lanes) {
      // The norms, with the biases.
      const auto of_x = [&](int gate) {
        return this->OfInput(row, gate, unit, at, lanes);
      };
      const auto of_h = [&](int gate, const V& more) {
        return this->OfState(row, gate, unit, at, more, lanes);
      };
      const GruAfterStep<V> out = GruAfterForward<Activations>(
          of_h(layout.r, of_x(layout.r)), of_h(layout.u, of_x(layout.u)),
          of_x(layout.c),
          of_h(layout.c, Load<C>(packed_.bias_hc + unit, lanes)),
          Load<C>(previous + unit, lanes));
      StoreIf(h, unit, out.h, lanes);
      Store(next + unit, out.h, lanes);
    });
  }
};

// The gradients of NormalizedBackward: those behind the norms have one for x
// and one for h.
template <class StorageType>
class LayerNormGruBackwardCell
    : public NormalizedBackward<
          StorageType, LayerNormGruBackwardArgs<StorageType>, kGruAfterGates> {
 public:
  using T = StorageType;
  using Args = LayerNormGruBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Norms = NormalizedBackward<T, Args, kGruAfterGates>;

  LayerNormGruBackwardCell(const Args& args,
                           const typename Norms::Context& context)
      : Norms(args, context),
        bias_hc_(Norms::Array(units_)),
        hc_sums_(Norms::Array(args.shape.batch * units_)) {}

  void Begin() const {
    const LayerNormGruOffsets offsets(args_);
    Norms::Begin([&](int64_t n) { return offsets.template OfInput<C>(n); });
    for (int64_t unit = 0; unit < units_; ++unit) {
      bias_hc_[unit] = offsets.template OfCandidate<C>(unit);
    }
    ZeroRow(args_.shape.batch * units_, hc_sums_);
  }

  void SecondStage(int64_t step, Share share, Range rows) const {
    Norms::ForEachRow(step, share, rows, [&](const Row& row, bool masked) {
      if (masked) return;
      const T* const h_prev = context_.operands.PreviousState(step, row.b);
      Norms::BeforeNorms(row, row.d_sx, GateGrads(row, h_prev));
    });
  }

  void Finish() const {
    const int64_t width = kGruAfterGates * units_;
    const int64_t ru = width - units_;
    Norms::Finish();
    std::copy_n(args_.beta_x_grad, width, args_.b_x_grad);
    // r and u have the same gradients for x and for h.
    std::copy_n(args_.b_x_grad, ru, args_.b_h_grad);
    SumRows(hc_sums_, args_.shape.batch, units_, args_.b_h_grad + ru);
    std::copy_n(args_.b_h_grad, width, args_.beta_h_grad);
  }

 private:
  using Norms::args_;
  using Norms::context_;
  using Norms::units_;
  using Row = typename Norms::Row;
  using RowSums = typename Norms::RowSums;

  // The gradients behind the norms: of x to row.d_sx, of h to row.dz, and to
  // row.d_h the share of h_prev's that does not come through h · w_h.
  EIGEN_DONT_INLINE RowSums GateGrads(const Row& row, const T* h_prevs) const {
    const GruGateLayout& at = args_.layout;
    RowSums sums;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      // The gates, once more.
      const auto of_x = [&](int gate) {
        return this->OfInput(row, gate * units_ + j, lanes);
      };
      const auto of_h = [&](int gate, const V& added) {
        return this->OfState(row, gate * units_ + j, added, lanes);
      };
      const V h_prev = Load<C>(h_prevs + j, lanes);
      const V hc = of_h(at.c, Load<C>(bias_hc_ + j, lanes));
      const GruAfterStep<V> gates = GruAfterForward<StandardActivations>(
          of_h(at.r, of_x(at.r)), of_h(at.u, of_x(at.u)), of_x(at.c), hc,
          h_prev);
      const GruAfterStepGrad<V> out =
          GruAfterBackward(gates, hc, h_prev, Load<C>(row.d_h + j, lanes));
      Store(row.d_h + j, out.d_h_prev, lanes);
      const auto add = [&](int gate, const V& d_x, const V& d_h) {
        const int64_t n = gate * units_ + j;
        Store(row.d_sx + n, d_x, lanes);
        Store(row.dz + n, d_h, lanes);
        this->Add(row, n, d_x, d_h, lanes, &sums);
      };
      add(at.r, out.d_r_bar, out.d_r_bar);
      add(at.u, out.d_u_bar, out.d_u_bar);
      add(at.c, out.d_c_bar, out.d_hc);
      AddTo(hc_sums_ + row.b * units_ + j, out.d_hc, lanes);
    });
    return sums;
  }

  C* const bias_hc_;  // [H], the offsets of the candidate's h
  C* const hc_sums_;  // [B, H], Σ d_hc: of the candidate's b_h
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_H_
