// Defines a scope in which subnormal numbers count as zero, as in TensorFlow's
// kernels: arithmetic with them takes many times as long, and the numbers of a
// session are those of the ops.

#ifndef BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_
#define BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace blockrnn {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : saved_(_mm_getcsr()) {
    // Round to nearest, all exceptions masked, and both kinds of flushing.
    if (saved_ != kFlush) _mm_setcsr(kFlush);
  }
  ~FlushDenormals() {
    if (saved_ != kFlush) _mm_setcsr(saved_);
  }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlush = 0x1f80 | 0x8040;
  const unsigned saved_;
#endif
};

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_FLUSH_DENORMALS_H_
