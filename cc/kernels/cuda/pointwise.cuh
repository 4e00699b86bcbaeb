// Implements kernels over [rows, units] without a GEMM: pointwise passes, and
// sums over the rows in an order that depends on the shape alone.

#ifndef BLOCKRNN_KERNELS_CUDA_POINTWISE_CUH_
#define BLOCKRNN_KERNELS_CUDA_POINTWISE_CUH_

#include <cstdint>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Calls element(row, unit) for all of [rows, units]. One block per
// multiprocessor is requested, so that registers do not spill.
template <class Element>
__global__ void __launch_bounds__(kThreads, 1)
    PointwiseKernel(Tiles<kWarps> tiles, Element element) {
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const int64_t row = tiles.first_row(tile) + Warp();
    const int64_t unit = tiles.first_unit(tile) + Lane();
    if (row < tiles.rows && unit < tiles.units) element(row, unit);
  }
}

template <class Element>
Error RunPointwise(const HostInterface& host, int64_t rows, int64_t units,
                   const Element& element) {
  const Tiles<kWarps> tiles = {rows, units};
  return Launch(PointwiseKernel<Element>, tiles.count(), host, tiles, element);
}

// Calls element(j) for all j < count, in rows of a warp.
template <class Element>
struct ForEachElement {
  int64_t count;
  Element element;

  __device__ void operator()(int64_t row, int64_t lane) const {
    const int64_t j = row * kLanes + lane;
    if (j < count) element(j);
  }
};

template <class Element>
Error RunForEach(const HostInterface& host, int64_t count,
                 const Element& element) {
  return RunPointwise(host, (count + kLanes - 1) / kLanes, kLanes,
                      ForEachElement<Element>{count, element});
}

// Rows that one block adds up. Each of its warps takes every kWarps-th one.
inline constexpr int kSliceRows = 32;

// Sums each lane's value over the block's warps, in their order; all warps get
// the result. All threads of the block must call it.
template <class C>
__device__ C SumOverWarps(C value) {
  __shared__ C values[kWarps][kLanes];
  __syncthreads();  // the previous values have been read
  values[Warp()][Lane()] = value;
  __syncthreads();
  C sum = C(0);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += values[warp][Lane()];
  return sum;
}

// Calls element(row, unit, sums), which adds to kSums sums over the rows, for
// all of [rows, units]. The sums of a slice of rows go to slices[slice, kSums,
// units].
template <int kSums, class C, class Element>
__global__ void __launch_bounds__(kThreads)
    SumSlicesKernel(Tiles<kSliceRows> tiles, Element element, C* slices) {
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const int64_t first_row = tiles.first_row(tile);
    const int64_t unit = tiles.first_unit(tile) + Lane();
    C sums[kSums] = {};
    if (unit < tiles.units) {
#pragma unroll 1
      for (int i = Warp(); i < kSliceRows; i += kWarps) {
        if (first_row + i < tiles.rows) element(first_row + i, unit, sums);
      }
    }
    const int64_t slice = first_row / kSliceRows;
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      const C sum = SumOverWarps(sums[s]);
      if (Warp() == 0 && unit < tiles.units) {
        slices[(slice * kSums + s) * tiles.units + unit] = sum;
      }
    }
  }
}

template <class T, int kSums>
struct SumOutputs {
  T* sum[kSums];  // [units] each; nullptr: not wanted
};

// Σ over slices[num_slices, kSums, units], zeros where there are none; added to
// the outputs if `accumulate`.
template <int kSums, class T>
__global__ void __launch_bounds__(kThreads, 1)
    AddSlicesKernel(Tiles<1> tiles, int64_t num_slices,
                    const ComputeType<T>* slices, SumOutputs<T, kSums> out,
                    bool accumulate) {
  using C = ComputeType<T>;
  for (int64_t tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
    const int64_t unit = tiles.first_unit(tile) + Lane();
    C sums[kSums] = {};
    if (unit < tiles.units) {
      for (int64_t slice = Warp(); slice < num_slices; slice += kWarps) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          sums[s] += slices[(slice * kSums + s) * tiles.units + unit];
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      const C sum = SumOverWarps(sums[s]);
      if (Warp() != 0 || unit >= tiles.units || out.sum[s] == nullptr) continue;
      Store(out.sum[s], unit, accumulate ? Load(out.sum[s], unit) + sum : sum);
    }
  }
}

// Calls element(row, unit, sums) for all of [rows, units] and stores the sums
// over the rows, which are zeros if there is no row.
template <int kSums, class T, class Element>
Error RunPointwiseWithSums(const HostInterface& host, int64_t rows,
                           int64_t units, const Element& element,
                           const SumOutputs<T, kSums>& out) {
  using C = ComputeType<T>;
  const Tiles<kSliceRows> tiles = {rows, units};
  C* slices = nullptr;
  if (Error error = Allocate(host, tiles.down() * kSums * units, &slices)) {
    return error;
  }
  if (Error error = Launch(SumSlicesKernel<kSums, C, Element>, tiles.count(),
                           host, tiles, element, slices)) {
    return error;
  }
  const Tiles<1> sums = {1, units};
  return Launch(AddSlicesKernel<kSums, T>, sums.count(), host, sums,
                tiles.down(), slices, out, /*accumulate=*/false);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_POINTWISE_CUH_
