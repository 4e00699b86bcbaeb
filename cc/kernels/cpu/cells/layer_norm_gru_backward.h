// Implements the backward pass of a GRU with layer normalisation over a
// sequence on the CPU, as a cell of sequence_backward.h. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_BACKWARD_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/kernels/cpu/cells/layer_norm_gru_forward.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/sequence/norm_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"

namespace blockrnn::cpu {

// Stage 0:  dz · w_hᵀ of the next step  →  d_h, a tile at a time
// Stage 1:  d_h  →  the gradients behind the norms, and from them those before
//           the norms, of h · w_h (dz) and of x · w_x, a row at a time
// The candidate's gate is the last in every layout.
template <class StorageType>
class LayerNormGruBackwardCell {
 public:
  using T = StorageType;
  using Args = LayerNormGruBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, kGruAfterGates>;
  static constexpr int kGates = kGruAfterGates;

  static BackwardShape<T> Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {
        units,         2,      static_cast<double>(kGates * units), args.w_h,
        args.w_h_grad, nullptr};
  }

  LayerNormGruBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        width_(kGates * units_),
        w_x_grad_(context.scratch,
                  args.shape.HasInputWeights() ? args.w_x_grad : nullptr,
                  args.shape.input, width_, args.shape.weights_by_unit),
        weights_(context.scratch->template Array<C>(3 * width_ + units_)),
        d_sx_(context.scratch->template Array<C>(context.rows.MaxRowsInBlock() *
                                                 width_)),
        x_sums_(Rows(width_)),
        hc_sums_(Rows(units_)),
        gamma_x_sums_(Rows(width_)),
        gamma_h_sums_(Rows(width_)) {}

