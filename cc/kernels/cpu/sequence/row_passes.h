// Implements passes over rows that the cells share: conversion of 16-bit
// operands, copies, sums and transposition.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

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

// Stores to an output that may not be wanted.
template <class C, class T, class Lanes>
EIGEN_ALWAYS_INLINE void StoreIf(T* to, int64_t at, const Vec<C>& v,
                                 Lanes lanes) {
  if (to != nullptr) Store(to + at, v, lanes);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
