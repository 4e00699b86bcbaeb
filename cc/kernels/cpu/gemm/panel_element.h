// Defines the elements of panels: values of the compute type; for bfloat16
// where the processor multiplies it (AVX512-BF16, FEAT_BF16), pairs of values
// that are adjacent in depth; elsewhere, for weights that are stored in it,
// bfloat16 that is widened when it is loaded.
//
// Of pairs, one instruction multiplies two pairs and adds both results to a
// float32 sum: twice the multiply-adds of float32, from half the bytes. Values
// that are not bfloat16 yet are rounded to it (to nearest, ties to even);
// subnormal numbers count as zero.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PANEL_ELEMENT_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PANEL_ELEMENT_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/simd.h"

namespace blockrnn::cpu {

// How elements of type P are loaded, made and stored.
template <class P>
struct Elements {
  // What a loaded element is, and what it is multiplied with.
  using Operand = P;
  // Values in depth that an element has.
  static constexpr int kDepth = 1;

  static EIGEN_ALWAYS_INLINE Vec<P> Load(const P* p) { return cpu::Load<P>(p); }
  static EIGEN_ALWAYS_INLINE void Store(P* p, const Vec<P>& v) {
    cpu::Store(p, v);
  }

  // The first elements of a row of k values in depth, zeros past them.
  template <class T>
  static EIGEN_ALWAYS_INLINE Vec<P> Along(const T* row, int64_t k) {
    if (k >= Vec<P>::kSize) return cpu::Load<P>(row);
    return cpu::Load<P>(row, FirstLanes{static_cast<int>(k)});
  }

  // An element of each of some adjacent units: the values of `row` and of the
  // rows that follow it in depth, of which k are left; zeros past them.
  template <class T, class Lanes>
  static EIGEN_ALWAYS_INLINE Vec<P> Across(const T* row, int64_t /*ldw*/,
                                           int64_t /*k*/, Lanes lanes) {
    return cpu::Load<P>(row, lanes);
  }
};

struct WidenedBFloat16 {
  Eigen::bfloat16 value;
};

template <>
struct Vec<WidenedBFloat16> {
  static constexpr int kSize = Vec<float>::kSize;
};

template <>
struct Elements<WidenedBFloat16> : Elements<float> {
  static EIGEN_ALWAYS_INLINE Vec<float> Load(const WidenedBFloat16* p) {
#if defined(__AVX512F__)
    return Vec<float>(_mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
        16)));
#elif defined(__AVX2__)
    return Vec<float>(_mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
        16)));
#else
    return cpu::Load<float>(&p->value);
#endif
  }
  static EIGEN_ALWAYS_INLINE void Store(WidenedBFloat16* p,
                                        const Vec<float>& v) {
    cpu::Store(&p->value, v);
  }
};

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

struct BFloat16Pair {
  uint32_t bits;  // the lower half is the one of lower depth
};

#endif

#if defined(__AVX512BF16__)

template <>
struct Vec<BFloat16Pair> {
  using Packet = Vec<float>::Packet;  // bits, never read as float
  static constexpr int kSize = Vec<float>::kSize;

  Vec() = default;
  explicit Vec(const Packet& p) : packet(p) {}
  explicit Vec(const __m512i& bits) : packet(_mm512_castsi512_ps(bits)) {}
  // All lanes the same.
  explicit Vec(BFloat16Pair value)
      : Vec(_mm512_set1_epi32(static_cast<int>(value.bits))) {}
  explicit Vec(int zero) : Vec(_mm512_set1_epi32(zero)) {}

  __m512bh pairs() const {
    return reinterpret_cast<__m512bh>(_mm512_castps_si512(packet));
  }

  Packet packet;
};

EIGEN_ALWAYS_INLINE Vec<float> MulAdd(const Vec<BFloat16Pair>& a,
                                      const Vec<BFloat16Pair>& b,
                                      const Vec<float>& c) {
  return Vec<float>(_mm512_dpbf16_ps(c.packet, a.pairs(), b.pairs()));
}

template <>
struct Elements<BFloat16Pair> {
  using Operand = BFloat16Pair;
  using V = Vec<BFloat16Pair>;
  static constexpr int kDepth = 2;

  static EIGEN_ALWAYS_INLINE V Load(const BFloat16Pair* p) {
    return V(_mm512_loadu_si512(p));
  }
  static EIGEN_ALWAYS_INLINE void Store(BFloat16Pair* p, const V& v) {
    _mm512_storeu_ps(p, v.packet);
  }

  static EIGEN_ALWAYS_INLINE V Along(const Eigen::bfloat16* row, int64_t k) {
    return V(_mm512_maskz_loadu_epi16(FirstBits(k), row));
  }
  static EIGEN_ALWAYS_INLINE V Along(const float* row, int64_t k) {
    const uint32_t first = FirstBits(k);
    const auto load = [](uint32_t mask, const float* p) {
      return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p);
    };
    const __m512bh pairs =
        _mm512_cvtne2ps_pbh(load(first >> 16, row + 16), load(first, row));
    return V(reinterpret_cast<__m512i>(pairs));
  }

  template <class T, class Lanes>
  static EIGEN_ALWAYS_INLINE V Across(const T* row, int64_t ldw, int64_t k,
                                      Lanes lanes) {
    const __m512i low = Halves(row, lanes);
    if (k == 1) return V(low);
    const __m512i high = Halves(row + ldw, lanes);
    return V(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }

 private:
  static EIGEN_ALWAYS_INLINE uint32_t FirstBits(int64_t n) {
    return n >= 32 ? ~0u : (1u << n) - 1u;
  }

  // 16 values as bfloat16, zero-extended to 32 bits.
  static EIGEN_ALWAYS_INLINE __m512i Halves(const Eigen::bfloat16* p,
                                            AllLanes) {
    return _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static EIGEN_ALWAYS_INLINE __m512i Halves(const Eigen::bfloat16* p,
                                            FirstLanes lanes) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
        static_cast<__mmask16>(FirstBits(lanes.n)), p));
  }
  template <class Lanes>
  static EIGEN_ALWAYS_INLINE __m512i Halves(const float* p, Lanes lanes) {
    return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(
        _mm512_cvtneps_pbh(cpu::Load<float>(p, lanes).packet)));
  }
};

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

