// Defines the SIMD vector of the engine, a thin value type over Eigen's packet
// of the instruction set that this library is compiled for, and the loads and
// stores that convert half and bfloat16 from and to float32.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_SIMD_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_SIMD_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "Eigen/Core"

// Before a loop over the rows or vectors of a tile, which must be unrolled for
// them to be in registers; by its own measure the compiler leaves the larger
// tiles in memory.
#if defined(BLOCKRNN_NO_UNROLL)
#define BLOCKRNN_UNROLL
#elif defined(__clang__)
#define BLOCKRNN_UNROLL _Pragma("unroll")
#else
#define BLOCKRNN_UNROLL _Pragma("GCC unroll 16")
#endif

// Before a loop of few iterations, of which the compiler is to make no copies.
#if defined(__clang__)
#define BLOCKRNN_ROLLED _Pragma("nounroll")
#else
#define BLOCKRNN_ROLLED _Pragma("GCC unroll 1")
#endif

namespace blockrnn::cpu {

// The type that storage type T is computed in.
template <class T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class C>
struct Vec {
  using Packet = typename Eigen::internal::packet_traits<C>::type;
  static constexpr int kSize = Eigen::internal::unpacket_traits<Packet>::size;

  Vec() = default;
  explicit Vec(const Packet& p) : packet(p) {}
  // All lanes the same.
  explicit Vec(C value) : packet(Eigen::internal::pset1<Packet>(value)) {}
  explicit Vec(int value) : Vec(static_cast<C>(value)) {}

  friend EIGEN_ALWAYS_INLINE Vec operator+(const Vec& a, const Vec& b) {
    return Vec(Eigen::internal::padd(a.packet, b.packet));
  }
  friend EIGEN_ALWAYS_INLINE Vec operator-(const Vec& a, const Vec& b) {
    return Vec(Eigen::internal::psub(a.packet, b.packet));
  }
  friend EIGEN_ALWAYS_INLINE Vec operator*(const Vec& a, const Vec& b) {
    return Vec(Eigen::internal::pmul(a.packet, b.packet));
  }

