// Implements the header of a reserve space in device memory: forward writes it,
// backward checks it.
//
// The host cannot read it without waiting for the device, which would cost more
// than many a backward call. So the host checks only the size, which with the
// call's own geometry is sufficient for memory safety, and the device checks
// the header: with the reserve space of another op all gradients are NaN, never
// plausible numbers.

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

// The header's bytes, padded with zeros.
struct HeaderWords {
  ReserveWord of[kHeaderWords] = {};

  explicit HeaderWords(const ReserveHeader& header) {
    std::memcpy(of, &header, sizeof(header));
  }
};

// The index of this thread in the grid, and their number.
__device__ __forceinline__ int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t GridThreads() {
  return static_cast<int64_t>(gridDim.x) * kThreads;
}

// Blocks for `count` elements that are rarely written.
inline int64_t FewBlocks(int64_t count) {
  constexpr int64_t kMaxBlocks = 256;
  return std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMaxBlocks);
}

// Writes the header, and zeroes the gaps past the arrays.
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

// All outputs of a backward call.
template <class T>
struct BackwardOutputs {
  static constexpr int kArrays = 4;
  T* array[kArrays];
  int64_t elements[kArrays];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    RejectReserveKernel(const ReserveWord* reserve, HeaderWords expected,
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

// Sets all outputs to NaN unless the reserve space begins with this header.
template <class T>
Error RejectReserve(const HostInterface& host, const void* reserve,
                    const ReserveHeader& expected,
                    const BackwardOutputs<T>& outputs) {
  int64_t most = 0;
  for (const int64_t elements : outputs.elements) {
    most = std::max(most, elements);
  }
  return Launch(RejectReserveKernel<T>, FewBlocks(most), host,
                static_cast<const ReserveWord*>(reserve), HeaderWords(expected),
                outputs);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_RESERVE_HEADER_CUH_
