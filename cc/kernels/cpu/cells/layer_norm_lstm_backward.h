// Implements the backward pass of an LSTM with layer normalisation over a
// sequence on the CPU, as a cell of sequence_backward.h. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_BACKWARD_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/sequence/norm_gradients.h"
#include "cc/kernels/cpu/sequence/row_norm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"

namespace blockrnn::cpu {

// Stage 0:  dz · w_hᵀ of the next step  →  d_h, a tile at a time
// Stage 1:  d_h  →  the gradients of the gates, and from them those before the
//           norms, of h · w_h (dz) and of x · w_x, a row at a time
template <class StorageType>
class LayerNormLstmBackwardCell {
 public:
  using T = StorageType;
  using Args = LayerNormLstmBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, kLstmGates>;
  static constexpr int kGates = kLstmGates;

  static BackwardShape<T> Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units,
            2,
            static_cast<double>(kLstmGates * units),
            args.w_h,
            args.w_h_grad,
            nullptr};
  }

  LayerNormLstmBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        width_(kGates * units_),
        epsilon_(static_cast<C>(args.epsilon)),
        w_x_grad_(context.scratch,
                  args.shape.HasInputWeights() ? args.w_x_grad : nullptr,
                  args.shape.input, width_, args.shape.weights_by_unit),
        weights_(context.scratch->template Array<C>(3 * width_ + 2 * units_)),
        d_sx_(context.scratch->template Array<C>(context.rows.MaxRowsInBlock() *
                                                 width_)),
        cs_grad_(Rows(units_)),
        c_hat_(Rows(units_)),
        c_grad_(Rows(units_)),
        z_sums_(Rows(width_)),
        x_sums_(Rows(width_)),
        h_sums_(Rows(width_)),
        c_sums_(Rows(units_)),
        cs_sums_(Rows(units_)) {}

  void Begin() const {
    BeginStateGrads(context_.executor, context_.rows, args_.cs_last_grad,
                    CsGrads(), cs_grad_);
    const int64_t batch = args_.shape.batch;
    for (C* sums : {z_sums_, x_sums_, h_sums_}) ZeroRow(batch * width_, sums);
    for (C* sums : {c_sums_, cs_sums_}) ZeroRow(batch * units_, sums);
    CopyRow(args_.gamma_x, width_, GammaX());
    CopyRow(args_.gamma_h, width_, GammaH());
    ForEachVector<C>(width_, [&](int64_t j, auto lanes) {
      const V betas =
          Load<C>(args_.beta_x + j, lanes) + Load<C>(args_.beta_h + j, lanes);
      Store(Bias() + j, betas + Load<C>(args_.b + j, lanes), lanes);
    });
    CopyRow(args_.gamma_c, units_, GammaC());
    CopyRow(args_.beta_c, units_, BetaC());
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
    const SequenceRows& rows = context_.rows;
    FinishStateGrads(context_.executor, rows, CsGrads(), cs_grad_);
    for (int64_t b = 0; b < rows.batch(); ++b) {
      CopyRow(cs_grad_ + b * units_, units_,
              args_.cs_prev_grad + rows.StateRow(b) * units_);
    }
    SumRows(z_sums_, rows.batch(), width_, args_.b_grad);
    std::copy_n(args_.b_grad, width_, args_.beta_x_grad);
    std::copy_n(args_.b_grad, width_, args_.beta_h_grad);
    SumRows(x_sums_, rows.batch(), width_, args_.gamma_x_grad);
    SumRows(h_sums_, rows.batch(), width_, args_.gamma_h_grad);
    SumRows(c_sums_, rows.batch(), units_, args_.gamma_c_grad);
    SumRows(cs_sums_, rows.batch(), units_, args_.beta_c_grad);
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
  }

 private:
  // Where a row has its numbers.
  struct Row {
    const T* x_hat;    // [4H]
    const T* h_hat;    // [4H]
    const T* cs_prev;  // [H]
    const T* cs_grad;  // [H], or nullptr
    C* d_h;            // [H]
    C* dz;             // [4H], for a while the gates
    C* d_sx;           // [4H]
    int64_t state;     // of the row, in arrays [B, H]
  };

  C* Rows(int64_t width) const {
    return context_.scratch->template Array<C>(args_.shape.batch * width);
  }
  C* GammaX() const { return weights_; }
  C* GammaH() const { return weights_ + width_; }
  C* Bias() const { return weights_ + 2 * width_; }
  C* GammaC() const { return weights_ + 3 * width_; }
  C* BetaC() const { return weights_ + 3 * width_ + units_; }

  StateGrads<T> CsGrads() const { return {args_.cs_grad, units_, units_}; }

  void StepRow(int64_t step, int64_t b) const {
    const SequenceRows& rows = context_.rows;
    const int64_t saved = rows.SavedRow(step, b);
    const Row row = {args_.x_hat + saved * width_,
                     args_.h_hat + saved * width_,
                     step == 0 ? args_.cs_prev + rows.StateRow(b) * units_
                               : args_.cs + rows.SavedRow(step - 1, b) * units_,
                     RowPointer(args_.cs_grad, rows.MemoryRow(step, b), units_),
                     context_.d_h + b * units_,
                     context_.dz.Step(step) + b * width_,
                     d_sx_ + (context_.operands.FirstRow(step) + b) * width_,
                     b * units_};
    if (rows.IsMasked(step, b)) {
      ZeroRow(width_, row.dz);
      ZeroRow(width_, row.d_sx);
      if (row.cs_grad != nullptr) {
        AddRow(row.cs_grad, units_, cs_grad_ + row.state);
      }
      return;
    }
    // 1. The gates and the cell state before its norm, once more.
    const V sum = Gates(row);
    const C c_rstd = CentreRow(c_hat_ + row.state, units_, sum, epsilon_);
    // 2. The gradients of ō and of the cell state, behind its norm.
    const GradMeans<C> of_c = OutputGrads(row, c_rstd);
    // 3. Those of the other gates.
    GradSums<C> of_x;
    GradSums<C> of_h;
    GateGrads(row, c_rstd, of_c, b * width_, &of_x, &of_h);
    // 4. Those before the norms.
    const T* const rstd = args_.rstd + 2 * saved;
    NormGradRow<T>({GammaX(), row.x_hat, static_cast<C>(rstd[0])}, row.dz,
                   of_x.Means(width_), width_, row.d_sx);
    NormGradRow<T>({GammaH(), row.h_hat, static_cast<C>(rstd[1])}, row.dz,
                   of_h.Means(width_), width_, row.dz);
  }

  // Gates to row.dz, in their order, and c to c_hat_. Returns the lanes' sums
  // of c.
  EIGEN_DONT_INLINE V Gates(const Row& row) const {
    const LstmGateLayout& at = args_.layout;
    V sum(0);
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const auto bar = [&](int gate) {
        const int64_t n = gate * units_ + j;
        const V of_x =
            MulAdd(Load<C>(row.x_hat + n, lanes), Load<C>(GammaX() + n, lanes),
                   Load<C>(Bias() + n, lanes));
        return MulAdd(Load<C>(row.h_hat + n, lanes),
                      Load<C>(GammaH() + n, lanes), of_x);
      };
      const auto out = LayerNormLstmForward<StandardActivations>(
          LstmPreActivations<V>{bar(at.i), bar(at.ci), bar(at.f), bar(at.o)},
          Load<C>(row.cs_prev + j, lanes));
      Store(row.dz + at.i * units_ + j, out.i, lanes);
      Store(row.dz + at.ci * units_ + j, out.ci, lanes);
      Store(row.dz + at.f * units_ + j, out.f, lanes);
      Store(row.dz + at.o * units_ + j, out.o, lanes);
      Store(c_hat_ + row.state + j, out.c, lanes);
      sum = sum + ZeroOtherLanes(out.c, lanes);
    });
    return sum;
  }

  // From the deviations of c: c_hat_, gamma_c ∘ dn, and do in row.dz.
  EIGEN_DONT_INLINE GradMeans<C> OutputGrads(const Row& row, C rstd) const {
    const V rstd_v(rstd);
    C* const o = row.dz + args_.layout.o * units_;
    GradSums<C> sums;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const int64_t state = row.state + j;
      const V gamma = Load<C>(GammaC() + j, lanes);
      const V hat = Load<C>(c_hat_ + state, lanes) * rstd_v;
      const V cs = MulAdd(hat, gamma, Load<C>(BetaC() + j, lanes));
      V cs_grad = Load<C>(cs_grad_ + state, lanes);
      if (row.cs_grad != nullptr) {
        cs_grad = cs_grad + Load<C>(row.cs_grad + j, lanes);
      }
      if (args_.norm_output_only) {
        Store(cs_grad_ + state, cs_grad, lanes);
        cs_grad = V(0);
      }
      const LayerNormLstmOutputGrad<V> out =
          LayerNormLstmOutputBackward(Load<C>(o + j, lanes), Tanh(cs), cs_grad,
                                      Load<C>(row.d_h + j, lanes));
      const V g = gamma * out.dn;
      // All of h_prev's gradient comes through h · w_h.
      Store(row.d_h + j, V(0), lanes);
      Store(o + j, out.d_o, lanes);
      Store(c_hat_ + state, hat, lanes);
      Store(c_grad_ + state, g, lanes);
      AddTo(c_sums_ + state, out.dn * hat, lanes);
      AddTo(cs_sums_ + state, out.dn, lanes);
      sums.Add(g, hat);
    });
    return sums.Means(units_);
  }

  // The gates' gradients in row.dz, what they add to the gradients of gammas
  // and biases, and the sums for the gradients of the norms.
  EIGEN_DONT_INLINE void GateGrads(const Row& row, C c_rstd,
                                   const GradMeans<C>& of_c, int64_t sums,
                                   GradSums<C>* of_x, GradSums<C>* of_h) const {
    const LstmGateLayout& at = args_.layout;
    const V rstd(c_rstd);
    const V mean_g(of_c.g);
    const V mean_g_hat(of_c.g_s_hat);
    GradSums<C> x;
    GradSums<C> h;
    ForEachVector<C>(units_, [&](int64_t j, auto lanes) {
      const int64_t state = row.state + j;
      const auto gate = [&](int n) {
        return Load<C>(row.dz + n * units_ + j, lanes);
      };
      V dc = LayerNormBackward(Load<C>(c_grad_ + state, lanes),
                               Load<C>(c_hat_ + state, lanes), mean_g,
                               mean_g_hat, rstd);
      if (args_.norm_output_only) dc = dc + Load<C>(cs_grad_ + state, lanes);
      const LayerNormLstmGateGrad<V> out =
          LayerNormLstmGateBackward(gate(at.i), gate(at.f), gate(at.ci),
                                    Load<C>(row.cs_prev + j, lanes), dc);
      Store(cs_grad_ + state, out.cs_prev_grad, lanes);
      const auto add = [&](int which, const V& dz) {
        const int64_t n = which * units_ + j;
        const V x_hat = Load<C>(row.x_hat + n, lanes);
        const V h_hat = Load<C>(row.h_hat + n, lanes);
        Store(row.dz + n, dz, lanes);
        AddTo(z_sums_ + sums + n, dz, lanes);
        AddTo(x_sums_ + sums + n, dz * x_hat, lanes);
        AddTo(h_sums_ + sums + n, dz * h_hat, lanes);
        x.Add(Load<C>(GammaX() + n, lanes) * dz, x_hat);
        h.Add(Load<C>(GammaH() + n, lanes) * dz, h_hat);
      };
      const V d_o = gate(at.o);
      add(at.i, out.di);
      add(at.ci, out.dci);
      add(at.f, out.df);
      add(at.o, d_o);
    });
    *of_x = x;
    *of_h = h;
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const int64_t width_;  // 4H
  const C epsilon_;
  const WeightGrad<T> w_x_grad_;  // [I, 4H]
  C* const weights_;              // gamma_x, gamma_h, the biases: [4H] each,
                                  // then gamma_c and beta_c: [H] each
  C* const d_sx_;                 // [block rows, 4H], of x · w_x
  C* const cs_grad_;              // [B, H], from the next step
  C* const c_hat_;                // [B, H], c, its deviations, c_hat
  C* const c_grad_;               // [B, H], gamma_c ∘ dn
  C* const z_sums_;               // [B, 4H], Σ dz: of the biases
  C* const x_sums_;               // [B, 4H], Σ dz ∘ x_hat: of gamma_x
  C* const h_sums_;               // [B, 4H], Σ dz ∘ h_hat: of gamma_h
  C* const c_sums_;               // [B, H], Σ dn ∘ c_hat: of gamma_c
  C* const cs_sums_;              // [B, H], Σ dn: of beta_c
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LAYER_NORM_LSTM_BACKWARD_H_
