// Owns dropout of the state within a sequence: factors by which the state is
// multiplied where it meets the recurrent weights, and nowhere else. Each gate
// has its own, and they are the same at all steps (Gal and Ghahramani 2016,
// arXiv:1512.05287). Without factors the classes here are what they stand for:
// the state, its weights, and nothing to add.

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
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"
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

  // to[j] = from[j] times the factors of a gate, row and units.
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
  // A vector of them, for a gate and row from `unit` on; ones without any.
  template <class Lanes>
  EIGEN_ALWAYS_INLINE Vec<C> At(int gate, int64_t b, int64_t unit,
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

// The state as the first product of a step reads it: as it is, or, with
// factors, a copy for each of the product's gates.
template <class T, int kGates>
class StateOperand {
 public:
  using C = ComputeType<T>;

  // Scratch::ok() tells whether there was memory.
  StateOperand(Scratch* scratch, const StateFactors<T>& factors, int64_t batch)
      : factors_(factors), size_(batch * factors.width()) {
    if (!factors) return;
    for (C*& copies : copies_) copies = scratch->Array<C>(kGates * size_);
  }

  // What `step` reads, whose state is h[B, width].
  GateRows<C> Of(int64_t step, const C* h) const {
    if (!factors_) return {{h, factors_.width()}};
    return {{copies_[step % 2], factors_.width()}, size_};
  }

  // To be called for every unit of the state that `step` begins with.
  void Keep(int64_t step, int64_t b, int64_t unit, int64_t count,
            const C* h) const {
    if (!factors_) return;
    for (int gate = 0; gate < kGates; ++gate) {
      C* copy = copies_[step % 2] + gate * size_ + b * factors_.width();
      factors_.Multiply(gate, b, unit, count, h, copy + unit);
    }
  }

 private:
  const StateFactors<T>& factors_;
  const int64_t size_;
  C* copies_[2] = {};  // [gates, B, width], of this step and of the next
};

// w_hᵀ, through which the gradient of a state comes:
//   Σ over gates of factors ∘ (d · w_hᵀ), d[rows, gates · H]
// without factors in one product.
template <class T, int kGates>
class StateGradWeights {
 public:
  using C = ComputeType<T>;

  // w_t: of depth gates · H, and of factors.width() units.
  StateGradWeights(const HostInterface& host, Scratch* scratch,
                   const SequenceRows& rows, const WeightView<T>& w_t,
                   int64_t units, const StateFactors<T>& factors)
      : rows_(rows), factors_(factors), units_(units) {
    const int64_t width = factors.width();
    if (!factors) {
      shares_[0].emplace(host, scratch, w_t, kAtZero, kGates * units, width,
                         rows.FewUses());
      return;
    }
    for (int gate = 0; gate < kGates; ++gate) {
      shares_[gate].emplace(host, scratch, w_t.From(gate * units), kAtZero,
                            units, width);
    }
  }

  int64_t panels() const { return shares_[0]->panels(); }

  // What comes from the step after, whose d this is; rows that have no such
  // step begin with zeros. Then epilogue(GateRun), row by row.
  template <class Epilogue>
  void MultiplyStepAfter(int64_t step, const C* d, Range panels, Range rows,
                         const Epilogue& epilogue) const {
    const Range there = rows_.At(step + 1, rows);
    const RowByRow by_row{epilogue};
    if (!factors_) {
      MultiplyPacked({{d, kGates * units_}}, *shares_[0], panels, there,
                     BeginAtZero(), by_row);
    } else {
      MultiplyShares(d, panels, there, by_row);
    }
    ZeroProduct(*shares_[0], panels,
                {std::max(there.end, rows.begin), rows.end}, by_row);
  }

  // What comes from the first step, when all are done; d is its.
  template <class Epilogue>
  void MultiplyFirstStep(const HostInterface& host, const C* d,
                         const Epilogue& epilogue) const {
    const int64_t batch = rows_.batch();
    const auto depth = static_cast<double>(kGates * units_);
    const auto width = static_cast<double>(factors_.width());
    const auto rows = static_cast<double>(batch);
    const int pieces =
        WorkersWorth(host, rows * depth * width, (rows + depth) * width);
    const bool over_rows = batch >= pieces * kTileRows;
    ParallelFor(host, pieces, pieces, [&](int, int64_t piece) {
      const Share share = {static_cast<int>(piece), pieces};
      MultiplyStepAfter(-1, d, (over_rows ? Share() : share).Of(panels()),
                        (over_rows ? share : Share()).Of(batch), epilogue);
    });
  }

 private:
  static constexpr int64_t kAtZero[1] = {0};
  static constexpr int64_t kUnits = kPanelUnits<C, 1>;

  template <class Epilogue>
  void MultiplyShares(const C* d, Range panels, Range rows,
                      const Epilogue& epilogue) const {
    alignas(64) C share[kTileRows * kUnits];
    alignas(64) C sums[kTileRows * kUnits];
    ForEachTile(panels, rows, [&](int64_t panel, int64_t row, int64_t size) {
      const int64_t unit = panel * kUnits;
      const int64_t count = std::min(kUnits, factors_.width() - unit);
      ZeroRow(kTileRows * kUnits, sums);
      for (int gate = 0; gate < kGates; ++gate) {
        const GateRows<C> d_gate = {{d + gate * units_, kGates * units_}};
        internal::MultiplyTile<1>(d_gate, *shares_[gate], panel, row, size,
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
  std::optional<PackedWeights<T, 1>> shares_[kGates];
};

// The states before the steps of a block, times the factors of one gate after
// the other: the left of the recurrent weights' gradient. Nothing without
// factors.
template <class T, int kGates>
class DroppedStates {
 public:
  using C = ComputeType<T>;

  DroppedStates(const HostInterface& host, Scratch* scratch,
                const SequenceRows& rows, const BlockOperands<T>& operands,
                const StateFactors<T>& factors)
      : host_(host), rows_(rows), operands_(operands), factors_(factors) {
    if (!factors) return;
    const int64_t width = factors.width();
    dropped_ = scratch->Array<C>(rows.MostRowsInBlock() * width);
    dropped_t_ = scratch->Array<C>(operands.TransposedSize(width));
  }

  // The block's share of [grad; bias] = [state ∘ factors, 1]ᵀ · dz. dz is
  // [rows, ld], its columns in the order of grad's.
  Status AddGradients(const C* dz, int64_t units, C* grad, C* bias,
                      ProductMemory<T>* memory) const {
    if (!factors_) return Status::kOk;
    const int64_t width = factors_.width();
    const int64_t ld = kGates * units;
    for (int gate = 0; gate < kGates; ++gate) {
      Drop(gate);
      const int64_t column = gate * units;
      const Status status =
          RunProducts(host_, memory,
                      SumOverRows<T>({dropped_t_, width, operands_.summed(),
                                      WeightView<C>{dz + column, ld}, units,
                                      grad + column, ld, bias + column}));
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

 private:
  void Drop(int gate) const {
    const int64_t width = factors_.width();
    const StepBlock& block = operands_.block().block();
    ParallelForRows(host_, block.steps, rows_.Active(block.first) * width,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t step = block.first + begin;
                           step < block.first + end; ++step) {
                        const int64_t first = operands_.block().Of(step);
                        for (int64_t b = 0; b < rows_.Active(step); ++b) {
                          if (!operands_.Kept(first + b)) continue;
                          factors_.Multiply(gate, b, 0, width,
                                            operands_.Before(step, b),
                                            dropped_ + (first + b) * width);
                        }
                      }
                    });
    operands_.Transpose(
        [&](int64_t m) {
          return operands_.Kept(m) ? dropped_ + m * width : nullptr;
        },
        width, dropped_t_);
  }

  const HostInterface& host_;
  const SequenceRows& rows_;
  const BlockOperands<T>& operands_;
  const StateFactors<T>& factors_;
  C* dropped_ = nullptr;    // [block rows, width], of one gate
  C* dropped_t_ = nullptr;  // [width + 1, block rows], the last row ones
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_RECURRENT_DROPOUT_H_
