// Implements what cells with layer normalisation share in the forward pass:
// sums over a row, packed weights, x · w_x and h · w_h, and the norms of both
// over all gates of a row. The equations are in cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_FORWARD_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

// A row is summed by one thread, in an order that follows from its size alone.

// Zeros in the lanes past those of a vector's count.
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> ZeroOtherLanes(const Vec<C>& v, AllLanes) {
  return v;
}
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> ZeroOtherLanes(const Vec<C>& v, FirstLanes lanes) {
  C all[Vec<C>::kSize];
  Store(all, v);
  return Load<C>(all, lanes);
}

// The sum of some vectors, and that of their lanes: a fixed tree.
template <class C>
EIGEN_ALWAYS_INLINE C SumAll(const std::array<Vec<C>, 4>& sums) {
  return SumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
template <class C>
EIGEN_ALWAYS_INLINE C SumAll(const std::array<Vec<C>, 3>& sums) {
  return SumLanes((sums[0] + sums[1]) + sums[2]);
}

// 1 / √(variance + epsilon), given the sum of squares of `count` deviations.
template <class C>
EIGEN_ALWAYS_INLINE C ReciprocalDeviation(C squares, int64_t count, C epsilon) {
  return C(1) / std::sqrt(squares / static_cast<C>(count) + epsilon);
}

// A row of sums in the form of panels, [panels, gates, units of a panel].
template <class C, int kGates>
class PanelRows {
 public:
  using V = Vec<C>;
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  static constexpr int64_t kWidth = kPanelWidth<C, kGates>;

  explicit PanelRows(int64_t units)
      : units_(units), panels_(CeilDiv(units, kUnits)) {}

  int64_t width() const { return panels_ * kWidth; }

  // f(unit, its place in a panel's gate 0, lanes) for vectors of units; that of
  // gate n is n · kUnits further on.
  template <class F>
  EIGEN_ALWAYS_INLINE void ForEach(const F& f) const {
    int64_t unit = 0;
    int64_t at = 0;
    for (; unit + kUnits <= units_; unit += kUnits, at += kWidth) {
      BLOCKRNN_UNROLL
      for (int64_t j = 0; j < kUnits; j += V::kSize) {
        f(unit + j, at + j, AllLanes());
      }
    }
    if (unit == units_) return;
    ForEachVector<C>(units_ - unit, [&](int64_t j, auto lanes) {
      f(unit + j, at + j, lanes);
    });
  }

  // Subtracts from row[width] its mean, and returns the reciprocal deviation.
  C Centre(C* row, C epsilon) const {
    const int64_t count = kGates * units_;
    const C mean = SumOf([&](int64_t at, auto lanes) {
                     return Load<C>(row + at, lanes);
                   }) /
                   static_cast<C>(count);
    const V mean_v(mean);
    const C squares = SumOf([&](int64_t at, auto lanes) {
      const V centred =
          ZeroOtherLanes(Load<C>(row + at, lanes) - mean_v, lanes);
      Store(row + at, centred, lanes);
      return centred * centred;
    });
    return ReciprocalDeviation(squares, count, epsilon);
  }

 private:
  // Σ value(place, lanes), a sum for each gate first.
  template <class Value>
  EIGEN_ALWAYS_INLINE C SumOf(const Value& value) const {
    // In registers: no address of theirs is taken in the loop.
    V sums[kGates];
    BLOCKRNN_UNROLL
    for (int gate = 0; gate < kGates; ++gate) sums[gate] = V(0);
    int64_t unit = 0;
    int64_t at = 0;
    for (; unit + kUnits <= units_; unit += kUnits, at += kWidth) {
      BLOCKRNN_UNROLL
      for (int64_t j = 0; j < kUnits; j += V::kSize) {
        BLOCKRNN_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          sums[gate] = sums[gate] + value(at + gate * kUnits + j, AllLanes());
        }
      }
    }
    if (unit < units_) {
      ForEachVector<C>(units_ - unit, [&](int64_t j, auto lanes) {
        BLOCKRNN_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          sums[gate] = sums[gate] + value(at + gate * kUnits + j, lanes);
        }
      });
    }
    std::array<V, kGates> all;
    BLOCKRNN_UNROLL
    for (int gate = 0; gate < kGates; ++gate) all[gate] = sums[gate];
    return SumAll<C>(all);
  }

  const int64_t units_;
  const int64_t panels_;
};

