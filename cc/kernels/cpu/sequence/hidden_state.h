// Implements the state h of a forward pass over a sequence, as its steps read
// and write it, and defines what the driver (sequence_forward.h) provides to a
// cell.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_HIDDEN_STATE_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_HIDDEN_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

// The state h of all rows, as steps read and write it.
template <class T, int kGates>
class HiddenState {
 public:
  using C = ComputeType<T>;

  // h: [steps, batch, ld], where the states go; or nullptr.
  HiddenState(const SequenceRows& rows, const StateFactors<T>& factors,
              const Zoneout& zoneout, bool in_place, T* h, Scratch* scratch)
      : rows_(rows),
        factors_(factors),
        zoneout_(rows, zoneout, factors.width()),
        width_(factors.width()),
        ld_(rows.shape().h_width > 0 ? rows.shape().h_width : width_),
        size_(rows.batch() * width_),
        h_(h) {
    state_[0] = scratch->Array<C>(size_);
    // Other workers still read the previous state while this one is written.
    state_[1] = in_place && !zoneout ? state_[0] : scratch->Array<C>(size_);
    if (!factors) return;
    for (C*& copies : dropped_) copies = scratch->Array<C>(kGates * size_);
  }

  void Begin(const T* h_prev) const {
    for (int64_t b = 0; b < rows_.batch(); ++b) {
      C* const state = state_[0] + b * width_;
      CopyRow(rows_.FirstState(h_prev, width_, b), width_, state);
      Drop(0, b, 0, width_, state);
    }
  }

  // Begins with a step, the state before which is state[rows, width].
  void BeginWith(int64_t step, const void* state) const {
    const int64_t rows = rows_.ActiveRows(step);
    C* const to = state_[step % 2];
    std::memcpy(to, state, rows * width_ * sizeof(C));
    for (int64_t b = 0; b < rows; ++b) {
      Drop(step, b, 0, width_, to + b * width_);
    }
  }

  // Before a step and after it, [B, width].
  const C* Previous(int64_t step) const { return state_[step % 2]; }
  C* Next(int64_t step) const { return state_[(step + 1) % 2]; }
  // The output's row of a step, [width]; or nullptr.
  T* OutputRow(int64_t step, int64_t b) const {
    return RowPointer(h_, rows_.MemoryRow(step, b), ld_);
  }

  // What the GEMM of a step multiplies: the state before it or, with recurrent
  // dropout, a copy for each gate.
  GateRows<C> Operand(int64_t step) const {
    if (!factors_) return {{Previous(step), width_}};
    return {{dropped_[step % 2], width_}, size_};
  }

  // To be called when a step has stored some units of Next(step) and of the
  // output's row.
  void Finish(int64_t step, const GateRun<C>& run) const {
    if (zoneout_ && !rows_.IsMasked(step, run.row)) ZoneOut(step, run);
    Drop(step + 1, run.row, run.unit, run.count,
         Next(step) + run.row * width_ + run.unit);
  }

  // Carries some units over a masked step.
  void Carry(int64_t step, const GateRun<C>& run) const {
    const int64_t at = run.row * width_ + run.unit;
    const C* const previous = Previous(step) + at;
    CopyRow(previous, run.count, Next(step) + at);
    T* const h = OutputRow(step, run.row);
    if (h != nullptr) CopyRow(previous, run.count, h + run.unit);
    Finish(step, run);
  }

  // Zeros and carried states where no step was, and the rows' final states.
  void ZeroUnusedOutput(const Executor& executor) const {
    ZeroUnused(executor, rows_, h_, width_, ld_);
  }
  void End(const Executor& executor, const T* h_prev, T* h_last) const {
    StoreFinalStates(
        executor, rows_, {h_prev, h_last, width_},
        [&](int64_t b) {
          return state_[rows_.ActiveSteps(b) % 2] + b * width_;
        },
        h_, ld_);
  }

 private:
  void ZoneOut(int64_t step, const GateRun<C>& run) const {
    const int64_t at = run.row * width_ + run.unit;
    C* const next = Next(step) + at;
    T* const h = OutputRow(step, run.row);
    zoneout_.Apply(zoneout_.Draws(step, run.row), run.unit, run.count,
                   Previous(step) + at, next, next,
                   h == nullptr ? nullptr : h + run.unit);
  }

