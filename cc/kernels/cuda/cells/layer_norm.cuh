// Implements what the forward calls of cells with layer normalisation share on
// the GPU: the norm of a row, both GEMMs, the pass that normalises x · w_x of a
// block of steps, and what is saved of both norms. The equations are in
// cc/core/layer_norm.h.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

__device__ __forceinline__ float SquareRoot(float v) { return sqrtf(v); }
__device__ __forceinline__ double SquareRoot(double v) { return sqrt(v); }

// Turns a number of a row into a normalised one, s_hat.
template <class C>
struct RowNorm {
  C mean;
  C rstd;  // 1 / √(variance + epsilon)

  __device__ __forceinline__ C operator()(C s) const {
    return (s - mean) * rstd;
  }
};

// Of a row that has kCount numbers for each unit: read(unit, numbers), which
// is called twice for each, by the same thread. All threads of the block must
// call this.
template <int kCount, class C, class Read>
__device__ __forceinline__ RowNorm<C> NormOfRow(int64_t units, C epsilon,
                                                const Read& read) {
  const C count = static_cast<C>(units == 0 ? 1 : kCount * units);
  C sum[1] = {C(0)};
  ForEachUnit(units, [&](int64_t unit) {
    C numbers[kCount];
    read(unit, numbers);
#pragma unroll
    for (int n = 0; n < kCount; ++n) sum[0] += numbers[n];
  });
  SumOverBlock(sum);
  const C mean = sum[0] / count;
  C squares[1] = {C(0)};
  ForEachUnit(units, [&](int64_t unit) {
    C numbers[kCount];
    read(unit, numbers);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const C deviation = numbers[n] - mean;
      squares[0] += deviation * deviation;
    }
  });
  SumOverBlock(squares);
  return {mean, C(1) / SquareRoot(squares[0] / count + epsilon)};
}

// Of h · w_h, the row sums[gates · H].
template <int kGates, class C>
__device__ __forceinline__ RowNorm<C> NormOfStateSums(int64_t units, C epsilon,
                                                      const C* sums) {
  return NormOfRow<kGates>(units, epsilon,
                           [&](int64_t unit, C(&numbers)[kGates]) {
#pragma unroll
                             for (int gate = 0; gate < kGates; ++gate) {
                               numbers[gate] = sums[gate * units + unit];
                             }
                           });
}

// Vectors behind a norm, [gates · H] each.
template <class T>
struct NormVectors {
  using C = ComputeType<T>;

  const T* gamma = nullptr;
  const T* biases[3] = {};  // that are added to each other; nullptr: zeros

  // gamma ∘ s_hat + the biases
  __device__ __forceinline__ C Apply(C s_hat, int64_t column) const {
    C bias = C(0);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (biases[n] != nullptr) bias += Load(biases[n], column);
    }
    return s_hat * Load(gamma, column) + bias;
  }
};

// A row of x · w_x  →  norm_x of it, with the biases behind it
template <class T, int kGates>
struct InputNormPass {
  using C = ComputeType<T>;

  StepInput<T> input;
  NormVectors<T> vectors;
  C epsilon;
  C* out;    // [block rows, gates · H], which may be the sums
  T* x_hat;  // [steps, batch, gates · H], or nullptr
  T* rstd;   // [steps, batch, 2], or nullptr; the first of the two is written

  // Nothing is written to the rows of masked steps, which no step reads; what
  // is saved of them is zeros.
  __device__ void operator()(const RowOrder& order,
                             const BlockPlace& place) const {
    const StepRow row = FindStepRow(order, place.step, place.b);
    const int64_t units = input.units;
    const int64_t saved = row.saved * kGates * units;
    RowNorm<C> norm = {C(0), C(0)};
    if (!row.masked) {
      norm = NormOfRow<kGates>(units, epsilon,
                               [&](int64_t unit, C(&numbers)[kGates]) {
                                 input.ReadSums(row, unit, numbers);
                               });
    }
    if (threadIdx.x == 0) StoreIf(rstd, 2 * row.saved, norm.rstd);
    ForEachUnit(units, [&](int64_t unit) {
      C numbers[kGates] = {};
      if (!row.masked) input.ReadSums(row, unit, numbers);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t column = gate * units + unit;
        const C hat = norm(numbers[gate]);
        StoreIf(x_hat, saved + column, hat);
        if (row.masked) continue;
        out[place.row * kGates * units + column] = vectors.Apply(hat, column);
      }
    });
  }
};

// The base of a forward call of a cell with these norms: SequenceForward with a
// pass over whole rows in each step. Args has x_hat, h_hat and rstd.
template <class T, class Args, int kGates>
class NormalizedForward : public SequenceForward<T, Args, kGates> {
  using Base = SequenceForward<T, Args, kGates>;
  using C = ComputeType<T>;

 public:
  NormalizedForward(const Args& args, const HostInterface& host)
      : Base(args, host, Cell(args)) {}

  Error Prepare() {
    const int64_t width = kGates * shape_.units;
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = Allocate(host_, shape_.batch * width, &sums_)) ||
        (error = this->ZeroSaved({args_.x_hat, args_.h_hat}, width)) ||
        (error = this->ZeroSaved({args_.rstd}, 2))) {
      return error;
    }
    x_norm_ = this->input_sums();
    if (shape_.HasInputWeights()) return nullptr;
    return Allocate(host_, this->rows().MaxRowsInBlock() * width, &x_norm_);
  }

 protected:
  using Base::args_;
  using Base::host_;
  using Base::shape_;

  // of_x: the vectors behind norm_x. row_pass(step, n): the pass over the rows
  // of step n.
  template <class RowPass>
  Error RunNormalized(const StepBlock& block, const NormVectors<T>& of_x,
                      const RowPass& row_pass) const {
    const ForwardStep<T> step = this->step();
    const InputNormPass<T, kGates> normalize = {
        step.input, of_x, epsilon(), x_norm_, args_.x_hat, args_.rstd};
    if (Error error = RunBlockRows(host_, step.rows, block, normalize)) {
      return error;
    }
    return this->RunRowSteps(block, sums_,
                             [&](int64_t n) { return row_pass(step, n); });
  }

  // For the cell's passes, which do not compute in double for float.
  C epsilon() const { return static_cast<C>(args_.epsilon); }
  C* x_norm() const { return x_norm_; }
  C* sums() const { return sums_; }

 private:
  static ForwardCell<T> Cell(const Args& args) {
    ForwardCell<T> cell;
    cell.input.w = args.w_x;
    cell.input.gates = kGates;
    cell.w_h = args.w_h;
    cell.width = args.shape.units;
    cell.in_place = true;
    cell.by_rows = true;
    if (!args.shape.HasInputWeights()) {
      cell.own_columns = kGates * args.shape.units;
    }
    return cell;
  }

  C* x_norm_ = nullptr;  // [block rows, gates · H], norm_x(x · w_x) + biases
  C* sums_ = nullptr;    // [B, gates · H], h · w_h
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LAYER_NORM_CUH_
