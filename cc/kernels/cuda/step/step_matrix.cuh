// Defines a matrix of weights that every step multiplies with a state: how it
// is packed once for all steps, and the choice of what multiplies it, a kernel
// for few or for many rows (step_core.cuh and step_tensor.cuh multiply a tile),
// or a BLAS.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/step/step_core.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/step/step_tensor.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Slices of a GEMM with a single gate.
inline constexpr int kSlices = 4;

// With at least so many blocks kManyStepRows is used. Not measured yet.
inline constexpr int64_t kManyStepBlocks = 64;

// The layout of the weights: an element is at unit · unit_stride + gate ·
// gate_stride + depth · depth_stride.
template <class T>
struct StepWeights {
  const T* w = nullptr;
  int64_t unit_stride = 0;
  int64_t gate_stride = 0;  // not with slices
  int64_t depth_stride = 0;
};

// Allocates and fills weights->packed; all other fields are inputs.
template <class T>
Error Pack(const HostInterface& host, const StepWeights<T>& from,
           PackedWeights<T>* weights);

// The GEMM of one step, with an epilogue (step_panel.cuh) that gets the
// finished sums of a unit's gates. A block computes kRows rows of a panel. Its
// warps split the depth, so that even a few rows keep the memory system busy;
// their sums are added at the end, in the warps' order. An element's sums do
// not depend on the number of rows or on the grid.
//
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

// Runs the epilogue of a step (step_panel.cuh) on the sums that a BLAS left in
// gemms[rows, kSums · units]; zeros past the rows that it multiplied.
template <int kSums, class C, class Epilogue>
struct BlasStepElement {
  const C* gemms;
  int64_t units;
  StepRange range;
  Epilogue epilogue;

  __device__ void operator()(int64_t row, int64_t unit) const {
    const auto operands = epilogue.Read(range.step, row, unit);
    C sums[kSums] = {};
    if (row < range.state_rows) {
#pragma unroll
      for (int gate = 0; gate < kSums; ++gate) {
        sums[gate] = gemms[(row * kSums + gate) * units + unit];
      }
    }
    Save(epilogue, range.step, row, unit, operands,
         Publish(epilogue, range.step, row, unit, sums, operands));
  }
};

// An epilogue that only stores the sums of a step's rows, [rows, sums of all
// gates].
template <class C>
struct StoreStepSums {
  C* sums;
  int64_t units;

  struct Operands {};
  __device__ __forceinline__ Operands Read(int64_t, int64_t, int64_t) const {
    return {};
  }
  template <int kSums>
  __device__ void operator()(int64_t, int64_t row, int64_t unit,
                             const C (&in)[kSums], const Operands&) const {
#pragma unroll
    for (int gate = 0; gate < kSums; ++gate) {
      sums[(row * kSums + gate) * units + unit] = in[gate];
    }
  }
};

// A step's GEMM in the host's BLAS, for many rows and large weights: there it
// beats StepKernel by more than its launches cost.
template <class T, int kSums>
class BlasStep {
 public:
  using C = ComputeType<T>;

  explicit operator bool() const { return gemm_.b.data != nullptr; }

  Error Prepare(const HostInterface& host, const StepWeights<T>& from,
                int64_t units, int64_t depth, int64_t rows) {
    // All strides of `from` but one are implied by it: a matrix.
    gemm_.columns = kSums * units;
    gemm_.depth = depth;
    const bool by_unit = from.depth_stride == 1;
    gemm_.a.stride = depth;
    gemm_.b = {from.w, by_unit ? from.unit_stride : from.depth_stride, by_unit};
    gemm_.c_stride = gemm_.columns;
    units_ = units;
    return Allocate(host, rows * gemm_.columns, &gemm_.c);
  }

  template <class Epilogue>
  Error Run(const HostInterface& host, const DoubleBuffer<T>& state,
            const StepRange& range, const Epilogue& epilogue) const {
    if (Error error = RunSums(host, state, range, gemm_.c)) return error;
    return RunPointwise(
        host, range.rows, units_,
        BlasStepElement<kSums, C, Epilogue>{gemm_.c, units_, range, epilogue});
  }

  // sums[state_rows, kSums · units]
  Error RunSums(const HostInterface& host, const DoubleBuffer<T>& state,
                const StepRange& range, C* sums) const {
    LargeGemm<T> gemm = gemm_;
    gemm.rows = range.state_rows;
    gemm.a.data = state.Buffer(range.state);
    gemm.c = sums;
    return RunLargeGemm(host, gemm);
  }

 private:
  LargeGemm<T> gemm_;
  int64_t units_ = 0;
};

// The dimensions of a StepMatrix.
struct StepMatrixShape {
  int64_t units = 0;
  int64_t depth = 0;
  int64_t rows = 0;             // of the largest step
  bool state_per_gate = false;  // each gate has factors of its own
};

// The matrix of a step's GEMM with kGates sums for each unit; with kSliced,
// with a single sum that is split into kGates slices.
template <class T, int kGates, bool kSliced>
class StepMatrix {
 public:
  using C = ComputeType<T>;

  // Must be called first.
  void SetShape(const StepMatrixShape& shape) { shape_ = shape; }
  const StepMatrixShape& shape() const { return shape_; }

