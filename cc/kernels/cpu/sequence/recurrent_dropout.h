// Implements recurrent dropout: factors that multiply the state where it meets
// the recurrent weights, and nowhere else. Each gate has its own, and they are
// the same at all steps (Gal and Ghahramani 2016, arXiv:1512.05287). Without
// factors the classes here are the plain state, its weights, and nothing to
// add.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_RECURRENT_DROPOUT_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_RECURRENT_DROPOUT_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/scratch.h"

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
    return factors_ + (gate * rows_.batch() + rows_.BatchRow(b)) * width_;
  }

  const SequenceRows& rows_;
  const T* factors_;
  const int64_t width_;
};

// w_hᵀ, through which the gradient of a state comes:
//   Σ over gates of factors ∘ (d · w_hᵀ), d[rows, gates · H]
// without factors in one GEMM.
template <class T, int kGates>
class StateGradWeights {
 public:
  using C = ComputeType<T>;

  // w_t: of depth gates · H, and of factors.width() units.
  StateGradWeights(const Executor& executor, Scratch* scratch,
                   const SequenceRows& rows, const WeightView<T>& w_t,
                   int64_t units, const StateFactors<T>& factors)
      : rows_(rows), factors_(factors), units_(units) {
    const int64_t width = factors.width();
    if (!factors) {
      gates_[0].emplace(PanelMemory(executor, scratch), w_t, kAtZero,
                        kGates * units, width,
                        SumsOfCall(StreamsWeights(rows.steps(), rows.batch())));
      return;
    }
    for (int gate = 0; gate < kGates; ++gate) {
      gates_[gate].emplace(PanelMemory(executor, scratch),
                           w_t.From(gate * units), kAtZero, units, width);
    }
  }

  int64_t panels() const { return gates_[0]->panels(); }

  // The gradient that comes from the next step, whose d this is, then
  // epilogue(GateTile); rows without a next step get zeros.
  template <class Epilogue>
  void MultiplyNextStep(int64_t step, const C* d, Range panels, Range rows,
                        const Epilogue& epilogue) const {
    const Range active = rows_.ActiveRange(step + 1, rows);
    if (!factors_) {
      MultiplyPacked({{d, kGates * units_}}, *gates_[0], panels, active,
                     BeginAtZero(), epilogue);
    } else {
      MultiplyEachGate(d, panels, active, epilogue);
    }
    ZeroGemm(*gates_[0], panels, {std::max(active.end, rows.begin), rows.end},
             epilogue);
  }

  // The gradient of the initial state, which comes from the first step; d is
  // its.
  template <class Epilogue>
  void MultiplyFirstStep(const Executor& executor, const C* d,
                         const Epilogue& epilogue) const {
    const int64_t batch = rows_.batch();
    const auto depth = static_cast<double>(kGates * units_);
    const auto width = static_cast<double>(factors_.width());
    const auto rows = static_cast<double>(batch);
    const int pieces =
        WorkersWorth(executor, rows * depth * width, (rows + depth) * width);
    const bool over_rows = batch >= pieces * kTileRows;
    ParallelFor(executor, pieces, pieces, [&](int, int64_t piece) {
      const Share share = {static_cast<int>(piece), pieces};
      MultiplyNextStep(-1, d, (over_rows ? Share() : share).RangeOf(panels()),
                       (over_rows ? share : Share()).RangeOf(batch), epilogue);
    });
  }

 private:
  static constexpr int64_t kAtZero[1] = {0};
  static constexpr int64_t kUnits = kPanelUnits<C, 1>;

  template <class Epilogue>
  void MultiplyEachGate(const C* d, Range panels, Range rows,
                        const Epilogue& epilogue) const {
    alignas(64) C share[kTileRows * kUnits];
    alignas(64) C sums[kTileRows * kUnits];
    ForEachTile(panels, rows, [&](int64_t panel, int64_t row, int64_t size) {
      const int64_t unit = panel * kUnits;
      const int64_t count = std::min(kUnits, factors_.width() - unit);
      ZeroRow(kTileRows * kUnits, sums);
      for (int gate = 0; gate < kGates; ++gate) {
        const GateRows<C> d_gate = {{d + gate * units_, kGates * units_}};
        internal::MultiplyTile<1>(d_gate, *gates_[gate], panel, row, size,
                                  BeginAtZero(), share);
        for (int64_t r = 0; r < size; ++r) {
          factors_.MultiplyAdd(gate, row + r, unit, count, share + r * kUnits,
                               sums + r * kUnits);
        }
      }
      epilogue(GateTile<C>{size, kUnits, {row, unit, count, sums, kUnits}});
    });
  }

  const SequenceRows& rows_;
  const StateFactors<T>& factors_;
  const int64_t units_;  // H
  std::optional<PackedWeights<T, 1>> gates_[kGates];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_RECURRENT_DROPOUT_H_