// The same for row[count], without gates, given the lanes' sums of it.
template <class C>
C CentreRow(C* row, int64_t count, const Vec<C>& sum, C epsilon) {
  using V = Vec<C>;
  const V mean(SumLanes(sum) / static_cast<C>(count));
  V squares(0);
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    const V centred = ZeroOtherLanes(Load<C>(row + j, lanes) - mean, lanes);
    Store(row + j, centred, lanes);
    squares = squares + centred * centred;
  });
  return ReciprocalDeviation(SumLanes(squares), count, epsilon);
}

// The weights of a cell: matrices in panels of elements P, vectors of the gates
// in the form of a row of sums (PanelRows).
template <class StorageType, class CellArgs, int kNumGates, class Element>
struct LayerNormPanels : GatePanels<StorageType, kNumGates, false, Element> {
  using T = StorageType;
  using P = Element;
  using Args = CellArgs;
  using C = ComputeType<T>;
  using Rows = PanelRows<C, kNumGates>;
  static constexpr int kGates = kNumGates;

  // offset(column): what is added to gamma_x ∘ x_hat, since biases are added
  // behind the norm.
  template <class Offset>
  LayerNormPanels(const Args& args, PanelMemory* memory, const Packing& packing,
                  const Offset& offset)
      : GatePanels<T, kGates, false, P>(args, nullptr, nullptr,
                                        args.shape.units, memory, packing),
        rows(args.shape.units) {
    C* const packed = memory->Take<C>(3 * rows.width());
    if (packed == nullptr) return;
    gamma_x = packed;
    gamma_h = packed + rows.width();
    bias = packed + 2 * rows.width();
    if (memory->frozen()) return;
    std::fill(packed, packed + 3 * rows.width(), C(0));
    const int64_t units = args.shape.units;
    for (int gate = 0; gate < kGates; ++gate) {
      for (int64_t unit = 0; unit < units; ++unit) {
        const int64_t from = gate * units + unit;
        C* const to = packed + unit / Rows::kUnits * Rows::kWidth +
                      gate * Rows::kUnits + unit % Rows::kUnits;
        to[0] = static_cast<C>(args.gamma_x[from]);
        to[rows.width()] = static_cast<C>(args.gamma_h[from]);
        to[2 * rows.width()] = offset(from);
      }
    }
  }

  const Rows rows;
  const C* gamma_x = nullptr;  // [rows.width()]
  const C* gamma_h = nullptr;  // [rows.width()]
  const C* bias = nullptr;     // [rows.width()], the offset
};

// Before the steps of a block:  x · w_x
// Stage 0:  h · w_h, a tile at a time
// Stage 1:  a row at a time, the deviations of both from the mean of the row,
// and
//           their reciprocal standard deviations; the rest is the cell's
// The base of a cell whose weights are CellPanels, a LayerNormPanels.
template <class CellPanels>
class NormalizedForward : public ForwardCell<typename CellPanels::T> {
 public:
  using Panels = CellPanels;
  using T = typename Panels::T;
  using P = typename Panels::P;
  using Args = typename Panels::Args;
  using C = typename Panels::C;
  using V = Vec<C>;
  using Rows = typename Panels::Rows;
  static constexpr int kGates = Panels::kGates;
  static constexpr bool kMayFuseInput = false;
  static constexpr bool kInPlace = true;
  using Context = ForwardContext<T, kGates>;

  static ForwardShape Shape(const Args& args) {
    const int64_t units = args.shape.units;
    return {units, 2, static_cast<double>(kGates * units), kGates};
  }

