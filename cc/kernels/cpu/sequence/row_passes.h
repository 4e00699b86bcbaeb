// Owns row-wise work of the engine: widening of 16-bit operands, and pointwise
// passes over [rows, units].

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/threads/parallel.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

// Elements that one task of a pointwise pass takes at least; below, waking a
// helper costs more than the work.
inline constexpr int64_t kElementsPerTask = 16 * 1024;

// Calls body(begin, end) for pieces of [0, rows), in parallel where there is
// enough to do. `width` is the elements of work in one row.
template <class Body>
void ParallelForRows(const HostInterface& host, int64_t rows, int64_t width,
                     const Body& body) {
  if (rows == 0 || width == 0) return;
  const int64_t rows_per_task = std::max<int64_t>(kElementsPerTask / width, 1);
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  ParallelFor(host, NumWorkers(host, tasks), tasks, [&](int, int64_t task) {
    const int64_t begin = task * rows_per_task;
    body(begin, std::min(begin + rows_per_task, rows));
  });
}

// p itself where T is computed as such, else a float32 copy of [rows, width].
template <class T>
const ComputeType<T>* Widened(const HostInterface& host, Scratch* scratch,
                              const T* p, int64_t rows, int64_t width) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return p;
  } else {
    C* wide = scratch->template Array<C>(rows * width);
    if (wide == nullptr) return nullptr;
    ParallelForRows(host, rows, width, [&](int64_t begin, int64_t end) {
      ForEachVector<C>((end - begin) * width, [&](int64_t j, auto lanes) {
        Store(wide + begin * width + j, Load<C>(p + begin * width + j, lanes),
              lanes);
      });
    });
    return wide;
  }
}

// p itself where T is computed as such, else scratch of its size to compute in;
// what is to be kept is then stored to p as well.
template <class T>
ComputeType<T>* ComputedInPlace(Scratch* scratch, T* p, int64_t count) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    return p;
  } else {
    return scratch->template Array<ComputeType<T>>(count);
  }
}

// Stores v to the output, and to the float32 copy where that is another array.
template <class T, class C, class Lanes>
EIGEN_ALWAYS_INLINE void StoreBoth(T* out, C* computed, const Vec<C>& v,
                                   Lanes lanes) {
  Store(out, v, lanes);
  if constexpr (!std::is_same_v<T, C>) Store(computed, v, lanes);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_PASSES_H_