  // Multiplies the state that `step` begins with by the factors.
  void Drop(int64_t step, int64_t b, int64_t unit, int64_t count,
            const C* state) const {
    if (!factors_) return;
    for (int gate = 0; gate < kGates; ++gate) {
      C* copy = dropped_[step % 2] + gate * size_ + b * width_;
      factors_.Multiply(gate, b, unit, count, state, copy + unit);
    }
  }

  const SequenceRows& rows_;
  const StateFactors<T>& factors_;
  const StateZoneout<C> zoneout_;
  const int64_t width_;
  const int64_t ld_;
  const int64_t size_;
  T* const h_;
  C* state_[2] = {};    // [B, width], of even and odd steps
  C* dropped_[2] = {};  // [gates, B, width], of even and odd steps
};

// The state that a cell has besides h. There is one copy, since a unit of a
// step reads only its own.
template <class T>
struct CellState {
  ComputeType<T>* now = nullptr;  // [B, H]; nullptr: there is none
  const T* first = nullptr;       // [B, H], before the first step
  T* saved = nullptr;             // [steps, batch, H], after each step
  T* last = nullptr;              // [B, H], after the last step

  void Begin(const SequenceRows& rows) const {
    const int64_t units = rows.shape().units;
    for (int64_t b = 0; now != nullptr && b < rows.batch(); ++b) {
      CopyRow(rows.FirstState(first, units, b), units, now + b * units);
    }
  }

  void Finish(const Executor& executor, const SequenceRows& rows) const {
    if (now == nullptr) return;
    const int64_t units = rows.shape().units;
    // What is saved in steps has no padding: there is no mask then.
    StoreFinalStates(
        executor, rows, {first, last, units},
        [&](int64_t b) { return now + b * units; },
        rows.shape().saved_in_steps ? nullptr : saved, units);
  }
};

// What the cells without more to do have in common (sequence_forward.h).
template <class T>
struct ForwardCell {
  static constexpr bool kMayFuseInput = true;
  static constexpr bool kInPlace = false;
  static constexpr bool kOneGemm = false;

  void Finish() const {}
  std::array<T*, 0> SavedForBackward() const { return {}; }
  CellState<T> State() const { return {}; }
};

// The sizes of a cell.
struct ForwardShape {
  int64_t width = 0;   // of h: P with a projection, else H
  int stages = 1;      // GEMMs of a step, each with its epilogue
  double columns = 0;  // of all recurrent matrices, times their depth over H
  int64_t gates = 0;   // that have input weights
};

// What the driver provides to a cell.
template <class T, int kGates>
struct ForwardContext {
  const Executor& executor;
  Scratch* scratch;
  const SequenceRows& rows;
  const StateFactors<T>& factors;
  const HiddenState<T, kGates>& h;
  PanelMemory* panels;      // the memory of packed weights
  bool fuses_input;         // in this call
  bool input_may_be_fused;  // on some number of threads: x · w_x has the bits
                            // of packed weights
  Packing packing;
};

// Splits tiles of the rows of a block, which come in the order of rows for one
// panel after the other, into tiles of the rows of a step.
class StepCursor {
 public:
  StepCursor(const SequenceRows& rows, const StepBlock& block)
      : rows_(rows), block_(block), step_(block.first) {}

  // f(tile) for each step(), the tile's rows being those of the step.
  template <class C, class F>
  EIGEN_ALWAYS_INLINE void ForEachStep(const GateTile<C>& tile, const F& f) {
    GateTile<C> part = tile;
    const int64_t before = rows_.RowsBefore(block_.first);
    if (tile.first.row == 0) step_ = block_.first;
    for (int64_t row = tile.first.row, end = row + tile.rows; row < end;) {
      while (rows_.RowsBefore(step_ + 1) - before <= row) ++step_;
      const int64_t last = std::min(end, rows_.RowsBefore(step_ + 1) - before);
      part.rows = last - row;
      part.first.row = row - (rows_.RowsBefore(step_) - before);
      f(part);
      part.first.gates += part.rows * tile.row_stride;
      row = last;
    }
  }
  int64_t step() const { return step_; }

 private:
  const SequenceRows& rows_;
  const StepBlock& block_;
  int64_t step_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_HIDDEN_STATE_H_
