// Implements the GEMM of a block cell, C = A · W or A · Wᵀ, A in up to two
// parts ([x, h] without a copy), with an epilogue that gets the finished sums
// of all gates of a unit while they are in registers.
//
// A block computes a tile of rows × kLanes units with all gates of those units.
// It walks the depth kDepth at a time: while it multiplies the A and W of one
// step in shared memory, those of the next step are being loaded from device
// memory into registers. Each sum is accumulated in the order of the depth:
// neither the tile's size nor the grid changes it.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_

#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The width of a warp, so that its reads are coalesced along the depth as well
// as along units.
inline constexpr int kDepth = 32;
static_assert(kDepth == kLanes, "FetchStep lets a lane be a unit or a depth");
inline constexpr int kLoads = kDepth / kWarps;

// Rows of a tile per warp. kFewRows cuts a GEMM into more blocks, kManyRows
// reuses each loaded weight more often.
inline constexpr int kFewRows = 1;
inline constexpr int kManyRows = 4;
// With at least so many blocks kManyRows is used: about one for each
// multiprocessor of a large GPU. Not measured yet.
inline constexpr int64_t kManyTiles = 128;

template <class A, class W>
struct GateGemmPart {
  const A* a = nullptr;  // [rows, depth]
  int64_t a_stride = 0;  // from row to row
  const W* w = nullptr;  // [depth, gates · units]; transposed [units, depth]
  int64_t w_stride = 0;  // from row to row, as it lies in memory
  int64_t depth = 0;     // 0: the part adds nothing
};

template <class A1, class A2, class W, int kGates, bool kTransposed>
struct GateGemm {
  static_assert(kGates == 1 || !kTransposed);
  using Compute = ComputeType<W>;
  static constexpr int kNumGates = kGates;
  static constexpr bool kIsTransposed = kTransposed;

  int64_t rows = 0;
  int64_t units = 0;
  GateGemmPart<A1, W> first;
  GateGemmPart<A2, W> second;
};

// What one thread moves of a step, from device memory to shared memory.
template <class C, int kRows, int kGates>
struct Fragment {
  C a[kRows];
  C w[kGates][kLoads];
};

// The operands of one step in shared memory. A row of w is padded by one
// element, so that a warp that writes along the depth hits 32 banks.
template <class C, int kRows, int kGates>
struct Operands {
  C a[kRows * kWarps][kDepth];
  C w[kGates][kDepth][kLanes + 1];
};

// Loads depths depth0 … depth0 + kDepth of a part, zeros past its end.
template <bool kTransposed, class Part, class C, int kRows, int kGates>
__device__ __forceinline__ void FetchStep(
    const Tiles<kRows * kWarps>& tiles, int64_t tile, const Part& part,
    int64_t depth0, Fragment<C, kRows, kGates>& fragment) {
  const int64_t row0 = tiles.first_row(tile) + Warp();
  const int64_t depth_of_a = depth0 + Lane();
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int64_t row = row0 + j * kWarps;
    const bool inside = row < tiles.rows && depth_of_a < part.depth;
    fragment.a[j] =
        inside ? Load(part.a, row * part.a_stride + depth_of_a) : C(0);
  }
  const int64_t unit0 =
      tiles.first_unit(tile) + (kTransposed ? Warp() : Lane());
  const int64_t depth1 = depth0 + (kTransposed ? Lane() : Warp());
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const int64_t unit = unit0 + (kTransposed ? j * kWarps : 0);
    const int64_t depth = depth1 + (kTransposed ? 0 : j * kWarps);
    const bool inside = unit < tiles.units && depth < part.depth;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const int64_t column = gate * tiles.units + unit;
      const int64_t at = kTransposed ? column * part.w_stride + depth
                                     : depth * part.w_stride + column;
      fragment.w[gate][j] = inside ? Load(part.w, at) : C(0);
    }
  }
}

