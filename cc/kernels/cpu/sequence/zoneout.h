// Implements zoneout: units of a state that a step leaves as they were before
// it, by draws, or without them the mean of that (Krueger et al. 2016,
// arXiv:1606.01305).

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_ZONEOUT_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_ZONEOUT_H_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"

namespace blockrnn::cpu {

// The zoneout of one state of a call, or none. Its steps are never masked ones.
template <class C>
class StateZoneout {
 public:
  using V = Vec<C>;

  StateZoneout(const SequenceRows& rows, const Zoneout& zoneout, int64_t width)
      : rows_(rows),
        kept_(zoneout.kept),
        rate_(static_cast<C>(zoneout.rate)),
        width_(width),
        used_(static_cast<bool>(zoneout)) {}

  explicit operator bool() const { return used_; }

  // Some units of a row: `after` is the new state, and becomes the one that
  // the step ends with.
  void Apply(int64_t step, int64_t b, int64_t unit, int64_t count,
             const C* before, C* after) const {
    const bool drawn = kept_ != nullptr;
    ForEachVector<C>(count, [&](int64_t j, auto lanes) {
      const V kept = Kept(step, b, unit + j, lanes);
      const V from = Load<C>(before + j, lanes);
      const V to = Load<C>(after + j, lanes);
      // A choice, since what is not kept may be infinite.
      Store(after + j,
            drawn ? WherePositive(kept, from, to)
                  : MulAdd(kept, from, (V(1) - kept) * to),
            lanes);
    });
  }

  // The share of the state before in the state after, which is 1 or 0 with
  // draws, and 0 without zoneout.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V Kept(int64_t step, int64_t b, int64_t unit,
                             Lanes lanes) const {
    if (kept_ == nullptr) return V(rate_);
    const uint8_t* const kept =
        kept_ + rows_.MemoryRow(step, b) * width_ + unit;
    alignas(64) C values[V::kSize] = {};
    for (int lane = 0; lane < CountOf(lanes); ++lane) {
      values[lane] = kept[lane] != 0 ? C(1) : C(0);
    }
    return Load<C>(values);
  }

 private:
  static constexpr int CountOf(AllLanes) { return V::kSize; }
  static constexpr int CountOf(FirstLanes lanes) { return lanes.n; }

  const SequenceRows& rows_;
  const uint8_t* const kept_;  // [steps, batch, width], or nullptr
  const C rate_;
  const int64_t width_;
  const bool used_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ZONEOUT_H_
