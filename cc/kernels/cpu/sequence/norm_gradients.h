// Implements what cells with layer normalisation share in the backward pass:
// the gradients before a norm, and sums for each row of the batch. The
// equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_NORM_GRADIENTS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_NORM_GRADIENTS_H_

#include <cstdint>

#include "cc/core/layer_norm.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"

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

// The first stage of a step: adds a tile of dz · w_hᵀ and h_grad to the
// gradient of the state, context.d_h, of which a masked step is to change
// nothing.
template <class T, int kGates>
void AddStateGrads(const BackwardContext<T, kGates>& context, const T* h_grad,
                   int64_t units, int64_t step,
                   const GateTile<ComputeType<T>>& tile) {
  using C = ComputeType<T>;
  tile.ForEachRow([&](const GateRun<C>& run) {
    C* const d_h = context.d_h + run.row * units + run.unit;
    const T* const more =
        RowPointer(h_grad, context.rows.MemoryRow(step, run.row), context.ld_h);
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      Vec<C> sum = Load<C>(run.gates + j, lanes);
      if (more != nullptr) sum = sum + Load<C>(more + run.unit + j, lanes);
      Store(d_h + j, sum + Load<C>(d_h + j, lanes), lanes);
    });
  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_NORM_GRADIENTS_H_
