// Owns a matrix of weights that every step multiplies its state with: the form
// it is brought into once for all steps, and the choice of who multiplies it,
// the kernel of step_product.cuh for few rows or for many, or a BLAS.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_

#include <cstdint>

#include "cc/kernels/cuda/blas/large_gemm.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/step/step_gemm.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Slices of a product that has one gate only.
inline constexpr int kSlices = 4;

// Blocks that are enough for kManyStepRows. Not measured yet.
inline constexpr int64_t kManyStepBlocks = 64;

// Where an element of the weights stands: at unit · unit_stride + gate ·
// gate_stride + depth · depth_stride.
template <class T>
struct StepWeights {
  const T* w = nullptr;
  int64_t unit_stride = 0;
  int64_t gate_stride = 0;  // not with slices
  int64_t depth_stride = 0;
};

// Allocates and fills weights->packed; all else is given.
template <class T>
Error Pack(const HostInterface& host, const StepWeights<T>& from,
           PackedWeights<T>* weights);

// The epilogue of a step (step_panel.cuh) with the sums that a BLAS has left in
// products[rows, kSums · units]; zeros behind the rows that it multiplied.
template <int kSums, class C, class Epilogue>
struct BlasStepElement {
  const C* products;
  int64_t units;
  StepRange range;
  Epilogue epilogue;

  __device__ void operator()(int64_t row, int64_t unit) const {
    const auto operands = epilogue.Read(range.step, row, unit);
    C sums[kSums] = {};
    if (row < range.state_rows) {
#pragma unroll
      for (int gate = 0; gate < kSums; ++gate) {
        sums[gate] = products[(row * kSums + gate) * units + unit];
      }
    }
    epilogue(range.step, row, unit, sums, operands);
  }
};

// A step's product by the host's BLAS, for many rows and large weights: there
// it is faster than StepKernel by more than its launches cost.
template <class T, int kSums>
class BlasStep {
 public:
  using C = ComputeType<T>;

  explicit operator bool() const { return product_.b != nullptr; }

  Error Prepare(const HostInterface& host, const StepWeights<T>& from,
                int64_t units, int64_t depth, int64_t rows) {
    // All strides of `from` but one follow from the other: a matrix.
    product_.columns = kSums * units;
    product_.depth = depth;
    product_.a_stride = depth;
    product_.b = from.w;
    product_.b_transposed = from.depth_stride == 1;
    product_.b_stride =
        product_.b_transposed ? from.unit_stride : from.depth_stride;
    product_.c_stride = product_.columns;
    units_ = units;
    return Allocate(host, rows * product_.columns, &product_.c);
  }

  template <class Epilogue>
  Error Run(const HostInterface& host, const Alternating<T>& state,
            const StepRange& range, const Epilogue& epilogue) const {
    LargeProduct<T> product = product_;
    product.rows = range.state_rows;
    product.a = state.At(range.state);
    if (Error error = RunLargeProduct(host, product)) return error;
    return RunPointwise(host, range.rows, units_,
                        BlasStepElement<kSums, C, Epilogue>{product.c, units_,
                                                            range, epilogue});
  }

 private:
  LargeProduct<T> product_;
  int64_t units_ = 0;
};

// What a StepMatrix is.
struct StepMatrixShape {
  int64_t units = 0;
  int64_t depth = 0;
  int64_t rows = 0;    // of the largest step
  bool apart = false;  // each gate has factors of its own
};

// A matrix of a step's product with kGates sums for each unit; with kSliced,
// with one sum, made of kGates slices.
template <class T, int kGates, bool kSliced>
class StepMatrix {
 public:
  using C = ComputeType<T>;

  // To be called before all else.
  void SetShape(const StepMatrixShape& shape) { shape_ = shape; }
  const StepMatrixShape& shape() const { return shape_; }

  // How the weights are packed for few rows, whoever multiplies them.
  PackedWeights<T> PackedForFew() const {
    PackedWeights<T> weights = Packed(kGates);
    weights.lane_columns = LaneColumns<T>(kGates);
    return weights;
  }

  PackedWeights<T> PackedForMany() const {
    PackedWeights<T> weights = Packed(kSums);
    weights.lane_columns = kManyLaneColumns<T>;
    return weights;
  }

  // To be called before Prepare where a persistent kernel keeps the weights.
  void Keep() { kept_ = true; }

  Error Prepare(const HostInterface& host, const StepWeights<T>& from) {
    const auto [units, depth, rows, apart] = shape_;
    if (!kept_ && !apart && host.blas != nullptr && rows > kFewStepRows<T> &&
        rows * kSums * units * depth >= host.blas_step_work) {
      return by_blas_.Prepare(host, from, units, depth, rows);
    }
    product_.weights = PackedForMany();
    many_ =
        !kept_ && !apart && Blocks(rows, kManyStepRows<T>) >= kManyStepBlocks;
    if (!many_) product_.weights = PackedForFew();
    return Pack(host, from, &product_.weights);
  }

  // Where states and factors are told.
  StepProduct<T>& product() { return product_; }
  const StepProduct<T>& product() const { return product_; }

  template <class Epilogue>
  Error Run(const HostInterface& host, const StepRange& range,
            const Epilogue& epilogue) const {
    if (by_blas_) return by_blas_.Run(host, product_.state, range, epilogue);
    if (many_) {
      constexpr int kRows = kManyStepRows<T>;
      return Launch(StepKernel<kRows, kSums, 1, kSliced, T, Epilogue>,
                    Blocks(range.rows, kRows), host, product_, range, epilogue);
    }
    constexpr int kRows = kFewStepRows<T>;
    // How gates with one state are packed for tensor cores is not how gates
    // with states of their own are.
    if constexpr (kTensorCores<T> && !kSliced) {
      if (!shape_.apart) {
        return Launch(StepKernel<kRows, kGates, 1, kSliced, T, Epilogue>,
                      Blocks(range.rows, kRows), host, product_, range,
                      epilogue);
      }
    }
    return Launch(StepKernel<kRows, kGates, kGates, kSliced, T, Epilogue>,
                  Blocks(range.rows, kRows), host, product_, range, epilogue);
  }

 private:
  static constexpr int kSums = kSliced ? 1 : kGates;

  // With as many columns for each unit; more than sums are slices.
  PackedWeights<T> Packed(int columns) const {
    PackedWeights<T> weights;
    weights.units = shape_.units;
    weights.depth = weights.column = shape_.depth;
    weights.gates = columns;
    weights.apart = kSliced ? columns > kSums : shape_.apart;
    if (columns > kSums) {
      weights.slice = weights.column = (shape_.depth + columns - 1) / columns;
    }
    return weights;
  }
  int64_t Blocks(int64_t rows, int64_t of_block) const {
    return (rows + of_block - 1) / of_block * product_.weights.panels();
  }

  StepMatrixShape shape_;
  StepProduct<T> product_;
  BlasStep<T, kSums> by_blas_;
  bool many_ = false;
  bool kept_ = false;
};

// The recurrent weights of a cell's gates: forward with a sum for each gate,
// backward with one, the gradient of the state. Of one gate there are slices
// both ways.
template <class T, int kGates>
using ForwardMatrix =
    StepMatrix<T, kGates == 1 ? kSlices : kGates, kGates == 1>;
template <class T, int kGates>
using BackwardMatrix = StepMatrix<T, kGates == 1 ? kSlices : kGates, true>;

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_STEP_MATRIX_CUH_