  // How the weights are packed for few rows, whichever kernel multiplies them.
  // E: T, or Tf32.
  template <class E = T>
  PackedWeights<E> PackedForFew() const {
    PackedWeights<E> weights = Packed<E>(kGates);
    weights.lane_columns = LaneColumns<E>(kGates);
    return weights;
  }

  PackedWeights<T> PackedForMany() const {
    PackedWeights<T> weights = Packed<T>(kSums);
    weights.lane_columns = kManyLaneColumns<T>;
    return weights;
  }

  // Must be called before Prepare if a persistent kernel holds the weights in
  // shared memory. as_tf32: of float; they are packed a second time.
  void KeepResident(bool as_tf32) {
    resident_ = true;
    as_tf32_ = as_tf32;
  }

  Error Prepare(const HostInterface& host, const StepWeights<T>& from) {
    const auto [units, depth, rows, state_per_gate] = shape_;
    const bool tf32 = std::is_same_v<T, float> && host.allow_tf32;
    if (!resident_ && !state_per_gate && rows > kFewStepRows<T> &&
        rows * kSums * units * depth >= host.blas_step_work / (tf32 ? 2 : 1)) {
      return by_blas_.Prepare(host, from, units, depth, rows);
    }
    gemm_.weights = PackedForMany();
    many_ = !resident_ && !state_per_gate &&
            Blocks(rows, kManyStepRows<T>) >= kManyStepBlocks;
    if (!many_) gemm_.weights = PackedForFew();
    if (Error error = Pack(host, from, &gemm_.weights)) return error;
    if (!as_tf32_) return nullptr;
    tf32_ = PackedForFew<Tf32>();
    const StepWeights<Tf32> floats = {reinterpret_cast<const Tf32*>(from.w),
                                      from.unit_stride, from.gate_stride,
                                      from.depth_stride};
    return Pack(host, floats, &tf32_);
  }

  // Where the states and factors are set.
  StepGemm<T>& gemm() { return gemm_; }
  const StepGemm<T>& gemm() const { return gemm_; }
  // The same for a persistent kernel: E is T, or Tf32 if it keeps such weights.
  template <class E>
  StepGemm<E> ResidentGemm() const {
    if constexpr (std::is_same_v<E, T>) {
      return gemm_;
    } else {
      StepGemm<E> gemm;
      gemm.weights = tf32_;
      gemm.state = {reinterpret_cast<E*>(gemm_.state.even),
                    reinterpret_cast<E*>(gemm_.state.odd)};
      gemm.order = gemm_.order;
      return gemm;
    }
  }

  template <class Epilogue>
  Error Run(const HostInterface& host, const StepRange& range,
            const Epilogue& epilogue) const {
    if (by_blas_) return by_blas_.Run(host, gemm_.state, range, epilogue);
    if (many_) {
      constexpr int kRows = kManyStepRows<T>;
      return Launch(StepKernel<kRows, kSums, 1, kSliced, T, Epilogue>,
                    Blocks(range.rows, kRows), host, gemm_, range, epilogue);
    }
    constexpr int kRows = kFewStepRows<T>;
    // For tensor cores gates that share a state are packed in another way than
    // gates with a state each.
    if constexpr (kTensorCores<T> && !kSliced) {
      if (!shape_.state_per_gate) {
        return Launch(StepKernel<kRows, kGates, 1, kSliced, T, Epilogue>,
                      Blocks(range.rows, kRows), host, gemm_, range, epilogue);
      }
    }
    return Launch(StepKernel<kRows, kGates, kGates, kSliced, T, Epilogue>,
                  Blocks(range.rows, kRows), host, gemm_, range, epilogue);
  }

  // Only stores the sums: sums[rows, kSums · units]. All rows have a state.
  Error RunSums(const HostInterface& host, const StepRange& range,
                C* sums) const {
    if (by_blas_) return by_blas_.RunSums(host, gemm_.state, range, sums);
    return Run(host, range, StoreStepSums<C>{sums, shape_.units});
  }

 private:
  static constexpr int kSums = kSliced ? 1 : kGates;

  // With `columns` columns for each unit; if these are more than the sums they
  // are slices.
  template <class E>
  PackedWeights<E> Packed(int columns) const {
    PackedWeights<E> weights;
    weights.units = shape_.units;
    weights.depth = weights.column = shape_.depth;
    weights.gates = columns;
    weights.state_per_gate = kSliced ? columns > kSums : shape_.state_per_gate;
    if (columns > kSums) {
      weights.slice = weights.column = (shape_.depth + columns - 1) / columns;
    }
    return weights;
  }
  int64_t Blocks(int64_t rows, int64_t block_rows) const {
    return (rows + block_rows - 1) / block_rows * gemm_.weights.panels();
  }

  StepMatrixShape shape_;
  StepGemm<T> gemm_;
  BlasStep<T, kSums> by_blas_;
  bool many_ = false;
  bool resident_ = false;
  bool as_tf32_ = false;
  PackedWeights<Tf32> tf32_;
};

// The recurrent weights of a cell's gates: forward with a sum for each gate,
// backward with a single one, the gradient of the state. A single gate is
// sliced in both directions.
template <class T, int kGates>
using ForwardMatrix =
    StepMatrix<T, kGates == 1 ? kSlices : kGates, kGates == 1>;
template <class T, int kGates>
using BackwardMatrix = StepMatrix<T, kGates == 1 ? kSlices : kGates, true>;

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_
