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
                               rows.FirstState(states.first, width, b));
                         carry(b, rows.TrailingPadding(b), final(b));
                       });
  }
  if (states.last == nullptr) return;
  for (int64_t b = 0; b < rows.batch(); ++b) {
    const int64_t row = rows.LastStateRow(b);
    if (row >= 0) CopyRow(final(b), width, states.last + row * width);
  }
}

// The gradient of a state that steps pass on, [B, width].
template <class T>
struct StateGradient {
  using C = ComputeType<T>;

  C* now = nullptr;  // before the step done last; nullptr: no such state
  int64_t width = 0;
  const T* grads = nullptr;  // [steps, batch, ld], of the output at all steps;
  int64_t ld = 0;            // nullptr: zeros
  const T* last = nullptr;   // [B, width], of the final state; nullptr: zeros
  T* first = nullptr;        // [B, width], where Finish stores it; or nullptr

  // That of the final states, with what trailing padding passes on.
  void Begin(const Executor& executor, const SequenceRows& rows) const {
    if (now == nullptr) return;
    const int64_t most_steps = rows.HasMaskedPadding() ? rows.shape().steps : 1;
    ParallelForEachRow(executor, rows.batch(), most_steps * width,
                       [&](int64_t b) {
                         C* const to = now + b * width;
                         if (last != nullptr) {
                           CopyRow(rows.LastState(last, width, b), width, to);
                         } else {
                           ZeroRow(width, to);
                         }
                         if (rows.HasMaskedPadding()) {
                           AddPadding(rows, b, rows.TrailingPadding(b));
                         }
                       });
  }

  // That of the initial states, with what leading padding passes on.
  void Finish(const Executor& executor, const SequenceRows& rows) const {
    if (now == nullptr) return;
    if (rows.HasMaskedPadding()) {
      ParallelForEachRow(
          executor, rows.batch(), rows.shape().steps * width,
          [&](int64_t b) { AddPadding(rows, b, rows.LeadingPadding(b)); });
    }
    for (int64_t b = 0; first != nullptr && b < rows.batch(); ++b) {
      const int64_t row = rows.FirstStateRow(b);
      if (row >= 0) CopyRow(now + b * width, width, first + row * width);
    }
  }

 private:
  // The last step first.
  void AddPadding(const SequenceRows& rows, int64_t b,
                  const StepInterval& steps) const {
    for (int64_t step = steps.end - 1; grads != nullptr && step >= steps.begin;
         --step) {
      AddRow(grads + rows.MemoryRow(step, b) * ld, width, now + b * width);
    }
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
