// Defines panels of int8 weights, and the rows that are multiplied with them.
//
// A column of weights has a scale, as has a row of the other operand:
//
//   m_w[j] = max_k |w[k, j]|    s_w = m_w / 127    q_w = rint(w · (127 / m_w))
//   m_a[m] = max_k |a[m, k]|    s_a = m_a / 127    q_a = rint(a · (127 / m_a))
//   a · w ≈ s_a[m] s_w[j] Σ_k q_a[m, k] q_w[k, j]
//
// The sums are exact: int32, in which 133,000 terms fit. So they are the same
// on every instruction set, and a row's do not depend on the other rows. A
// column or row without a value of 2⁻¹⁰⁰ or more is zeros; one with a value
// that is not finite has NaN as its scale.
//
// A panel's element is a quad: four values that are adjacent in depth, in 32
// bits. Where kQuadsAtOnce is 2, a column's two quads of a depth of eight are
// beside each other, and the depth is filled up with zeros to a multiple of
// eight. After the quads a panel has two more vectors for each of its vectors:
// 128 Σ_k q_w[k, j], and the scales.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_INT8_PANEL_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_INT8_PANEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"

namespace blockrnn::cpu {

struct Int8Quad {
  uint32_t bits;  // the lowest byte is the one of lowest depth
};

// AVX512-VNNI multiplies unsigned bytes with signed ones: rows then hold
// q_a + 128, and what that adds to a sum is taken away from it.
#if defined(__AVX512VNNI__)
inline constexpr bool kRowsAreUnsigned = true;
#else
inline constexpr bool kRowsAreUnsigned = false;
#endif

// Quads in depth that an instruction multiplies (MatrixSums below).
#if defined(__ARM_FEATURE_MATMUL_INT8)
inline constexpr int kQuadsAtOnce = 2;
#else
inline constexpr int kQuadsAtOnce = 1;
#endif

// Quads of a column or row of k values.
inline int64_t NumQuads(int64_t k) {
  return RoundUp(CeilDiv(k, 4), kQuadsAtOnce);
}

// Integer vectors are held as the bits of a float's: GCC keeps those in
// registers, and stores every Eigen::Packet16i of a tile in each step.
template <>
struct Vec<Int8Quad> {
  using Packet = Vec<float>::Packet;  // bits, never read as float
  static constexpr int kSize = Vec<float>::kSize;

  Vec() = default;
  explicit Vec(const Packet& p) : packet(p) {}
  // All lanes the same.
  explicit Vec(Int8Quad value) {
#if defined(__AVX512F__)
    packet =
        _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(value.bits)));
#elif defined(__AVX2__)
    packet =
        _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(value.bits)));
#else
    packet = Eigen::internal::pset1frombits<Packet>(value.bits);
#endif
  }

  Packet packet;
};

template <>
struct Elements<Int8Quad> {
  using Operand = Int8Quad;
  static constexpr int kDepth = 4;

  static EIGEN_ALWAYS_INLINE Vec<Int8Quad> Load(const Int8Quad* p) {
    return Vec<Int8Quad>(Eigen::internal::ploadu<Vec<Int8Quad>::Packet>(
        reinterpret_cast<const float*>(p)));
  }
};

#if defined(__aarch64__)
// The same for the quads of a row in lane kLane.
template <int kLane>
EIGEN_ALWAYS_INLINE Vec<float> MulAddLane(const Vec<Int8Quad>& row,
                                          const Vec<Int8Quad>& weight,
                                          const Vec<float>& sum) {
  Vec<float> to = sum;
#if defined(__ARM_FEATURE_DOTPROD)
  asm("sdot %0.4s, %1.16b, %2.4b[%3]"
      : "+w"(to.packet)
      : "w"(weight.packet), "w"(row.packet), "i"(kLane));
#else
  const int8x16_t a = vreinterpretq_s8_f32(vdupq_laneq_f32(row.packet, kLane));
  const int8x16_t w = vreinterpretq_s8_f32(weight.packet);
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(w));
  const int16x8_t high = vmull_high_s8(a, w);
  // Two products fit 16 bits.
  to.packet = vreinterpretq_f32_s32(
      vpadalq_s16(vreinterpretq_s32_f32(sum.packet), vpaddq_s16(low, high)));
#endif
  return to;
}
#endif

