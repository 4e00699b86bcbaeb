// Defines a scope in which subnormal numbers count as zero, as in TensorFlow's
// kernels: arithmetic with them takes many times as long, and the numbers of a
// session are those of the ops.

#ifndef BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_
#define BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace blockrnn {

class FlushDenormals {
 public:
#if defined(__x86_64__) || defined(__aarch64__)
  FlushDenormals() : saved_(Mode()) {
    if (saved_ != kFlush) SetMode(kFlush);
  }
  ~FlushDenormals() {
    if (saved_ != kFlush) SetMode(saved_);
  }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  // Round to nearest, all exceptions masked, operands and results flushed.
#if defined(__x86_64__)
  using Word = unsigned;
  static constexpr Word kFlush = 0x1f80 | 0x8040;
  static Word Mode() { return _mm_getcsr(); }
  static void SetMode(Word mode) { _mm_setcsr(mode); }
  const Word saved_;
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kFlush = 1 << 24;  // FPCR.FZ
  static Word Mode() {
    Word mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void SetMode(Word mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
  const Word saved_;
#endif
};

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_
