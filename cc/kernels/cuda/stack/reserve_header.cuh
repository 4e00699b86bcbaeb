// Owns the header of a reserve space in device memory: writing it behind a
// forward, and its check behind a backward.
//
// The host cannot read it without waiting for the device, which would cost more
// than many a backward. So the host checks the size alone, which with the
// call's own geometry is all that memory safety needs, and the device the
// header: gradients of a reserve space that is not of the call are NaN, all of
// them, and never numbers that look right.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_RESERVE_HEADER_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_RESERVE_HEADER_CUH_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cc/core/reserve_space.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

using ReserveWord = unsigned long long;  // NOLINT: as wide as an access gets
inline constexpr int kHeaderWords = kReserveHeaderBytes / sizeof(ReserveWord);
inline constexpr int kUsedHeaderWords =
    sizeof(ReserveHeader) / sizeof(ReserveWord);
static_assert(sizeof(ReserveHeader) % sizeof(ReserveWord) == 0);

// The header as it lies in memory, zeros behind it.
struct HeaderWords {
  ReserveWord of[kHeaderWords] = {};

  explicit HeaderWords(const ReserveHeader& header) {
    std::memcpy(of, &header, sizeof(header));
  }
};

// The index of this thread in the grid, and how many there are.
__device__ __forceinline__ int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t GridThreads() {
  return static_cast<int64_t>(gridDim.x) * kThreads;
}

// Blocks for `count` elements that hardly ever are to be written.
inline int64_t FewBlocks(int64_t count) {
  constexpr int64_t kMostBlocks = 256;
  return std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks);
}

// Writes the header, and zeros to the gaps behind the arrays.
static __global__ void __launch_bounds__(kThreads)
    FinishReserveKernel(ReserveLayout::AllGaps gaps, HeaderWords header,
                        unsigned char* reserve) {
  if (GridThread() < kHeaderWords) {
    // A constant index keeps the parameter out of local memory.
#pragma unroll
    for (int n = 0; n < kHeaderWords; ++n) {
      if (GridThread() == n) {
        reinterpret_cast<ReserveWord*>(reserve)[n] = header.of[n];
      }
    }
  }
#pragma unroll
  for (int kind = 0; kind < 3; ++kind) {
    const ReserveLayout::Gaps& gap = gaps.of[kind];
    const int64_t bytes = gap.stride - gap.used;
    for (int64_t n = GridThread(); n < gap.count * bytes; n += GridThreads()) {
      reserve[gap.offset + n / bytes * gap.stride + gap.used + n % bytes] = 0;
    }
  }
}

inline Error FinishReserve(const HostInterface& host,
                           const ReserveLayout& layout,
                           const ReserveHeader& header, void* reserve) {
  const ReserveLayout::AllGaps gaps = layout.gaps();
  int64_t most = 0;
  for (const ReserveLayout::Gaps& gap : gaps.of) {
    most = std::max(most, gap.count * (gap.stride - gap.used));
  }
  return Launch(FinishReserveKernel, FewBlocks(most), host, gaps,
                HeaderWords(header), static_cast<unsigned char*>(reserve));
}

// All that a backward puts out.
template <class T>
struct BackwardOutputs {
  static constexpr int kArrays = 4;
  T* array[kArrays];
  int64_t elements[kArrays];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    RefuseReserveKernel(const ReserveWord* reserve, HeaderWords expected,
                        BackwardOutputs<T> outputs) {
  bool same = true;
#pragma unroll
  for (int n = 0; n < kUsedHeaderWords; ++n) {
    same = same && reserve[n] == expected.of[n];
  }
  if (same) return;
  constexpr auto kNan = std::numeric_limits<ComputeType<T>>::quiet_NaN();
#pragma unroll
  for (int k = 0; k < BackwardOutputs<T>::kArrays; ++k) {
    for (int64_t j = GridThread(); j < outputs.elements[k];
         j += GridThreads()) {
      Store(outputs.array[k], j, kNan);
    }
  }
}

// NaN in all outputs unless the reserve space begins with this header.
template <class T>
Error RefuseReserve(const HostInterface& host, const void* reserve,
                    const ReserveHeader& expected,
                    const BackwardOutputs<T>& outputs) {
  int64_t most = 0;
  for (const int64_t elements : outputs.elements) {
    most = std::max(most, elements);
  }
  return Launch(RefuseReserveKernel<T>, FewBlocks(most), host,
                static_cast<const ReserveWord*>(reserve), HeaderWords(expected),
                outputs);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_RESERVE_HEADER_CUH_