  NormalizedForward(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        packed_(args, context.panels, context.packing),
        epsilon_(static_cast<C>(args.epsilon)),
        x_(context, packed_.x, units_),
        state_rows_(context.scratch, MostStepWorkers(context.executor),
                    args.shape.batch, units_),
        sums_(context.scratch->template Array<C>(args.shape.batch *
                                                 packed_.rows.width())) {}

  Status BeginBlock(const StepBlock& block) {
    return x_.BeginBlock(block, args_.x);
  }

  // Where no step was.
  void Finish() const {
    // What is saved in steps has no padding: there is no mask then.
    if (args_.shape.saved_in_steps) return;
    const SequenceRows& rows = context_.rows;
    const int64_t width = kGates * units_;
    ZeroUnused(context_.executor, rows, args_.x_hat, width, width);
    ZeroUnused(context_.executor, rows, args_.h_hat, width, width);
    ZeroUnused(context_.executor, rows, args_.rstd, 2, 2);
  }

 protected:
  // The numbers of a row of a step.
  struct Row {
    // x · w_x and h · w_h less their means, in panels; their reciprocal
    // deviations; and where they are saved, [gates · H], or nullptr.
    const C* x;
    C x_rstd;
    T* x_hat;
    const C* h;
    C h_rstd;
    T* h_hat;
  };

  // A step; cells(row of the batch, its numbers or nullptr where it is masked)
  // does the rest.
  template <class Cells>
  void Step(int64_t step, int stage, Share share, Range rows,
            const Cells& cells) const {
    if (stage == 0) {
      MultiplyPacked(state_rows_(context_.h.Operand(step), rows, share.piece),
                     packed_.w_h, share.RangeOf(packed_.w_h.panels()), rows,
                     share.piece, BeginAtZero(),
                     [&](const GateTile<C>& tile) { StoreSums(tile); });
      return;
    }
    const Range own = share.PartOf(rows);
    for (int64_t b = own.begin; b < own.end; ++b) {
      if (context_.rows.IsMasked(step, b)) {
        Masked(step, b);
        cells(b, nullptr);
        context_.h.Carry(step, {b, 0, units_});
      } else {
        const Row row = Normalize(step, b);
        cells(b, &row);
        context_.h.Finish(step, {b, 0, units_});
      }
    }
  }

  // gamma_x ∘ x_hat + bias of a gate, and gamma_h ∘ h_hat + `more`, at a place
  // that PanelRows::ForEach gives. They save x_hat and h_hat.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V OfInput(const Row& row, int gate, int64_t unit,
                                int64_t at, Lanes lanes) const {
    const int64_t n = at + gate * kUnits;
    const V hat = Load<C>(row.x + n, lanes) * V(row.x_rstd);
    StoreIf(row.x_hat, gate * units_ + unit, hat, lanes);
    return MulAdd(hat, Load<C>(packed_.gamma_x + n, lanes),
                  Load<C>(packed_.bias + n, lanes));
  }
  template <class Lanes>
  EIGEN_ALWAYS_INLINE V OfState(const Row& row, int gate, int64_t unit,
                                int64_t at, const V& more, Lanes lanes) const {
    const int64_t n = at + gate * kUnits;
    const V hat = Load<C>(row.h + n, lanes) * V(row.h_rstd);
    StoreIf(row.h_hat, gate * units_ + unit, hat, lanes);
    return MulAdd(hat, Load<C>(packed_.gamma_h + n, lanes), more);
  }

  // nullptr where the array is not wanted.
  T* SavedRow(T* p, int64_t step, int64_t b, int64_t width) const {
    return RowPointer(p, context_.rows.SavedRow(step, b), width);
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const Panels packed_;
  const C epsilon_;

 private:
  static constexpr int64_t kUnits = Rows::kUnits;
  static constexpr int64_t kWidth = Rows::kWidth;

  // Of a row that is not masked.
  Row Normalize(int64_t step, int64_t b) const {
    C* const x = x_.StartRow(x_.FirstRow(step) + b);
    C* const h = SumsRow(b);
    const C x_rstd = packed_.rows.Centre(x, epsilon_);
    const C h_rstd = packed_.rows.Centre(h, epsilon_);
    if (T* const saved = SavedRow(args_.rstd, step, b, 2)) {
      saved[0] = static_cast<T>(x_rstd);
      saved[1] = static_cast<T>(h_rstd);
    }
    const int64_t width = kGates * units_;
    return {x, x_rstd, SavedRow(args_.x_hat, step, b, width),
            h, h_rstd, SavedRow(args_.h_hat, step, b, width)};
  }

  // A masked step has no sums.
  void Masked(int64_t step, int64_t b) const {
    const int64_t width = kGates * units_;
    for (T* hat : {args_.x_hat, args_.h_hat}) {
      if (hat != nullptr) ZeroRow(width, SavedRow(hat, step, b, width));
    }
    if (args_.rstd != nullptr) ZeroRow(2, SavedRow(args_.rstd, step, b, 2));
  }

  void StoreSums(const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      C* const to = SumsRow(run.row) + run.unit / kUnits * kWidth;
      for (int gate = 0; gate < kGates; ++gate) {
        CopyRow(run.gates + gate * run.gate_stride, run.count,
                to + gate * kUnits);
      }
    });
  }

  C* SumsRow(int64_t b) const { return sums_ + b * packed_.rows.width(); }

  InputGemm<T, kGates, false, P> x_;
  const StepRows<T, P> state_rows_;
  C* const sums_;  // [B, panels, gates, units of a panel], h · w_h, then its
                   // deviations
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_NORMALIZED_FORWARD_H_
