// Implements what acts on a state between steps.
//
// Recurrent dropout: factors that multiply the state where it meets the
// recurrent weights, and nowhere else. Each gate has its own, and they are the
// same at all steps (Gal and Ghahramani 2016, arXiv:1512.05287).
//
// Zoneout: units of a state that a step leaves as they were before it, by
// draws, or without them the mean of that (Krueger et al. 2016,
// arXiv:1606.01305).

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_STATE_DROPOUT_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_STATE_DROPOUT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"

namespace blockrnn::cpu {

// The factors of a call, [gates, B, width], or none.
template <class T>
class StateFactors {
 public:
  using C = ComputeType<T>;

  StateFactors(const SequenceRows& rows, const T* factors, int64_t width)
      : rows_(rows), factors_(factors), width_(width) {}

  explicit operator bool() const { return factors_ != nullptr; }

  // to[j] = from[j] · factor[j] for some units of a gate and row.
  template <class From>
  void Multiply(int gate, int64_t b, int64_t unit, int64_t count,
                const From* from, C* to) const {
    const T* factors = Row(gate, b) + unit;
    ForEachVector<C>(count, [&](int64_t j, auto lanes) {
      Store(to + j, Load<C>(from + j, lanes) * Load<C>(factors + j, lanes),
            lanes);
    });
  }
  // to[j] += the same.
  void MultiplyAdd(int gate, int64_t b, int64_t unit, int64_t count,
                   const C* from, C* to) const {
    const T* factors = Row(gate, b) + unit;
    ForEachVector<C>(count, [&](int64_t j, auto lanes) {
      Store(to + j,
            MulAdd(Load<C>(from + j, lanes), Load<C>(factors + j, lanes),
                   Load<C>(to + j, lanes)),
            lanes);
    });
  }
  // A vector of factors of a gate and row, from `unit` on; ones without
  // factors.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE Vec<C> Factors(int gate, int64_t b, int64_t unit,
                                     Lanes lanes) const {
    if (factors_ == nullptr) return Vec<C>(1);
    return Load<C>(Row(gate, b) + unit, lanes);
  }

  int64_t width() const { return width_; }

 private:
  const T* Row(int gate, int64_t b) const {
    return factors_ +
           (gate * rows_.memory_batch() + rows_.BatchRow(b)) * width_;
  }

  const SequenceRows& rows_;
  const T* factors_;
  const int64_t width_;
};

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

  // The draws of a row, [width]; nullptr without.
  const uint8_t* Draws(int64_t step, int64_t b) const {
    if (kept_ == nullptr) return nullptr;
    return kept_ + rows_.MemoryRow(step, b) * width_;
  }

  // The share of the state before in the state after, from `unit` on; 1 or 0
  // with draws, 0 without zoneout.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V Kept(const uint8_t* draws, int64_t unit,
                             Lanes lanes) const {
    return draws == nullptr ? V(rate_) : Drawn(draws + unit, lanes);
  }

  // Some units of a row: the state that the step ends with, from the one before
  // it and the new one, to `after`, which may be either, and to `output`, where
  // that is not nullptr.
  template <class T>
  void Apply(const uint8_t* draws, int64_t unit, int64_t count, const C* before,
             const C* now, C* after, T* output) const {
    ForEachVector<C>(count, [&](int64_t j, auto lanes) {
      const V kept = Kept(draws, unit + j, lanes);
      const V from = Load<C>(before + j, lanes);
      const V to = Load<C>(now + j, lanes);
      // A choice, since what is not kept may be infinite.
      const V out = draws == nullptr ? MulAdd(kept, from, (V(1) - kept) * to)
                                     : WherePositive(kept, from, to);
      Store(after + j, out, lanes);
      StoreIf(output, j, out, lanes);
    });
  }

 private:
  // GCC drops the attribute of such a type where `using` declares it.
  typedef uint8_t Bytes __attribute__((vector_size(V::kSize)));
  typedef C Values __attribute__((vector_size(V::kSize * sizeof(C))));

  // 1 where a byte is not 0.
  static EIGEN_ALWAYS_INLINE V Drawn(const uint8_t* draws, AllLanes) {
    Bytes bytes;
    std::memcpy(&bytes, draws, sizeof(bytes));
    const Bytes ones = reinterpret_cast<Bytes>(bytes != 0) & 1;
    const Values values = __builtin_convertvector(ones, Values);
    alignas(64) C shares[V::kSize];
    std::memcpy(shares, &values, sizeof(values));
    return Load<C>(shares);
  }
  static EIGEN_ALWAYS_INLINE V Drawn(const uint8_t* draws, FirstLanes lanes) {
    uint8_t all[V::kSize] = {};
    std::copy_n(draws, lanes.n, all);
    return Drawn(all, AllLanes());
  }

  const SequenceRows& rows_;
  const uint8_t* const kept_;  // [steps, batch, width], or nullptr
  const C rate_;
  const int64_t width_;
  const bool used_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_STATE_DROPOUT_H_