  Packet packet;
};

// a ∘ b + c
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> MulAdd(const Vec<C>& a, const Vec<C>& b,
                                  const Vec<C>& c) {
  return Vec<C>(Eigen::internal::pmadd(a.packet, b.packet, c.packet));
}

#if defined(__aarch64__)

// (Lane kLane of a) · b + c, in one instruction. Of the intrinsics GCC copies
// sums from register to register.
template <int kLane, class C>
EIGEN_ALWAYS_INLINE Vec<C> MulAddLane(const Vec<C>& a, const Vec<C>& b,
                                      const Vec<C>& c) {
  static_assert(kLane < Vec<C>::kSize);
  Vec<C> sum = c;
  if constexpr (std::is_same_v<C, float>) {
    asm("fmla %0.4s, %1.4s, %2.s[%3]"
        : "+w"(sum.packet)
        : "w"(b.packet), "w"(a.packet), "i"(kLane));
  } else {
    asm("fmla %0.2d, %1.2d, %2.d[%3]"
        : "+w"(sum.packet)
        : "w"(b.packet), "w"(a.packet), "i"(kLane));
  }
  return sum;
}

#endif

// 1 / (1 + e⁻ˣ). The one of float takes fewer operations than Eigen's, and has
// half its error: 3 units in the last place.
//
// e⁻ˣ = 2ⁿ · eʳ, n being the integer next to −x / ln 2. To add `shift` rounds
// to n and leaves it in the last bits, from where it becomes an exponent. The
// fraction is 2⁻²⁴ / (2⁻²⁴ + 2ⁿ⁻²⁴ · eʳ), so that for x in [−105, 70], beyond
// which it is 0 or 1, the exponent n − 24 is in [−125, 127].
EIGEN_ALWAYS_INLINE Vec<float> Sigmoid(const Vec<float>& x) {
  using Eigen::internal::preinterpret;
  using V = Vec<float>;
  using Bits =
      typename Eigen::internal::unpacket_traits<V::Packet>::integer_packet;
  // In this order of the operands a NaN stays.
  const V near(Eigen::internal::pmax(
      Eigen::internal::pmin(x.packet, V(70.0f).packet), V(-105.0f).packet));
  const V shift(12582912.0f);  // 1.5 · 2²³
  const V shifted = MulAdd(near, V(-1.44269504f), shift);
  const V n = shifted - shift;
  // r = −x − n · ln 2, with ln 2 in two parts, the first of few bits.
  const V rest(
      Eigen::internal::pnmsub(n.packet, V(0.693359375f).packet, near.packet));
  const V r = MulAdd(n, V(2.12194440e-4f), rest);
  // Coefficients of Eigen's pexp.
  const V r2 = r * r;
  const V even = MulAdd(r2, MulAdd(r2, V(1.37449638e-3f), V(4.16696519e-2f)),
                        V(0.499999881f));
  const V odd = MulAdd(r2, V(8.36894475e-3f), V(0.166665182f));
  const V e_r = MulAdd(r2, MulAdd(r, odd, even), r + V(1));
  const V scale(5.9604644775390625e-8f);  // 2⁻²⁴
  const V power(preinterpret<V::Packet>(
      Eigen::internal::padd(Eigen::internal::plogical_shift_left<23>(
                                preinterpret<Bits>(shifted.packet)),
                            preinterpret<Bits>(scale.packet))));
  return V(
      Eigen::internal::pdiv(scale.packet, MulAdd(e_r, power, scale).packet));
}

template <class C>
EIGEN_ALWAYS_INLINE Vec<C> Sigmoid(const Vec<C>& x) {
  return Vec<C>(Eigen::internal::scalar_logistic_op<C>().packetOp(x.packet));
}

template <class C>
EIGEN_ALWAYS_INLINE Vec<C> Tanh(const Vec<C>& x) {
  if constexpr (Eigen::internal::packet_traits<C>::HasTanh) {
    return Vec<C>(Eigen::internal::scalar_tanh_op<C>().packetOp(x.packet));
  } else {  // double in the Eigen of TensorFlow 2.19
    C lanes[Vec<C>::kSize];
    Eigen::internal::pstoreu(lanes, x.packet);
    for (C& lane : lanes) lane = std::tanh(lane);
    return Vec<C>(Eigen::internal::ploadu<typename Vec<C>::Packet>(lanes));
  }
}

// As the scalar Clamp of core/activations.h: comparisons, so that a NaN stays.
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> Clamp(const Vec<C>& x, const Vec<C>& lo,
                                 const Vec<C>& hi) {
  using Eigen::internal::pcmp_lt;
  using Eigen::internal::pselect;
  return Vec<C>(
      pselect(pcmp_lt(x.packet, lo.packet), lo.packet,
              pselect(pcmp_lt(hi.packet, x.packet), hi.packet, x.packet)));
}

// As the scalar functions of core/activations.h.
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> Relu(const Vec<C>& x) {
  const Vec<C> zero(0);
  return Vec<C>(Eigen::internal::pselect(
      Eigen::internal::pcmp_lt(x.packet, zero.packet), zero.packet, x.packet));
}
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> WherePositive(const Vec<C>& x, const Vec<C>& v) {
  const Vec<C> zero(0);
  return Vec<C>(Eigen::internal::pselect(
      Eigen::internal::pcmp_le(x.packet, zero.packet), zero.packet, v.packet));
}

// v where x > 0, else `other`.
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> WherePositive(const Vec<C>& x, const Vec<C>& v,
                                         const Vec<C>& other) {
  return Vec<C>(Eigen::internal::pselect(
      Eigen::internal::pcmp_lt(Vec<C>(0).packet, x.packet), v.packet,
      other.packet));
}

// Makes the compiler load a value once into a register. It would rather read
// memory again for each use, which is as many loads as there are multiply-adds,
// and double where a vector lies in two cache lines.
template <class C>
EIGEN_ALWAYS_INLINE void KeepInRegister(Vec<C>* v) {
#if defined(__x86_64__)
  asm("" : "+v"(v->packet));
#elif defined(__aarch64__)
  asm("" : "+w"(v->packet));
#else
  (void)v;
#endif
}

template <class C>
EIGEN_ALWAYS_INLINE C SumLanes(const Vec<C>& v) {
  return Eigen::internal::predux(v.packet);
}

// How many lanes of a vector a load or store touches: all, or the first n.
struct AllLanes {};
struct FirstLanes {
  int n;
};

template <class C, class T>
EIGEN_ALWAYS_INLINE Vec<C> Load(const T* p, AllLanes) {
  if constexpr (std::is_same_v<C, T>) {
    return Vec<C>(Eigen::internal::ploadu<typename Vec<C>::Packet>(p));
  } else {
#if defined(__aarch64__)
    const auto* const bits = reinterpret_cast<const uint16_t*>(p);
    if constexpr (std::is_same_v<T, Eigen::half>) {
      return Vec<C>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits))));
    } else if constexpr (std::is_same_v<T, Eigen::bfloat16>) {
      return Vec<C>(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits), 16)));
    }
