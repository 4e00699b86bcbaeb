// Implements passes over rows that the cells share: conversion of 16-bit
// operands, copies, sums and transposition, and the outputs and gradients of
// padded steps.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/row_order.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// Calls f with a std::bool_constant. The branch is taken for each tile or run
// of units: a loop over them is compiled for either value, and nothing around
// it is.
template <class F>
EIGEN_ALWAYS_INLINE void WithFlag(bool flag, const F& f) {
  if (flag) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
}

// p itself where T is the compute type, else a float32 copy of [rows, width].
template <class T>
const ComputeType<T>* Widened(const Executor& executor, Scratch* scratch,
                              const T* p, int64_t rows, int64_t width) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return p;
  } else {
    C* wide = scratch->template Array<C>(rows * width);
    if (wide == nullptr) return nullptr;
    ParallelForRows(executor, rows, width, [&](int64_t begin, int64_t end) {
      ForEachVector<C>((end - begin) * width, [&](int64_t j, auto lanes) {
        Store(wide + begin * width + j, Load<C>(p + begin * width + j, lanes),
              lanes);
      });
    });
    return wide;
  }
}

// p itself where T is the compute type, else scratch of its size to compute in;
// results are then stored to p as well.
template <class T>
ComputeType<T>* ComputedInPlace(Scratch* scratch, T* p, int64_t count) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    return p;
  } else {
    return scratch->template Array<ComputeType<T>>(count);
  }
}

// Stores v to the output, and to the float32 copy where that is a second array.
template <class T, class C, class Lanes>
EIGEN_ALWAYS_INLINE void StoreBoth(T* out, C* computed, const Vec<C>& v,
                                   Lanes lanes) {
  Store(out, v, lanes);
  if constexpr (!std::is_same_v<T, C>) Store(computed, v, lanes);
}

// Rows in the compute type: in place, or, for a 16-bit type, `rows` of them
// copied to wide[rows, width].
template <class T>
RowView<ComputeType<T>> WideRows(const Executor& executor,
                                 const RowView<T>& view, int64_t rows,
                                 int64_t width, ComputeType<T>* wide) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return view;
  } else {
    ParallelForRows(executor, rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        ForEachVector<C>(width, [&](int64_t j, auto lanes) {
          Store(wide + m * width + j, Load<C>(view.Row(m) + j, lanes), lanes);
        });
      }
    });
    return {wide, width};
  }
}

// Scratch for WideRows; none where T is the compute type.
template <class T>
ComputeType<T>* WideRowsScratch(Scratch* scratch, int64_t rows, int64_t width) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    return nullptr;
  } else {
    return scratch->template Array<ComputeType<T>>(rows * width);
  }
}

// Scratch that TransposedRows needs: whole vectors of rows.
template <class C>
int64_t TransposedStride(int64_t rows) {
  return CeilDiv(rows, Vec<C>::kSize) * Vec<C>::kSize;
}

// out[j, m] = row(m)[j], or 0 where row(m) is nullptr, for m < rows and
// j < width: the left operand of a GEMM that sums over rows.
template <class C, class Rows>
void TransposedRows(const Executor& executor, const Rows& row, int64_t rows,
                    int64_t width, C* out) {
  constexpr int kSize = Vec<C>::kSize;
  const int64_t stride = TransposedStride<C>(rows);
  ParallelForRows(
      executor, stride / kSize, width * kSize, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin * kSize; m < end * kSize; m += kSize) {
          TransposeRows<C>([&](int lane) { return row(m + lane); }, width,
                           static_cast<int>(std::min<int64_t>(rows - m, kSize)),
                           out + m, stride);
        }
      });
}

// to[j] = from[j], either of which may be a 16-bit type.
template <class From, class To>
void CopyRow(const From* from, int64_t count, To* to) {
  using C = ComputeType<From>;
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Store(to + j, Load<C>(from + j, lanes), lanes);
  });
}

template <class C>
void ZeroRow(int64_t count, C* to) {
  std::fill(to, to + count, C(0));
}

// to[j] += from[j], which may be a 16-bit type.
template <class From, class C>
void AddRow(const From* from, int64_t count, C* to) {
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Store(to + j, Load<C>(to + j, lanes) + Load<C>(from + j, lanes), lanes);
  });
}

// out[j] = Σ rows[m, j] in the order of m.
template <class C, class T>
void SumRows(const C* rows, int64_t num_rows, int64_t width, T* out) {
  ForEachVector<C>(width, [&](int64_t j, auto lanes) {
    Vec<C> sum(0);
    for (int64_t m = 0; m < num_rows; ++m) {
      sum = sum + Load<C>(rows + m * width + j, lanes);
    }
    Store(out + j, sum, lanes);
  });
}

// p + row · width, or nullptr where there is no such array.
template <class P>
P* RowPointer(P* p, int64_t row, int64_t width) {
  return p == nullptr ? nullptr : p + row * width;
}

// Padding takes no step of the loop: its outputs are zeros or the carried
// state, and its gradients of states are added at either end of the loop.

