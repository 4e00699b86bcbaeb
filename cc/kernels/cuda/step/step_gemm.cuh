// Implements the kernel of one step's GEMM, state · w_h, with an epilogue that
// gets the finished sums of a unit's gates. step_matrix.cuh packs w_h once for
// all steps and chooses the kernel; step_core.cuh and step_tensor.cuh multiply
// a tile.
//
// A block computes kRows rows of a panel (step_panel.cuh). Its warps split the
// depth of the GEMM, so that even a few rows keep the memory system busy; their
// sums are added at the end, in the warps' order. An element's sums do not
// depend on the number of rows or on the grid.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_GEMM_CUH_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/step_core.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Runs the epilogue (step_panel.cuh) for all rows of a step and all units.
// kStates: the number of states that a block may have to hold, one or one for
// each gate.
template <int kRows, int kGates, int kStates, bool kSliced, class T,
          class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    StepKernel(StepGemm<T> gemm, StepRange range, Epilogue epilogue) {
  using Tile =
      std::conditional_t<kTensorCores<T>, TensorTile<kRows, kGates, kStates, T>,
                         CoreTile<kRows, kGates, kStates, T>>;
  struct alignas(16) Memory {
    unsigned char value[Tile::kBytes];
  };
  __shared__ Memory memory;
  constexpr int kUnits = PanelUnits<T>(kGates, (kStates > 1));
  const int64_t panels = (gemm.weights.units + kUnits - 1) / kUnits;
  const int64_t tiles = (range.rows + kRows - 1) / kRows * panels;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t panel = tile % panels;
    const int64_t row0 = tile / panels * kRows;
    const TileElements<kRows, kUnits> elements = {panel, row0};
    typename Epilogue::Operands operands = {};
    Tile::Sum(gemm, range, panel, row0, memory.value, [&] {
      operands = ReadOperands(gemm, epilogue, range, elements);
    });
    FinishTile<kGates, kSliced>(
        gemm, epilogue, range, elements, operands,
        reinterpret_cast<const ComputeType<T>*>(memory.value));
    __syncthreads();  // the sums have been read
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_GEMM_CUH_