template <>
struct Vec<BFloat16Pair> {
  using Packet = Vec<float>::Packet;  // bits, never read as float
  static constexpr int kSize = Vec<float>::kSize;

  Vec() = default;
  explicit Vec(const Packet& p) : packet(p) {}
  explicit Vec(const uint32x4_t& bits) : packet(vreinterpretq_f32_u32(bits)) {}
  explicit Vec(const bfloat16x8_t& pairs)
      : packet(vreinterpretq_f32_bf16(pairs)) {}
  // All lanes the same.
  explicit Vec(BFloat16Pair value) : Vec(vdupq_n_u32(value.bits)) {}
  explicit Vec(int zero) : Vec(vdupq_n_u32(static_cast<uint32_t>(zero))) {}

  Packet packet;
};

// The instruction rounds each of its two sums to odd.
template <int kLane>
EIGEN_ALWAYS_INLINE Vec<float> MulAddLane(const Vec<BFloat16Pair>& a,
                                          const Vec<BFloat16Pair>& b,
                                          const Vec<float>& c) {
  Vec<float> sum = c;
  asm("bfdot %0.4s, %1.8h, %2.2h[%3]"
      : "+w"(sum.packet)
      : "w"(b.packet), "w"(a.packet), "i"(kLane));
  return sum;
}

template <>
struct Elements<BFloat16Pair> {
  using Operand = BFloat16Pair;
  using V = Vec<BFloat16Pair>;
  static constexpr int kDepth = 2;

  static EIGEN_ALWAYS_INLINE V Load(const BFloat16Pair* p) {
    return V(vld1q_u32(reinterpret_cast<const uint32_t*>(p)));
  }
  static EIGEN_ALWAYS_INLINE void Store(BFloat16Pair* p, const V& v) {
    vst1q_u32(reinterpret_cast<uint32_t*>(p), vreinterpretq_u32_f32(v.packet));
  }

  template <class T>
  static EIGEN_ALWAYS_INLINE V Along(const T* row, int64_t k) {
    if (k >= 2 * V::kSize) return EightAlong(row);
    T values[2 * V::kSize] = {};
    std::copy_n(row, k, values);
    return EightAlong(values);
  }

  template <class T, class Lanes>
  static EIGEN_ALWAYS_INLINE V Across(const T* row, int64_t ldw, int64_t k,
                                      Lanes lanes) {
    const uint16x4_t low = Halves(row, lanes);
    const uint16x4_t high = k == 1 ? vdup_n_u16(0) : Halves(row + ldw, lanes);
    return V(vreinterpretq_u32_u16(
        vcombine_u16(vzip1_u16(low, high), vzip2_u16(low, high))));
  }

 private:
  static EIGEN_ALWAYS_INLINE V EightAlong(const Eigen::bfloat16* row) {
    return V(vreinterpretq_u32_u16(
        vld1q_u16(reinterpret_cast<const uint16_t*>(row))));
  }
  static EIGEN_ALWAYS_INLINE V EightAlong(const float* row) {
    return V(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(row)),
                                 vld1q_f32(row + V::kSize)));
  }

  // 4 values as bfloat16.
  static EIGEN_ALWAYS_INLINE uint16x4_t Halves(const Eigen::bfloat16* p,
                                               AllLanes) {
    return vld1_u16(reinterpret_cast<const uint16_t*>(p));
  }
  static EIGEN_ALWAYS_INLINE uint16x4_t Halves(const Eigen::bfloat16* p,
                                               FirstLanes lanes) {
    Eigen::bfloat16 values[V::kSize] = {};
    std::copy_n(p, lanes.n, values);
    return Halves(values, AllLanes());
  }
  template <class Lanes>
  static EIGEN_ALWAYS_INLINE uint16x4_t Halves(const float* p, Lanes lanes) {
    return vreinterpret_u16_bf16(
        vcvt_bf16_f32(cpu::Load<float>(p, lanes).packet));
  }
};

#endif

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

// The type of a panel's elements for storage type T.
template <class T>
using PanelElement = std::conditional_t<std::is_same_v<T, Eigen::bfloat16>,
                                        BFloat16Pair, ComputeType<T>>;

// The type of elements that hold bfloat16 whatever the storage type.
using BFloat16Element = BFloat16Pair;

#else

template <class T>
using PanelElement = ComputeType<T>;

using BFloat16Element = WidenedBFloat16;

#endif

// Elements that a depth of k takes.
template <class P>
constexpr int64_t NumElements(int64_t k) {
  return (k + Elements<P>::kDepth - 1) / Elements<P>::kDepth;
}

// Bytes that a weight takes in a panel of elements P.
template <class P>
inline constexpr double kPackedBytes =
    static_cast<double>(sizeof(P)) / Elements<P>::kDepth;

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PANEL_ELEMENT_H_