// The bits of sum + Σ over a quad of row · weight.
EIGEN_ALWAYS_INLINE Vec<float> MulAdd(const Vec<Int8Quad>& row,
                                      const Vec<Int8Quad>& weight,
                                      const Vec<float>& sum) {
#if defined(__AVX512VNNI__)
  // Of the intrinsic GCC copies each sum before and after it, and then has not
  // registers enough for a tile.
  Vec<float> to = sum;
  asm("vpdpbusd %2, %1, %0"
      : "+v"(to.packet)
      : "v"(row.packet), "v"(weight.packet));
  return to;
#elif defined(__AVX512F__)
  const __m512i a = _mm512_castps_si512(row.packet);
  const __m512i w = _mm512_castps_si512(weight.packet);
  const __m512i from = _mm512_castps_si512(sum.packet);
  // |w| · (a with the sign of w): two products fit 16 bits.
  const __m512i a_signed = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w),
                                                _mm512_setzero_si512(), a);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), a_signed);
  const __m512i to =
      _mm512_add_epi32(from, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  return Vec<float>(_mm512_castsi512_ps(to));
#elif defined(__AVX2__)
  const __m256i a = _mm256_castps_si256(row.packet);
  const __m256i w = _mm256_castps_si256(weight.packet);
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  return Vec<float>(_mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(sum.packet),
                       _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))));
#elif defined(__SSSE3__)
  const __m128i a = _mm_castps_si128(row.packet);
  const __m128i w = _mm_castps_si128(weight.packet);
  const __m128i pairs = _mm_maddubs_epi16(_mm_abs_epi8(w), _mm_sign_epi8(a, w));
  return Vec<float>(_mm_castsi128_ps(_mm_add_epi32(
      _mm_castps_si128(sum.packet), _mm_madd_epi16(pairs, _mm_set1_epi16(1)))));
#elif defined(__aarch64__)
  return MulAddLane<0>(row, weight, sum);
#else
  constexpr int kLanes = Vec<float>::kSize;
  int32_t sums[kLanes];
  int8_t a[4 * kLanes];
  int8_t w[4 * kLanes];
  std::memcpy(a, &row.packet, sizeof(a));
  std::memcpy(w, &weight.packet, sizeof(w));
  std::memcpy(sums, &sum.packet, sizeof(sums));
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int k = 0; k < 4; ++k) {
      sums[lane] += static_cast<int32_t>(a[4 * lane + k]) * w[4 * lane + k];
    }
  }
  Vec<float> to;
  std::memcpy(&to.packet, sums, sizeof(sums));
  return to;
#endif
}

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

// A scale, and its reciprocal, by which values are multiplied before they are
// rounded.
struct Int8Scale {
  explicit Int8Scale(float largest, bool finite) {
    if (!finite) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (largest >= kSmallest) {
      scale = largest / 127.0f;
      reciprocal = 127.0f / largest;
    }
  }

  static constexpr float kSmallest = 7.8886091e-31f;  // 2⁻¹⁰⁰

  float scale = 0;
  float reciprocal = 0;
};

namespace internal {

// A column of weights, which is column `to` of a panel.
template <int kWidth, class T>
void PackInt8Column(const WeightView<T>& view, int64_t column, int64_t k,
                    int64_t to, Int8Quad* panel) {
  const auto weight = [&](int64_t p) {
    return static_cast<float>(view.transposed ? view.w[column * view.ldw + p]
                                              : view.w[p * view.ldw + column]);
  };
  float largest = 0;
  bool finite = true;
  for (int64_t p = 0; p < k; ++p) {
    finite &= std::isfinite(weight(p));
    largest = std::max(largest, std::abs(weight(p)));
  }
  const Int8Scale scale(largest, finite);
  int32_t sum = 0;
  const int64_t quads = CeilDiv(k, 4);
  for (int64_t q = 0; q < quads; ++q) {
    uint32_t bits = 0;
    for (int64_t p = 4 * q; p < std::min(4 * q + 4, k); ++p) {
      const int32_t value = finite ? static_cast<int32_t>(std::nearbyint(
                                         weight(p) * scale.reciprocal))
                                   : 0;
      sum += value;
      bits |= static_cast<uint32_t>(static_cast<uint8_t>(value))
              << (8 * (p - 4 * q));
    }
    panel[q / kQuadsAtOnce * kQuadsAtOnce * kWidth + kQuadsAtOnce * to +
          q % kQuadsAtOnce]
        .bits = bits;
  }
  // As bits: with the most terms it is more than int32 holds, as are the sums
  // that it is taken away from.
  const uint32_t offset = 128 * static_cast<uint32_t>(sum);
  Int8Quad* const end = panel + NumQuads(k) * kWidth + to;
  std::memcpy(end, &offset, sizeof(offset));
  std::memcpy(end + kWidth, &scale.scale, sizeof(scale.scale));
}

}  // namespace internal