// Stores what FetchStep loaded to shared memory.
template <bool kTransposed, class C, int kRows, int kGates>
__device__ __forceinline__ void ShareStep(
    const Fragment<C, kRows, kGates>& fragment,
    Operands<C, kRows, kGates>& operands) {
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    operands.a[Warp() + j * kWarps][Lane()] = fragment.a[j];
  }
#pragma unroll
  for (int j = 0; j < kLoads; ++j) {
    const int unit = kTransposed ? Warp() + j * kWarps : Lane();
    const int depth = kTransposed ? Lane() : Warp() + j * kWarps;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      operands.w[gate][depth][unit] = fragment.w[gate][j];
    }
  }
}

// sums[row][gate] += a[row] · w[gate] for the rows of this warp and the unit of
// this lane.
template <class C, int kRows, int kGates>
__device__ __forceinline__ void MultiplyStep(
    const Operands<C, kRows, kGates>& operands, C (&sums)[kRows][kGates]) {
#pragma unroll 8
  for (int depth = 0; depth < kDepth; ++depth) {
    C w[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      w[gate] = operands.w[gate][depth][Lane()];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const C a = operands.a[Warp() * kRows + i][depth];
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) sums[i][gate] += a * w[gate];
    }
  }
}

// Calls epilogue(row, unit, sums of the gates) for every element of the GEMM.
// One block per multiprocessor is requested; otherwise the compiler spills
// registers to make room for another one.
template <int kRows, class GateGemm, class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    GateGemmKernel(GateGemm gemm, Epilogue epilogue) {
  using C = typename GateGemm::Compute;
  constexpr int kGates = GateGemm::kNumGates;
  constexpr bool kTransposed = GateGemm::kIsTransposed;
  __shared__ Operands<C, kRows, kGates> operands;

  const Tiles<kRows* kWarps> tiles = {gemm.rows, gemm.units};
  const int64_t first_end = (gemm.first.depth + kDepth - 1) / kDepth;
  const int64_t end = first_end + (gemm.second.depth + kDepth - 1) / kDepth;
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    Fragment<C, kRows, kGates> fragment;
    const auto fetch = [&](int64_t step) {
      if (step < first_end) {
        FetchStep<kTransposed>(tiles, tile, gemm.first, step * kDepth,
                               fragment);
      } else {
        FetchStep<kTransposed>(tiles, tile, gemm.second,
                               (step - first_end) * kDepth, fragment);
      }
    };
    C sums[kRows][kGates] = {};
    if (end > 0) fetch(0);
    for (int64_t step = 0; step < end; ++step) {
      __syncthreads();  // the previous operands have been read
      ShareStep<kTransposed>(fragment, operands);
      __syncthreads();
      if (step + 1 < end) fetch(step + 1);
      MultiplyStep(operands, sums);
    }
    const int64_t unit = tiles.first_unit(tile) + Lane();
    const int64_t row0 = tiles.first_row(tile) + Warp() * kRows;
    // The epilogue is compiled once, not once for each row. The sums are
    // shifted down to it, since indexing them at run time would force them out
    // of registers.
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      if (row0 + i < tiles.rows && unit < tiles.units) {
        epilogue(row0 + i, unit, sums[0]);
      }
#pragma unroll
      for (int j = 1; j < kRows; ++j) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          sums[j - 1][gate] = sums[j][gate];
        }
      }
    }
  }
}

template <class GateGemm, class Epilogue>
Error RunGateGemm(const HostInterface& host, const GateGemm& gemm,
                  const Epilogue& epilogue) {
  const Tiles<kManyRows* kWarps> many = {gemm.rows, gemm.units};
  if (many.count() >= kManyTiles) {
    return Launch(GateGemmKernel<kManyRows, GateGemm, Epilogue>, many.count(),
                  host, gemm, epilogue);
  }
  const Tiles<kFewRows* kWarps> few = {gemm.rows, gemm.units};
  return Launch(GateGemmKernel<kFewRows, GateGemm, Epilogue>, few.count(), host,
                gemm, epilogue);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_BLOCK_CELL_GEMM_CUH_