  void Begin() const {
    const int64_t batch = args_.shape.batch;
    for (C* sums : {x_sums_, gamma_x_sums_, gamma_h_sums_}) {
      ZeroRow(batch * width_, sums);
    }
    ZeroRow(batch * units_, hc_sums_);
    CopyRow(args_.gamma_x, width_, GammaX());
    CopyRow(args_.gamma_h, width_, GammaH());
    const LayerNormGruOffsets offsets(args_);
    for (int64_t n = 0; n < width_; ++n) {
      Bias()[n] = offsets.template OfInput<C>(n);
    }
    for (int64_t unit = 0; unit < units_; ++unit) {
      BiasHc()[unit] = offsets.template OfCandidate<C>(unit);
    }
  }

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    AddStateGrads(context_, args_.h_grad, units_, step, tile);
  }

  void SecondStage(int64_t step, Share share, Range rows) const {
    const Range own = share.RangeOf(rows.end - rows.begin);
    for (int64_t b = rows.begin + own.begin; b < rows.begin + own.end; ++b) {
      StepRow(step, b);
    }
  }

  std::array<InputGradPart<T>, 1> InputParts() const {
    return {InputGradPart<T>{
        d_sx_, width_, kGates,
        TransposedWeights(args_.shape, args_.w_x, args_.shape.input, width_),
        w_x_grad_.sums(), width_}};
  }

  RowSum<C> MoreWeights() const { return {}; }

  void Finish() const {
    const int64_t batch = context_.rows.batch();
    const int64_t ru = width_ - units_;
    SumRows(x_sums_, batch, width_, args_.b_x_grad);
    std::copy_n(args_.b_x_grad, width_, args_.beta_x_grad);
    // r and u have the same gradients for x and for h.
    std::copy_n(args_.b_x_grad, ru, args_.b_h_grad);
    SumRows(hc_sums_, batch, units_, args_.b_h_grad + ru);
    std::copy_n(args_.b_h_grad, width_, args_.beta_h_grad);
    SumRows(gamma_x_sums_, batch, width_, args_.gamma_x_grad);
    SumRows(gamma_h_sums_, batch, width_, args_.gamma_h_grad);
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
  }

 private:
  // Where a row has its numbers.
  struct Row {
    const T* x_hat;   // [3H]
    const T* h_hat;   // [3H]
    const T* h_prev;  // [H]
    C* d_h;           // [H], then the share of h_prev's gradient that does not
                      // come through h · w_h
    C* d_sh;          // [3H], the gradient behind the norm, then before it
    C* d_sx;          // [3H]
    int64_t b;
  };
  struct RowSums {
    GradSums<C> x;
    GradSums<C> h;
  };

  C* Rows(int64_t width) const {
    return context_.scratch->template Array<C>(args_.shape.batch * width);
  }
  C* GammaX() const { return weights_; }
  C* GammaH() const { return weights_ + width_; }
  C* Bias() const { return weights_ + 2 * width_; }
  C* BiasHc() const { return weights_ + 3 * width_; }

  void StepRow(int64_t step, int64_t b) const {
    const SequenceRows& rows = context_.rows;
    const int64_t saved = rows.SavedRow(step, b);
    const Row row = {args_.x_hat + saved * width_,
                     args_.h_hat + saved * width_,
                     context_.operands.PreviousState(step, b),
                     context_.d_h + b * units_,
                     context_.dz.Step(step) + b * width_,
                     d_sx_ + (context_.operands.FirstRow(step) + b) * width_,
                     b};
    if (rows.IsMasked(step, b)) {
      ZeroRow(width_, row.d_sh);
      ZeroRow(width_, row.d_sx);
      return;
    }
    const RowSums sums = GateGrads(row);
    const T* const rstd = args_.rstd + 2 * saved;
    NormGradRow<T>({GammaX(), row.x_hat, static_cast<C>(rstd[0])}, row.d_sx,
                   sums.x.Means(width_), width_, row.d_sx);
    NormGradRow<T>({GammaH(), row.h_hat, static_cast<C>(rstd[1])}, row.d_sh,
                   sums.h.Means(width_), width_, row.d_sh);
  }

  // The gradients behind the norms, what they add to the gradients of gammas
  // and biases, and the sums for the gradients of the norms.
  EIGEN_DONT_INLINE RowSums GateGrads(const Row& row) const {
    const GruAfterGateLayout& at = args_.layout;
    RowSums sums;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      // 1. The gates, once more.
      const auto of_x = [&](int gate) {
        const int64_t n = gate * units_ + j;
        return MulAdd(Load<C>(row.x_hat + n, lanes),
                      Load<C>(GammaX() + n, lanes), Load<C>(Bias() + n, lanes));
      };
      const auto of_h = [&](int gate, const V& added) {
        const int64_t n = gate * units_ + j;
        return MulAdd(Load<C>(row.h_hat + n, lanes),
                      Load<C>(GammaH() + n, lanes), added);
      };
      const V h_prev = Load<C>(row.h_prev + j, lanes);
      const V hc = of_h(at.c, Load<C>(BiasHc() + j, lanes));
      const GruAfterStep<V> gates = GruAfterForward<StandardActivations>(
          of_h(at.r, of_x(at.r)), of_h(at.u, of_x(at.u)), of_x(at.c), hc,
          h_prev);
      // 2. Equations.
      const GruAfterStepGrad<V> out =
          GruAfterBackward(gates, hc, h_prev, Load<C>(row.d_h + j, lanes));
      // 3. Store, and add.
      Store(row.d_h + j, out.d_h_prev, lanes);
      const auto add = [&](int gate, const V& d_x, const V& d_h) {
        const int64_t n = gate * units_ + j;
        const int64_t sum = row.b * width_ + n;
        const V x_hat = Load<C>(row.x_hat + n, lanes);
        const V h_hat = Load<C>(row.h_hat + n, lanes);
        Store(row.d_sx + n, d_x, lanes);
        Store(row.d_sh + n, d_h, lanes);
        AddTo(x_sums_ + sum, d_x, lanes);
        AddTo(gamma_x_sums_ + sum, d_x * x_hat, lanes);
        AddTo(gamma_h_sums_ + sum, d_h * h_hat, lanes);
        sums.x.Add(Load<C>(GammaX() + n, lanes) * d_x, x_hat);
        sums.h.Add(Load<C>(GammaH() + n, lanes) * d_h, h_hat);
      };
      add(at.r, out.d_r_bar, out.d_r_bar);
      add(at.u, out.d_u_bar, out.d_u_bar);
      add(at.c, out.d_c_bar, out.d_hc);
      AddTo(hc_sums_ + row.b * units_ + j, out.d_hc, lanes);
    });
    return sums;
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const int64_t width_;           // 3H
  const WeightGrad<T> w_x_grad_;  // [I, 3H]
  C* const weights_;              // gamma_x, gamma_h, the offsets of x: [3H]
                                  // each, then those of the candidate's h: [H]
  C* const d_sx_;                 // [block rows, 3H], of x · w_x
  C* const x_sums_;               // [B, 3H], Σ d_x: of b_x
  C* const hc_sums_;              // [B, H], Σ d_hc: of the candidate's b_h
  C* const gamma_x_sums_;         // [B, 3H], Σ d_x ∘ x_hat
  C* const gamma_h_sums_;         // [B, 3H], Σ d_h ∘ h_hat
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_GRU_BACKWARD_H_
