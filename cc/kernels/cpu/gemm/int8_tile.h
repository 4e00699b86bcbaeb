// Defines the inner loop over a panel of int8: the one of panel.h, or, where
// the processor multiplies matrices of bytes (FEAT_I8MM), one by 2 × 2 sums.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_INT8_TILE_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_INT8_TILE_H_

#include <cstdint>

#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"

namespace blockrnn::cpu {

#if defined(__ARM_FEATURE_MATMUL_INT8)

// The 2 × 2 sums of each two rows and each two columns of a tile. An
// instruction multiplies eight values in depth of two rows with those of two
// columns, which are twice the multiply-adds of a dot product by lane.
template <int kGates, int kUsed, int kRows, int kVectors>
class MatrixSums {
 public:
  // The next kBlocks times eight values of the rows.
  template <int kBlocks>
  EIGEN_ALWAYS_INLINE void Add(const RowPointers<Int8Quad, kRows>& a,
                               int64_t quad, const Int8Quad* panel) {
    constexpr int kWidth = kVectors * Vec<Int8Quad>::kSize;
    static_assert(kBlocks == 1 || kBlocks == 2);
    float64x2_t rows[kPairs][kBlocks];
    BLOCKRNN_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const auto* const even =
          reinterpret_cast<const double*>(a.row[2 * i] + quad);
      // Without a second row, the first twice.
      const int second = 2 * i + 1 < kRows ? 2 * i + 1 : 2 * i;
      const auto* const odd =
          reinterpret_cast<const double*>(a.row[second] + quad);
      if constexpr (kBlocks == 2) {
        const float64x2_t first_row = vld1q_f64(even);
        const float64x2_t second_row = vld1q_f64(odd);
        rows[i][0] = vzip1q_f64(first_row, second_row);
        rows[i][1] = vzip2q_f64(first_row, second_row);
      } else {
        rows[i][0] = vcombine_f64(vld1_f64(even), vld1_f64(odd));
      }
    }
    BLOCKRNN_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      BLOCKRNN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if (v % kGateVectors<kGates> >= kUsed) continue;
        const Int8Quad* const from =
            panel + block * 2 * kWidth + v * 2 * Vec<Int8Quad>::kSize;
        auto low = Elements<Int8Quad>::Load(from);
        auto high = Elements<Int8Quad>::Load(from + Vec<Int8Quad>::kSize);
        asm("" : "+w"(low.packet), "+w"(high.packet));
        BLOCKRNN_UNROLL
        for (int i = 0; i < kPairs; ++i) {
          Multiply(rows[i][block], low, &sum_[i][v][0]);
        }
        BLOCKRNN_UNROLL
        for (int i = 0; i < kPairs; ++i) {
          Multiply(rows[i][block], high, &sum_[i][v][1]);
        }
      }
    }
  }

  EIGEN_ALWAYS_INLINE void Clear() {
    BLOCKRNN_UNROLL
    for (auto& pair : sum_) {
      BLOCKRNN_UNROLL
      for (auto& v : pair) v[0] = v[1] = vdupq_n_f32(0);
    }
  }

  // The sums, row by row.
  EIGEN_ALWAYS_INLINE void CopyTo(Tile<float, kRows, kVectors>* tile) const {
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      BLOCKRNN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const float64x2_t low = vreinterpretq_f64_f32(sum_[m / 2][v][0]);
        const float64x2_t high = vreinterpretq_f64_f32(sum_[m / 2][v][1]);
        tile->sum[m][v] = Vec<float>(vreinterpretq_f32_f64(
            m % 2 == 0 ? vzip1q_f64(low, high) : vzip2q_f64(low, high)));
      }
    }
  }

 private:
  static constexpr int kPairs = (kRows + 1) / 2;

  static EIGEN_ALWAYS_INLINE void Multiply(const float64x2_t& rows,
                                           const Vec<Int8Quad>& columns,
                                           float32x4_t* sum) {
    asm("smmla %0.4s, %1.16b, %2.16b"
        : "+w"(*sum)
        : "w"(rows), "w"(columns.packet));
  }

  float32x4_t sum_[kPairs][kVectors][2];  // bits of int32
};

#endif

// tile = a · panel, the bits of int32, for a depth of so many quads, a multiple
// of kQuadsAtOnce.
template <int kGates, int kUsed, int kRows, int kVectors>
EIGEN_ALWAYS_INLINE void MultiplyQuads(const RowPointers<Int8Quad, kRows>& a,
                                       int64_t quads, const Int8Quad* panel,
                                       Tile<float, kRows, kVectors>* tile) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  constexpr int kWidth = kVectors * Vec<Int8Quad>::kSize;
  MatrixSums<kGates, kUsed, kRows, kVectors> sums;
  sums.Clear();
  int64_t quad = 0;
  for (; quad + 4 <= quads; quad += 4) {
    sums.template Add<2>(a, quad, panel + quad * kWidth);
  }
  if (quad < quads) sums.template Add<1>(a, quad, panel + quad * kWidth);
  sums.CopyTo(tile);
#else
  tile->Clear();
  MultiplyElements<kGates, kUsed, 1>(a, 0, quads, panel, tile);
#endif
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_INT8_TILE_H_
