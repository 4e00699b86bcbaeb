// Owns small passes over rows that the sequences of all cells share.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_PASSES_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"

namespace blockrnn::cpu {

// Rows in the type that is computed in: as they stand, or, for a 16-bit type,
// `rows` of them copied to wide[rows, width].
template <class T>
RowView<ComputeType<T>> WideRows(const HostInterface& host,
                                 const RowView<T>& view, int64_t rows,
                                 int64_t width, ComputeType<T>* wide) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return view;
  } else {
    ParallelForRows(host, rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        ForEachVector<C>(width, [&](int64_t j, auto lanes) {
          Store(wide + m * width + j, Load<C>(view.Row(m) + j, lanes), lanes);
        });
      }
    });
    return {wide, width};
  }
}

// Scratch for WideRows; none where T is computed as such.
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
// j < width: the left operand of a product that sums over rows.
template <class C, class Rows>
void TransposedRows(const HostInterface& host, const Rows& row, int64_t rows,
                    int64_t width, C* out) {
  constexpr int kSize = Vec<C>::kSize;
  const int64_t stride = TransposedStride<C>(rows);
  ParallelForRows(
      host, stride / kSize, width * kSize, [&](int64_t begin, int64_t end) {
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

// Epilogue of a product whose rows are those of a block: stores them where they
// stand in memory.
template <class T>
struct StoreBlockRows {
  const BlockRows& block;
  T* out;  // [steps, batch, width]
  int64_t width;

  template <class C>
  void operator()(const GateRun<C>& run) const {
    CopyRow(run.gates, run.count,
            out + block.InMemory(run.row) * width + run.unit);
  }
};

// Zeros in an output where rows take no part; p may be nullptr.
// p[steps, batch, ld], of which the first `width` of a row are this one's.
template <class T>
void ZeroUnused(const HostInterface& host, const SequenceRows& rows, T* p,
                int64_t width, int64_t ld) {
  if (!rows.HasUnused() || p == nullptr) return;
  ParallelForRows(host, rows.batch(), rows.shape().steps * width,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      rows.ForEachUnused(b, [&](int64_t row) {
                        ZeroRow(width, p + row * ld);
                      });
                    }
                  });
}

// States of an output that skipped ends have: before its first step that of
// first[B, width], as the caller has it, behind its last one that of
// last(b)[width]; p may be nullptr.
template <class T, class Last>
void CarryOverSkippedEnds(const HostInterface& host, const SequenceRows& rows,
                          const T* first, const Last& last, T* p, int64_t width,
                          int64_t ld) {
  if (!rows.HasSkippedEnds() || p == nullptr) return;
  const auto carry = [&](int64_t b, const Range& steps, const auto* state) {
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      CopyRow(state, width, p + rows.OfSequence(step, b) * ld);
    }
  };
  ParallelForRows(host, rows.batch(), rows.shape().steps * width,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      carry(b, rows.SkippedBefore(b),
                            first + rows.State(b) * width);
                      carry(b, rows.SkippedBehind(b), last(b));
                    }
                  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_PASSES_H_
