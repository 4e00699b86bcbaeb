// Implements zoneout on the GPU: units of a state that a step leaves as they
// were before it, by draws, or without them the mean of that.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_ZONEOUT_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_ZONEOUT_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"

namespace blockrnn::cuda {

// The share of the state before a step in the one after it, at an element of
// [steps, batch, width]: 1 or 0 with draws, 0 without zoneout.
template <class C>
__device__ __forceinline__ C KeptShare(const Zoneout& zoneout, int64_t at) {
  if (zoneout.kept != nullptr) return C(zoneout.kept[at] != 0 ? 1 : 0);
  return static_cast<C>(zoneout.rate);
}

// The state after a step that is not masked. before(): the one before it.
template <class C, class Before>
__device__ __forceinline__ C AfterZoneout(const Zoneout& zoneout, int64_t at,
                                          const Before& before, C value) {
  // A choice, since what is not kept may be infinite.
  if (zoneout.kept != nullptr) return zoneout.kept[at] != 0 ? before() : value;
  if (zoneout.rate == 0) return value;
  const C share = KeptShare<C>(zoneout, at);
  return share * before() + (C(1) - share) * value;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_ZONEOUT_CUH_
