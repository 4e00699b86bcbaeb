// Implements the engine's own kernel for large GEMMs, for machines without a
// BLAS.
//
// A block computes a square tile of c, each thread a square of it in registers.
// The block walks the depth kDepth at a time: while it multiplies the operands
// of one step in shared memory, those of the next step are being loaded into
// registers. Each sum is accumulated in the order of the depth.

#include "cc/kernels/cuda/blas/large_gemm.cuh"

#include <cstdint>

#include "cc/kernels/cuda/blas/blas.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

namespace {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kSquare = 4;  // rows and columns of a thread's square
constexpr int kAcross = kTile / kSquare;
constexpr int kDepth = 16;
constexpr int kFetches = kTile * kDepth / kThreads;  // of a thread, for a step
static_assert(kAcross * kAcross == kThreads);
static_assert(kFetches * kThreads == kTile * kDepth);

// The operands of a step in shared memory, depth-major. A row is padded by one
// element, so that writes along the depth hit several banks.
template <class C>
struct Operands {
  C a[kDepth][kTile + 1];
  C b[kDepth][kTile + 1];
};

// A matrix [lines, depth]; a line is a row of a or a column of b.
template <class T>
struct Lines {
  const T* data;
  int64_t stride;
  bool along_depth;  // neighbours in memory are neighbours in depth
  int64_t count;
  int64_t depth;
};

// The position in a step's operand of the n-th element that this thread loads.
struct Place {
  int line;
  int depth;
};
__device__ __forceinline__ Place FindPlace(bool along_depth, int n) {
  const int i = static_cast<int>(threadIdx.x) + n * kThreads;
  return along_depth ? Place{i / kDepth, i % kDepth}
                     : Place{i % kTile, i / kTile};
}

template <class T, class C>
__device__ __forceinline__ void Fetch(const Lines<T>& lines, int64_t line0,
                                      int64_t depth0, C (&out)[kFetches]) {
#pragma unroll
  for (int n = 0; n < kFetches; ++n) {
    const Place place = FindPlace(lines.along_depth, n);
    const int64_t line = line0 + place.line;
    const int64_t depth = depth0 + place.depth;
    const int64_t at = lines.along_depth ? line * lines.stride + depth
                                         : depth * lines.stride + line;
    const bool inside = line < lines.count && depth < lines.depth;
    out[n] = inside ? Load(lines.data, at) : C(0);
  }
}

template <class C>
__device__ __forceinline__ void Share(bool along_depth,
                                      const C (&fetched)[kFetches],
                                      C (&out)[kDepth][kTile + 1]) {
#pragma unroll
  for (int n = 0; n < kFetches; ++n) {
    const Place place = FindPlace(along_depth, n);
    out[place.depth][place.line] = fetched[n];
  }
}

template <class C>
__device__ __forceinline__ void Multiply(const Operands<C>& operands, int row,
                                         int column,
                                         C (&sums)[kSquare][kSquare]) {
#pragma unroll
  for (int depth = 0; depth < kDepth; ++depth) {
    C a[kSquare];
    C b[kSquare];
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      // Neighbouring threads take neighbouring columns.
      a[i] = operands.a[depth][row + i * kAcross];
      b[i] = operands.b[depth][column + i * kAcross];
    }
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
#pragma unroll
      for (int j = 0; j < kSquare; ++j) sums[i][j] += a[i] * b[j];
    }
  }
}

__host__ __device__ inline int64_t CountTiles(int64_t lines) {
  return (lines + kTile - 1) / kTile;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    LargeGemmKernel(LargeGemm<T> gemm) {
  using C = ComputeType<T>;
  __shared__ Operands<C> operands;
  const Lines<T> a = {gemm.a, gemm.a_stride, !gemm.a_transposed, gemm.rows,
                      gemm.depth};
  const Lines<T> b = {gemm.b, gemm.b_stride, gemm.b_transposed, gemm.columns,
                      gemm.depth};
  const int row = static_cast<int>(threadIdx.x) / kAcross;
  const int column = static_cast<int>(threadIdx.x) % kAcross;
  const int64_t across = CountTiles(gemm.columns);
  const int64_t tiles = CountTiles(gemm.rows) * across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row0 = tile / across * kTile;
    const int64_t column0 = tile % across * kTile;
    C fetched_a[kFetches];
    C fetched_b[kFetches];
    C sums[kSquare][kSquare] = {};
    Fetch(a, row0, 0, fetched_a);
    Fetch(b, column0, 0, fetched_b);
#pragma unroll 1
    for (int64_t depth = 0; depth < gemm.depth; depth += kDepth) {
      __syncthreads();  // the previous operands have been read
      Share(a.along_depth, fetched_a, operands.a);
      Share(b.along_depth, fetched_b, operands.b);
      __syncthreads();
      Fetch(a, row0, depth + kDepth, fetched_a);
      Fetch(b, column0, depth + kDepth, fetched_b);
      Multiply(operands, row, column, sums);
    }
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      const int64_t r = row0 + row + i * kAcross;
#pragma unroll
      for (int j = 0; j < kSquare; ++j) {
        const int64_t c = column0 + column + j * kAcross;
        if (r >= gemm.rows || c >= gemm.columns) continue;
        C* const out = gemm.c + r * gemm.c_stride + c;
        *out = gemm.accumulate ? *out + sums[i][j] : sums[i][j];
      }
    }
  }
}

template <class T>
Error RunBlas(const HostInterface& host, const LargeGemm<T>& gemm) {
  BlasGemm blas;
  blas.rows = gemm.rows;
  blas.columns = gemm.columns;
  blas.depth = gemm.depth;
  blas.type = kBlasTypeOf<T>;
  blas.c_type = kBlasTypeOf<ComputeType<T>>;
  blas.a = {gemm.a, gemm.a_stride, gemm.a_transposed};
  blas.b = {gemm.b, gemm.b_stride, gemm.b_transposed};
  blas.c = gemm.c;
  blas.c_stride = gemm.c_stride;
  blas.accumulate = gemm.accumulate;
  return host.blas->gemm(host.blas->context, blas, host);
}

}  // namespace

template <class T>
Error RunLargeGemm(const HostInterface& host, const LargeGemm<T>& gemm) {
  if (gemm.rows == 0 || gemm.columns == 0) return nullptr;
  if (gemm.depth == 0 && gemm.accumulate) return nullptr;
  if (host.blas != nullptr) return RunBlas(host, gemm);
  return Launch(LargeGemmKernel<T>,
                CountTiles(gemm.rows) * CountTiles(gemm.columns), host, gemm);
}

template Error RunLargeGemm(const HostInterface&,
                            const LargeGemm<Eigen::half>&);
template Error RunLargeGemm(const HostInterface&,
                            const LargeGemm<Eigen::bfloat16>&);
template Error RunLargeGemm(const HostInterface&, const LargeGemm<float>&);
template Error RunLargeGemm(const HostInterface&, const LargeGemm<double>&);

}  // namespace blockrnn::cuda
