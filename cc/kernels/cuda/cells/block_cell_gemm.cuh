// Implements the GEMMs of a block cell by the BLAS: a single step reads its
// weights once, so neither packing them nor a kernel of our own that keeps the
// sums for its epilogue pays (ADR 8).

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// *sums = [x, h] · w  [B, columns], in scratch. h: [B, H]; w: [I+H, columns].
template <class T>
Error MultiplyBoth(const HostInterface& host, const CellDims& dims, const T* x,
                   const T* h, const T* w, int64_t columns,
                   ComputeType<T>** sums) {
  if (Error error = Allocate(host, dims.batch * columns, sums)) return error;
  LargeGemm<T> gemm;
  gemm.rows = dims.batch;
  gemm.columns = columns;
  gemm.depth = dims.input;
  gemm.a = {x, dims.input};
  gemm.b = {w, columns};
  gemm.c = *sums;
  gemm.c_stride = columns;
  if (Error error = RunLargeGemm(host, gemm)) return error;
  gemm.depth = dims.units;
  gemm.a = {h, dims.units};
  gemm.b.data = Offset(w, dims.input * columns);
  gemm.accumulate = true;
  return RunLargeGemm(host, gemm);
}

// *sums = d · wᵀ  [B, I+H], in scratch. d: [B, columns]; w: [I+H, columns].
template <class T>
Error MultiplyTransposed(const HostInterface& host, const CellDims& dims,
                         const T* d, const T* w, int64_t columns,
                         ComputeType<T>** sums) {
  const int64_t width = dims.input + dims.units;
  if (Error error = Allocate(host, dims.batch * width, sums)) return error;
  LargeGemm<T> gemm;
  gemm.rows = dims.batch;
  gemm.columns = width;
  gemm.depth = columns;
  gemm.a = {d, columns};
  gemm.b = {w, columns, true};
  gemm.c = *sums;
  gemm.c_stride = width;
  return RunLargeGemm(host, gemm);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_
