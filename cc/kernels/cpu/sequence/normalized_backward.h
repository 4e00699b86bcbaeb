// Implements what cells with layer normalisation share in the backward pass:
// the gradients before the norms of x · w_x and h · w_h, and those of their
// weights. The equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_BACKWARD_H_

#include <array>
#include <cstdint>

#include "cc/core/layer_norm.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

// Means over a row, for LayerNormBackward: of g and of g ∘ s_hat.
template <class C>
struct GradMeans {
  C g;
  C g_s_hat;
};

template <class C>
struct GradSums {
  using V = Vec<C>;

  V g{0};
  V g_s_hat{0};

  EIGEN_ALWAYS_INLINE void Add(const V& of_g, const V& s_hat) {
    g = g + of_g;
    g_s_hat = MulAdd(of_g, s_hat, g_s_hat);
  }
  EIGEN_ALWAYS_INLINE GradMeans<C> Means(int64_t count) const {
    const auto n = static_cast<C>(count);
    return {SumLanes(g) / n, SumLanes(g_s_hat) / n};
  }
};

// What a norm over a row had, [width] each.
template <class T>
struct RowNorm {
  using C = ComputeType<T>;

  const C* gamma;
  const T* hat;
  C rstd;
};

// out = the gradient before the norm, d[width] being that behind it and `means`
// those of g = gamma ∘ d. out may be d.
template <class T, class C = ComputeType<T>>
EIGEN_DONT_INLINE void NormGradRow(const RowNorm<T>& norm, const C* d,
                                   const GradMeans<C>& means, int64_t width,
                                   C* out) {
  using V = Vec<C>;
  ForEachVector<C>(width, [&](int64_t j, auto lanes) {
    const V g = Load<C>(norm.gamma + j, lanes) * Load<C>(d + j, lanes);
    Store(out + j,
          LayerNormBackward(g, Load<C>(norm.hat + j, lanes), V(means.g),
                            V(means.g_s_hat), V(norm.rstd)),
          lanes);
  });
}

// A sum for each row of the batch, so that rows are independent.
template <class C, class Lanes>
EIGEN_ALWAYS_INLINE void AddTo(C* sum, const Vec<C>& v, Lanes lanes) {
  Store(sum, Load<C>(sum, lanes) + v, lanes);
}

// Stage 0:  dz · w_hᵀ of the next step  →  d_h, a tile at a time
// Stage 1:  d_h  →  the gradients behind the norms, which are the cell's, and
//           from them those before the norms, of h · w_h (dz) and of x · w_x, a
//           row at a time
// The base of a cell.
template <class StorageType, class CellArgs, int kNumGates>
class NormalizedBackward : public BackwardCell<StorageType> {
 public:
  using T = StorageType;
  using Args = CellArgs;
  using C = ComputeType<T>;
  using V = Vec<C>;
  static constexpr int kGates = kNumGates;
  using Context = BackwardContext<T, kGates>;

