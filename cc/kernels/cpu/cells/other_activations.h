// Chooses the activations of a forward cell: those of the engine, or others
// that a call has in their place (cc/core/activations.h).

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_OTHER_ACTIVATIONS_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_OTHER_ACTIVATIONS_H_

#include <type_traits>

#include "cc/core/activations.h"
#include "cc/kernels/cpu/gemm/simd.h"

namespace blockrnn::cpu {

template <class Activations>
inline constexpr bool kIsOthers =
    std::is_same_v<Activations, OtherActivations<Vec<float>>>;

// Whether calls may have others: epilogues are compiled once more for them, out
// of line and in engine_f32.cc alone, and GEMMs are not. Epilogues branch to
// them with EIGEN_PREDICT_FALSE: the compiler would keep registers free for
// that call in GEMMs of int8, which took 4% longer.
template <class T, class Activations>
inline constexpr bool kMayHaveOthers =
    std::conjunction_v<std::is_same<T, float>,
                       std::is_same<Activations, StandardActivations>>;

template <class Activations, class Args>
EIGEN_ALWAYS_INLINE Activations ActivationsOf(const Args& args) {
  if constexpr (kIsOthers<Activations>) {
    return {args.activations};
  } else {
    return {};
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_OTHER_ACTIVATIONS_H_
