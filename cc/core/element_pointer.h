// Defines pointer arithmetic on elements whose type may be only declared.

#ifndef BLOCKRNN_CORE_ELEMENT_POINTER_H_
#define BLOCKRNN_CORE_ELEMENT_POINTER_H_

#include <cstdint>
#include <type_traits>

namespace Eigen {
struct half;
struct bfloat16;
}  // namespace Eigen

namespace blockrnn {

// Bytes of an element. The 16-bit types may be only declared.
template <class T>
inline constexpr int64_t kElementBytes = sizeof(T);
template <>
inline constexpr int64_t kElementBytes<Eigen::half> = 2;
template <>
inline constexpr int64_t kElementBytes<Eigen::bfloat16> = 2;

// p + offset elements; an array without elements or that is not given stays so.
template <class P>
P* PointerAt(P* p, int64_t offset) {
  using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
  if (p == nullptr) return nullptr;
  return reinterpret_cast<P*>(reinterpret_cast<Byte*>(p) +
                              offset * kElementBytes<std::remove_const_t<P>>);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ELEMENT_POINTER_H_