  static BackwardShape<T> Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units, 2, static_cast<double>(kGates * units), args.w_h,
            args.w_h_grad};
  }

  NormalizedBackward(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        width_(kGates * units_),
        w_x_grad_(context.scratch, args.shape, args.w_x_grad, width_),
        gamma_x_(Array(width_)),
        gamma_h_(Array(width_)),
        bias_(Array(width_)),
        d_sx_(Array(context.rows.MaxRowsInBlock() * width_)),
        sums_(Array(args.shape.batch * width_)),
        gamma_x_sums_(Array(args.shape.batch * width_)),
        gamma_h_sums_(Array(args.shape.batch * width_)) {}

  // Adds a tile of dz · w_hᵀ and h_grad to the gradient of the state, of which
  // a masked step is to change nothing.
  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      C* const d_h = context_.d_h + run.row * units_ + run.unit;
      const T* const more = RowPointer(
          args_.h_grad, context_.rows.MemoryRow(step, run.row), context_.ld_h);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V sum = Load<C>(run.gates + j, lanes);
        if (more != nullptr) sum = sum + Load<C>(more + run.unit + j, lanes);
        Store(d_h + j, sum + Load<C>(d_h + j, lanes), lanes);
      });
    });
  }

  std::array<InputGradPart<T>, 1> InputParts() const {
    return {
        InputGradOf(args_.shape, args_.w_x, d_sx_, kGates, w_x_grad_.sums())};
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
  }

 protected:
  // Where a row of a step has its numbers.
  struct Row {
    const T* x_hat;  // [G · H]
    const T* h_hat;  // [G · H]
    const T* rstd;   // [2], of x and of h
    C* d_h;          // [H]
    C* dz;           // [G · H], of h · w_h: behind the norm, then before it
    C* d_sx;         // [G · H], of x · w_x
    int64_t b;
  };

  // Sums over a row, for the gradients before both norms.
  struct RowSums {
    GradSums<C> x;
    GradSums<C> h;
  };

  // offset(column): what the forward pass adds to gamma_x ∘ x_hat.
  template <class Offset>
  void Begin(const Offset& offset) const {
    for (C* sums : {sums_, gamma_x_sums_, gamma_h_sums_}) {
      ZeroRow(args_.shape.batch * width_, sums);
    }
    CopyRow(args_.gamma_x, width_, gamma_x_);
    CopyRow(args_.gamma_h, width_, gamma_h_);
    for (int64_t n = 0; n < width_; ++n) bias_[n] = offset(n);
  }

  // f(row, whether it is masked) for a share of the rows of a step. The
  // gradients of a masked one are zeros.
  template <class F>
  void ForEachRow(int64_t step, Share share, Range rows, const F& f) const {
    const Range own = share.PartOf(rows);
    for (int64_t b = own.begin; b < own.end; ++b) {
      const int64_t saved = context_.rows.SavedRow(step, b);
      const int64_t block = context_.operands.FirstRow(step) + b;
      const Row row = {args_.x_hat + saved * width_,
                       args_.h_hat + saved * width_,
                       args_.rstd + 2 * saved,
                       context_.d_h + b * units_,
                       context_.dz.Step(step) + b * width_,
                       d_sx_ + block * width_,
                       b};
      const bool masked = context_.rows.IsMasked(step, b);
      if (masked) {
        ZeroRow(width_, row.dz);
        ZeroRow(width_, row.d_sx);
      }
      f(row, masked);
    }
  }

  // gamma_x ∘ x_hat + offset, and gamma_h ∘ h_hat + `more`, of a column.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V OfInput(const Row& row, int64_t n, Lanes lanes) const {
    return MulAdd(Load<C>(row.x_hat + n, lanes), Load<C>(gamma_x_ + n, lanes),
                  Load<C>(bias_ + n, lanes));
  }
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V OfState(const Row& row, int64_t n, const V& more,
                                Lanes lanes) const {
    return MulAdd(Load<C>(row.h_hat + n, lanes), Load<C>(gamma_h_ + n, lanes),
                  more);
  }

  // What the gradients behind the norms of a column add to those of gammas and
  // biases, and to the sums.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE void Add(const Row& row, int64_t n, const V& d_x,
                               const V& d_h, Lanes lanes, RowSums* sums) const {
    const int64_t sum = row.b * width_ + n;
    const V x_hat = Load<C>(row.x_hat + n, lanes);
    const V h_hat = Load<C>(row.h_hat + n, lanes);
    AddTo(sums_ + sum, d_x, lanes);
    AddTo(gamma_x_sums_ + sum, d_x * x_hat, lanes);
    AddTo(gamma_h_sums_ + sum, d_h * h_hat, lanes);
    sums->x.Add(Load<C>(gamma_x_ + n, lanes) * d_x, x_hat);
    sums->h.Add(Load<C>(gamma_h_ + n, lanes) * d_h, h_hat);
  }

  // The gradients before the norms, from d_x[G · H] and row.dz behind them.
  void BeforeNorms(const Row& row, const C* d_x, const RowSums& sums) const {
    NormGradRow<T>({gamma_x_, row.x_hat, static_cast<C>(row.rstd[0])}, d_x,
                   sums.x.Means(width_), width_, row.d_sx);
    NormGradRow<T>({gamma_h_, row.h_hat, static_cast<C>(row.rstd[1])}, row.dz,
                   sums.h.Means(width_), width_, row.dz);
  }

  // The gradients of the gammas, and of beta_x.
  void Finish() const {
    const int64_t batch = args_.shape.batch;
    SumRows(sums_, batch, width_, args_.beta_x_grad);
    SumRows(gamma_x_sums_, batch, width_, args_.gamma_x_grad);
    SumRows(gamma_h_sums_, batch, width_, args_.gamma_h_grad);
  }

  C* Array(int64_t count) const {
    return context_.scratch->template Array<C>(count);
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;

 private:
  const int64_t width_;           // G · H
  const WeightGrad<T> w_x_grad_;  // [I, G · H]
  C* const gamma_x_;              // [G · H]
  C* const gamma_h_;              // [G · H]
  C* const bias_;                 // [G · H], the offset
  C* const d_sx_;                 // [block rows, G · H]
  C* const sums_;                 // [B, G · H], Σ d_x: of beta_x
  C* const gamma_x_sums_;         // [B, G · H], Σ d_x ∘ x_hat
  C* const gamma_h_sums_;         // [B, G · H], Σ d_h ∘ h_hat
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_BACKWARD_H_