#endif
    using Storage = Eigen::Array<T, Vec<C>::kSize, 1>;
    Eigen::Array<C, Vec<C>::kSize, 1> wide =
        Eigen::Map<const Storage>(p).template cast<C>();
    return Vec<C>(
        Eigen::internal::ploadu<typename Vec<C>::Packet>(wide.data()));
  }
}

template <class C, class T>
EIGEN_ALWAYS_INLINE void Store(T* p, const Vec<C>& v, AllLanes) {
  if constexpr (std::is_same_v<C, T>) {
    Eigen::internal::pstoreu(p, v.packet);
  } else {
#if defined(__aarch64__)
    if constexpr (std::is_same_v<T, Eigen::half>) {
      vst1_u16(reinterpret_cast<uint16_t*>(p),
               vreinterpret_u16_f16(vcvt_f16_f32(v.packet)));
      return;
    }
#endif
    using Storage = Eigen::Array<T, Vec<C>::kSize, 1>;
    Eigen::Array<C, Vec<C>::kSize, 1> wide;
    Eigen::internal::pstoreu(wide.data(), v.packet);
    Eigen::Map<Storage> out(p);
    out = wide.template cast<T>();
  }
}

// The first n lanes, converted as all lanes are: vector instructions round NaN
// and subnormal numbers differently from Eigen's types. Not inlined: converting
// 16-bit values takes much code and is needed at the end of a row only.
template <class C, class T>
EIGEN_DONT_INLINE Vec<C> LoadEachLane(const T* p, int n) {
  T lanes[Vec<C>::kSize] = {};
  std::copy_n(p, n, lanes);
  return Load<C>(lanes, AllLanes());
}
template <class C, class T>
EIGEN_DONT_INLINE void StoreEachLane(T* p, Vec<C> v, int n) {
  T lanes[Vec<C>::kSize];
  Store(lanes, v, AllLanes());
  std::copy_n(lanes, n, p);
}

// Lanes past the first n are zero and their memory is not touched. Units are
// rarely a multiple of the vector, and every row of weights ends in such a
// load, so masked instructions are used where the processor has them.
template <class C, class T>
EIGEN_ALWAYS_INLINE Vec<C> Load(const T* p, FirstLanes lanes) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && std::is_same_v<C, float>) {
    return Vec<C>(_mm512_maskz_loadu_ps((1u << lanes.n) - 1u, p));
  } else if constexpr (std::is_same_v<T, double>) {
    return Vec<C>(_mm512_maskz_loadu_pd((1u << lanes.n) - 1u, p));
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float> && std::is_same_v<C, float>) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return Vec<C>(_mm256_maskload_ps(
        p, _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes.n), lane)));
  }