// Zeros in an output at padded steps and past the rows' lengths; p may be
// nullptr. p[steps, batch, ld], of which the first `width` of a row are this
// one's.
template <class T>
void ZeroUnused(const Executor& executor, const SequenceRows& rows, T* p,
                int64_t width, int64_t ld) {
  if (!rows.HasPadding() || p == nullptr) return;
  ParallelForEachRow(
      executor, rows.batch(), rows.shape().steps * width, [&](int64_t b) {
        rows.ForEachPaddingRow(
            b, [&](int64_t row) { ZeroRow(width, p + row * ld); });
      });
}

// A state of a call, [B, width] in the caller's order.
template <class T>
struct EndStates {
  const T* first;  // before the first step
  T* last;         // after the last step; or nullptr
  int64_t width;
};

// The rows' final states final(b)[width] to states.last, and those that an
// output p[steps, batch, ld] has at padded steps: in leading padding the first
// state, in trailing padding the final one. p may be nullptr.
template <class T, class Final>
void StoreFinalStates(const Executor& executor, const SequenceRows& rows,
                      const EndStates<T>& states, const Final& final, T* p,
                      int64_t ld) {
  const int64_t width = states.width;
  if (rows.HasMaskedPadding() && p != nullptr) {
    const auto carry = [&](int64_t b, const StepInterval& steps,
                           const auto* state) {
      for (int64_t step = steps.begin; step < steps.end; ++step) {
        CopyRow(state, width, p + rows.MemoryRow(step, b) * ld);
      }
    };
    ParallelForEachRow(executor, rows.batch(), rows.shape().steps * width,
                       [&](int64_t b) {
                         carry(b, rows.LeadingPadding(b),
                               states.first + rows.StateRow(b) * width);
                         carry(b, rows.TrailingPadding(b), final(b));
                       });
  }
  if (states.last == nullptr) return;
  for (int64_t b = 0; b < rows.batch(); ++b) {
    CopyRow(final(b), width, states.last + rows.StateRow(b) * width);
  }
}

// The gradients of a state at all steps, [steps, batch, ld], of which the first
// `width` of a row are this one's; data may be nullptr: zeros.
template <class T>
struct StateGrads {
  const T* data = nullptr;
  int64_t width = 0;
  int64_t ld = 0;

  // grad[width] += those of some steps of a row, the last one first.
  template <class C>
  void AddTo(C* grad, const SequenceRows& rows, int64_t b,
             const StepInterval& steps) const {
    if (data == nullptr) return;
    for (int64_t step = steps.end - 1; step >= steps.begin; --step) {
      AddRow(data + rows.MemoryRow(step, b) * ld, width, grad);
    }
  }
};

// grad[B, width], the gradients of the rows' final states: last_grad, or zeros
// where that is nullptr, and what trailing padding passes on.
template <class T, class C>
void BeginStateGrads(const Executor& executor, const SequenceRows& rows,
                     const T* last_grad, const StateGrads<T>& grads, C* grad) {
  const int64_t width = grads.width;
  const int64_t most_steps = rows.HasMaskedPadding() ? rows.shape().steps : 1;
  ParallelForEachRow(
      executor, rows.batch(), most_steps * width, [&](int64_t b) {
        C* const to = grad + b * width;
        if (last_grad != nullptr) {
          CopyRow(last_grad + rows.StateRow(b) * width, width, to);
        } else {
          ZeroRow(width, to);
        }
        if (rows.HasMaskedPadding()) {
          grads.AddTo(to, rows, b, rows.TrailingPadding(b));
        }
      });
}

// Adds to grad[B, width], the gradients of the rows' initial states, what
// leading padding passes on.
template <class T, class C>
void FinishStateGrads(const Executor& executor, const SequenceRows& rows,
                      const StateGrads<T>& grads, C* grad) {
  if (!rows.HasMaskedPadding()) return;
  ParallelForEachRow(
      executor, rows.batch(), rows.shape().steps * grads.width, [&](int64_t b) {
        grads.AddTo(grad + b * grads.width, rows, b, rows.LeadingPadding(b));
      });
}

// The gradient of the state that a cell has besides h.
template <class T>
struct CellStateGrad {
  ComputeType<T>* now =
      nullptr;               // [B, H], before a step; nullptr: there is none
  const T* grads = nullptr;  // [steps, batch, H], of the output; or nullptr
  const T* last_grad = nullptr;  // [B, H]; nullptr: zeros
  T* first_grad = nullptr;       // [B, H], before the first step

  void Begin(const Executor& executor, const SequenceRows& rows) const {
    if (now == nullptr) return;
    BeginStateGrads(executor, rows, last_grad, OfOutput(rows), now);
  }

  void Finish(const Executor& executor, const SequenceRows& rows) const {
    if (now == nullptr) return;
    const int64_t units = rows.shape().units;
    FinishStateGrads(executor, rows, OfOutput(rows), now);
    for (int64_t b = 0; b < rows.batch(); ++b) {
      CopyRow(now + b * units, units, first_grad + rows.StateRow(b) * units);
    }
  }

 private:
  StateGrads<T> OfOutput(const SequenceRows& rows) const {
    return {grads, rows.shape().units, rows.shape().units};
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