// As PackPanels of panel.h; k is all of the depth.
template <int kGates, class T>
void PackPanels(const WeightView<T>& view, int64_t gate_units, int64_t k,
                int64_t unit, int64_t units, int64_t panel_stride,
                Int8Quad* panels) {
  constexpr int kUnits = kPanelUnits<Int8Quad, kGates>;
  constexpr int kWidth = kPanelWidth<Int8Quad, kGates>;
  std::memset(panels, 0,
              CeilDiv(units, kUnits) * panel_stride * sizeof(Int8Quad));
  for (int gate = 0; gate < kGates; ++gate) {
    for (int64_t j = 0; j < units; ++j) {
      internal::PackInt8Column<kWidth>(view, gate * gate_units + unit + j, k,
                                       gate * kUnits + j % kUnits,
                                       panels + j / kUnits * panel_stride);
    }
  }
}

// Quantises a row of k values; writes NumQuads(k) quads and its scale.
inline void QuantizeRow(const float* row, int64_t k, Int8Quad* quads,
                        float* scale_out) {
  using V = Vec<float>;
  using Eigen::internal::pabs;
  using Eigen::internal::pmax;
  V largest(0);
  V not_finite(0);  // NaN where a value is not finite, else 0
  ForEachVector<float>(k, [&](int64_t j, auto lanes) {
    const V x = Load<float>(row + j, lanes);
    largest = V(pmax(largest.packet, pabs(x.packet)));
    not_finite = MulAdd(x, V(0), not_finite);
  });
  const bool finite = SumLanes(not_finite) == 0;
  const Int8Scale scale(Eigen::internal::predux_max(largest.packet), finite);
  *scale_out = scale.scale;
  constexpr uint32_t kFlip = kRowsAreUnsigned ? 0x80808080u : 0u;
  if (scale.reciprocal == 0) {
    std::fill(quads, quads + NumQuads(k), Int8Quad{kFlip});
    return;
  }
  if constexpr (kQuadsAtOnce > 1) {
    std::fill(quads + CeilDiv(k, 4), quads + NumQuads(k), Int8Quad{kFlip});
  }
  // To add `shift` rounds to an integer and leaves it in the last bits.
  const V shift(12582912.0f);  // 1.5 · 2²³
  const V reciprocal(scale.reciprocal);
  ForEachVector<float>(k, [&](int64_t j, auto lanes) {
    const V shifted = Load<float>(row + j, lanes) * reciprocal + shift;
    constexpr int kQuads = V::kSize / 4;
    Int8Quad* const to = quads + j / 4;
    const int64_t count = std::min<int64_t>(kQuads, CeilDiv(k - j, 4));
#if defined(__AVX512F__)
    const __m128i bytes =
        _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_castps_si512(shifted.packet)),
                      _mm_set1_epi32(static_cast<int>(kFlip)));
    _mm_mask_storeu_epi32(to, static_cast<__mmask8>((1u << count) - 1u), bytes);
#elif defined(__aarch64__)
    const uint16x4_t halves = vmovn_u32(vreinterpretq_u32_f32(shifted.packet));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(halves, halves));
    static_assert(kQuads == 1 && kFlip == 0);
    if (count > 0) to->bits = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
#else
    uint32_t lane_bits[V::kSize];
    std::memcpy(lane_bits, &shifted.packet, sizeof(lane_bits));
    for (int64_t q = 0; q < count; ++q) {
      uint32_t bits = 0;
      for (int i = 0; i < 4; ++i) {
        bits |= (lane_bits[4 * q + i] & 0xffu) << (8 * i);
      }
      to[q].bits = bits ^ kFlip;
    }
#endif
  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_INT8_PANEL_H_