#elif defined(__aarch64__)
  if constexpr (std::is_same_v<T, float> && std::is_same_v<C, float>) {
    if (lanes.n == 4) return Load<C>(p, AllLanes());
    const bool two = (lanes.n & 2) != 0;
    const bool one = (lanes.n & 1) != 0;
    float32x2_t low = vdup_n_f32(0);
    float32x2_t high = low;
    if (two) low = vld1_f32(p);
    if (two && one) high = vld1_lane_f32(p + 2, high, 0);
    if (!two && one) low = vld1_lane_f32(p, low, 0);
    return Vec<C>(vcombine_f32(low, high));
  } else if constexpr (std::is_same_v<T, double>) {
    float64x2_t first = vdupq_n_f64(0);
    if (lanes.n > 0) first = vld1q_lane_f64(p, first, 0);
    if (lanes.n == 2) first = vld1q_lane_f64(p + 1, first, 1);
    return Vec<C>(first);
  }
#endif
  return LoadEachLane<C>(p, lanes.n);
}

template <class C, class T>
EIGEN_ALWAYS_INLINE void Store(T* p, const Vec<C>& v, FirstLanes lanes) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) {
    _mm512_mask_storeu_ps(p, (1u << lanes.n) - 1u, v.packet);
    return;
  } else if constexpr (std::is_same_v<T, double>) {
    _mm512_mask_storeu_pd(p, (1u << lanes.n) - 1u, v.packet);
    return;
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float>) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes.n), lane),
                        v.packet);
    return;
  }
#elif defined(__aarch64__)
  if constexpr (std::is_same_v<T, float>) {
    if (lanes.n == 4) {
      vst1q_f32(p, v.packet);
    } else if ((lanes.n & 2) != 0) {
      vst1_f32(p, vget_low_f32(v.packet));
      if ((lanes.n & 1) != 0) vst1q_lane_f32(p + 2, v.packet, 2);
    } else if ((lanes.n & 1) != 0) {
      vst1q_lane_f32(p, v.packet, 0);
    }
    return;
  } else if constexpr (std::is_same_v<T, double>) {
    if (lanes.n > 0) vst1q_lane_f64(p, v.packet, 0);
    if (lanes.n == 2) vst1q_lane_f64(p + 1, v.packet, 1);
    return;
  }
#endif
  StoreEachLane(p, v, lanes.n);
}

template <class C, class T>
EIGEN_ALWAYS_INLINE Vec<C> Load(const T* p) {
  return Load<C>(p, AllLanes());
}

template <class C, class T>
EIGEN_ALWAYS_INLINE void Store(T* p, const Vec<C>& v) {
  Store(p, v, AllLanes());
}

// Stores to an output that may not be wanted.
template <class C, class T, class Lanes>
EIGEN_ALWAYS_INLINE void StoreIf(T* to, int64_t at, const Vec<C>& v,
                                 Lanes lanes) {
  if (to != nullptr) Store(to + at, v, lanes);
}

// The value that v has once it is stored as T.
template <class T, class C>
EIGEN_ALWAYS_INLINE Vec<C> RoundedTo(const Vec<C>& v) {
  if constexpr (std::is_same_v<T, C>) {
    return v;
  } else {
    T stored[Vec<C>::kSize];
    Store(stored, v);
    return Load<C>(stored);
  }
}

// Calls body(offset, lanes) for the vectors that cover [0, count).
template <class C, class Body>
EIGEN_ALWAYS_INLINE void ForEachVector(int64_t count, Body&& body) {
  constexpr int kSize = Vec<C>::kSize;
  int64_t offset = 0;
  for (; offset + kSize <= count; offset += kSize) body(offset, AllLanes());
  if (offset < count) {
    body(offset, FirstLanes{static_cast<int>(count - offset)});
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_SIMD_H_
