// Implements the packing of weights for the GEMMs of steps.

#include "cc/kernels/cuda/step/step_matrix.cuh"

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/mma.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

namespace {

// A warp packs a chunk of a panel, each lane one of its columns.
template <class T>
__global__ void __launch_bounds__(kThreads)
    PackKernel(StepWeights<T> from, PackedWeights<T> to) {
  using S = typename StorageOf<T>::Type;
  constexpr int kFours = kChunk<T> / kFour;
  const int64_t chunks = to.chunks();
  const int64_t all = to.panels() * chunks;
  const int across = kPanelColumns / to.lane_columns;
  const int64_t in_panel = Lane() % across * to.lane_columns + Lane() / across;
  const int64_t gate = in_panel / to.panel_units();
  for (int64_t n = int64_t{blockIdx.x} * kWarps + Warp(); n < all;
       n += int64_t{gridDim.x} * kWarps) {
    const int64_t unit =
        n / chunks * to.panel_units() + in_panel % to.panel_units();
    const int64_t depth0 = n % chunks * kChunk<T>;
    const bool column = gate < to.gates && unit < to.units;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      Four<S> out;
#pragma unroll
      for (int d = 0; d < kFour; ++d) {
        const int64_t depth = depth0 + four * kFour + d;
        const int64_t at = gate * to.slice + depth;
        const bool inside = column && depth < to.column && at < to.depth;
        const ComputeType<T> value =
            inside ? Load(from.w, unit * from.unit_stride +
                                      gate * from.gate_stride +
                                      at * from.depth_stride)
                   : ComputeType<T>(0);
        if constexpr (std::is_same_v<T, Tf32>) {
          out.value[d] = RoundToTf32(value);
        } else {
          Round(value, &out.value[d]);
        }
      }
      reinterpret_cast<Four<S>*>(
          to.packed)[(n * kPanelColumns + Lane()) * kFours + four] = out;
    }
  }
}

}  // namespace

template <class T>
Error Pack(const HostInterface& host, const StepWeights<T>& from,
           PackedWeights<T>* weights) {
  const int64_t chunks = weights->panels() * weights->chunks();
  if (Error error = AllocateStored(host, chunks * kPanelColumns * kChunk<T>,
                                   &weights->packed)) {
    return error;
  }
  return Launch(PackKernel<T>, (chunks + kWarps - 1) / kWarps, host, from,
                *weights);
}

template Error Pack(const HostInterface&, const StepWeights<Eigen::half>&,
                    PackedWeights<Eigen::half>*);
template Error Pack(const HostInterface&, const StepWeights<Eigen::bfloat16>&,
                    PackedWeights<Eigen::bfloat16>*);
template Error Pack(const HostInterface&, const StepWeights<float>&,
                    PackedWeights<float>*);
template Error Pack(const HostInterface&, const StepWeights<double>&,
                    PackedWeights<double>*);
template Error Pack(const HostInterface&, const StepWeights<Tf32>&,
                    PackedWeights<Tf32>*);

}  // namespace blockrnn::cuda
