// Defines where a call reads its weights: packed before its first step, packed
// just before the GEMM of its only step, or in place.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_WEIGHT_USE_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_WEIGHT_USE_H_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Whether a loop of so many steps and rows streams all weights, those too whose
// sums then have other bits.
inline bool StreamsWeights(int64_t steps, int64_t rows) {
  return rows <= internal::kStreamTileRows && steps < Blocking::kStepsToPack;
}

// Whether it streams weights whose sums have the same bits packed.
inline bool StreamsPlainWeights(int64_t steps, int64_t rows) {
  return StreamsWeights(steps, rows) ||
         (steps < Blocking::kStepsToPack && rows <= Blocking::kStreamRows &&
          steps * rows <= Tuning::kMostRowsToStream);
}

// Where the weights of a step are read.
enum class WeightUse {
  kPacked,    // in panels that are packed before the first step
  kOnce,      // in panels, a few at a time, packed just before the GEMM
  kStreamed,  // in place
};

// The sums have the same bits either way, but for transposed weights, which are
// streamed as dot products, and for pairs of bfloat16, to which rows are
// rounded where they multiply panels: those are streamed where the shape of the
// call says so.
struct WeightUses {
  WeightUse plain = WeightUse::kPacked;
  WeightUse transposed = WeightUse::kPacked;
};

// Whether a loop uses weights once, which are not frozen. Workers that share
// the rows each need all weights, so they are packed for all of them before.
inline bool UsesWeightsOnce(int64_t steps, StepSplit split) {
  return steps == 1 && split != StepSplit::kRows;
}

// Those of weights of type T that are not frozen.
template <class T>
WeightUses UsesInCall(int64_t steps, int64_t rows, bool uses_once) {
  constexpr bool kSameBits = std::is_same_v<PanelElement<T>, ComputeType<T>>;
  const auto use = [&](bool streams) {
    if (streams) return WeightUse::kStreamed;
    return uses_once ? WeightUse::kOnce : WeightUse::kPacked;
  };
  const bool streams = StreamsWeights(steps, rows);
  const bool shares_rows = steps == 1 && !uses_once;
  return {use(kSameBits && !shares_rows ? StreamsPlainWeights(steps, rows)
                                        : streams),
          use(streams)};
}

// How a cell packs its weights.
struct Packing {
  WeightUses uses;
  bool uses_once = false;    // weights, in the only step
  bool has_dropout = false;  // the state's GEMM has rows for each gate
  bool fuses_input = true;  // or w_x is frozen; else the GEMM reads it in place

  WeightUses InputUses() const {
    if (!uses_once) return {};
    return {uses.plain, WeightUse::kOnce};
  }
  // Streamed weights multiply the same rows for all gates.
  WeightUses StateUses() const {
    return has_dropout && uses.plain != WeightUse::kOnce ? WeightUses() : uses;
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_WEIGHT_USE_H_
