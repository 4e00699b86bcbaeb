// Implements what the forward calls over a whole sequence share on the GPU:
// their sequence of operations, x · w_x + b of a block of steps, the recurrent
// GEMM of a step, and the initial and final states. The cells supply the
// epilogues.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_

#include <cstdint>
#include <initializer_list>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The part of an epilogue (StepEpilogue in step_panel.cuh) that all cells
// share.
template <class T>
struct ForwardStep {
  using C = ComputeType<T>;

  RowOrder rows;
  StepInput<T> input;
  DoubleBuffer<C> state;       // [B, width], h before a step and after it
  DoubleBuffer<T> multiplied;  // the same as w_h multiplies it
  T* h = nullptr;              // [steps, batch, ld_h]
  int64_t width = 0;
  int64_t ld_h = 0;
  StepZoneout<C> zoneout;  // of h

  // x · w_x + b + b_h of the first kStateBiases gates, x · w_x + b of the
  // others.
  template <int kStateBiases, int kGates>
  __device__ __forceinline__ void ReadInput(const StepRow& row, int64_t unit,
                                            C (&out)[kGates]) const {
    input.Read(row, unit, out);
#pragma unroll
    for (int gate = 0; gate < kStateBiases; ++gate) {
      out[gate] += input.StateBias(gate, unit);
    }
  }
  __device__ __forceinline__ C PreviousH(int64_t step, int64_t b,
                                         int64_t unit) const {
    return state.Buffer(step)[b * width + unit];
  }
  // What the next step reads, and the output.
  __device__ __forceinline__ void PublishH(int64_t step, int64_t b,
                                           int64_t unit, C value) const {
    StoreBoth(multiplied.Buffer(step + 1), state.Buffer(step + 1),
              b * width + unit, value);
  }
  __device__ __forceinline__ void SaveH(const StepRow& row, int64_t unit,
                                        C value) const {
    StoreIf(h, row.memory * ld_h + unit, value);
  }
  // The state after a step, given the new one: the same without zoneout.
  __device__ __forceinline__ C AfterStep(const StepRow& row, int64_t step,
                                         int64_t b, int64_t unit,
                                         C value) const {
    if (row.masked) return value;
    return AfterZoneout(
        zoneout, row.memory * width + unit,
        [&] { return PreviousH(step, b, unit); }, value);
  }
  // All of it.
  __device__ __forceinline__ void StoreH(const StepRow& row, int64_t step,
                                         int64_t b, int64_t unit,
                                         C value) const {
    value = AfterStep(row, step, b, unit, value);
    PublishH(step, b, unit, value);
    SaveH(row, unit, value);
  }
};

// What a cell passes to SequenceForward.
template <class T>
struct ForwardCell {
  InputWeights<T> input;
  const T* w_h = nullptr;   // [width, gates · H], or transposed; input.ld is
                            // that of w_h, too
  int64_t width = 0;        // of the state
  int64_t more_gates = 0;   // whose GEMMs with x are the cell's own
  bool in_place = false;    // the state after a step is written over the one
                            // before it, which no GEMM reads any more
  bool by_rows = false;     // steps are run by RunRowSteps
  int64_t own_columns = 0;  // of the cell's own arrays of block rows
};

// The base of a forward call (calls.cuh): its operations in their order,
// to which a cell adds its own.
//   Plan        the order of the rows, and how steps are run
//   Prepare     rows and x; weights; the initial state
//   BeginBlock  for each block x · w_x + b; then the cell's RunBlock, which
//               calls RunSteps
//   Finish      the final state
// kGates: of the recurrent GEMM.
template <class T, class Args, int kGates>
class SequenceForward {
 public:
  using C = ComputeType<T>;

  SequenceForward(const Args& args, const HostInterface& host,
                  const ForwardCell<T>& cell)
      : args_(args), host_(host), shape_(args.shape), cell_(cell) {}

  // others: the matrices of a step's other GEMMs, in their order, which must be
  // prepared after this.
  template <class... Matrices>
  Error Plan(Matrices&... others) {
    w_h_.SetShape({shape_.units, cell_.width, shape_.batch,
                   args_.recurrent_dropout != nullptr});
    const Error error = rows_.SetOrder(shape_, args_.mask);
    if (error != nullptr || cell_.by_rows) return error;
    return loop_.Plan(host_, rows_.steps(), w_h_, others...);
  }
  bool persistent() const { return loop_.persistent(); }

  Error Prepare() {
    Error error = nullptr;
    if ((error = PrepareInput()) ||
        (error = w_h_.Prepare(host_, RecurrentWeights()))) {
      return error;
    }
    return PrepareState();
  }

  StepBlock FirstBlock() const { return rows_.BlockFrom(0); }
  StepBlock NextBlock(const StepBlock& block) const {
    return rows_.BlockFrom(block.end());
  }
  // From here on the block's step() is known.
  Error BeginBlock(const StepBlock& block) {
    if (Error error = x_.LoadBlock(host_, block)) return error;
    return gemm_.RunBlock(host_, block, x_.data());
  }
  Error EndBlock(const StepBlock&) { return nullptr; }
  Error Finish() const {
    return passes().StoreStates(RowEnd::kLast, state_.even, state_.odd,
                                cell_.width, args_.h_last);
  }

 protected:
  // Zeroes what is saved for backward past the rows' lengths.
  Error ZeroSaved(std::initializer_list<T*> saved) const {
    return ZeroSaved(saved, shape_.units);
  }
  Error ZeroSaved(std::initializer_list<T*> saved, int64_t width) const {
    if (shape_.saved_in_steps) return nullptr;
    for (T* out : saved) {
      if (Error error = passes().ZeroPadding(out, width, width)) return error;
    }
    return nullptr;
  }

  // The recurrent GEMM of a step, whose sums of h · w_h go to the epilogue
  // (step_panel.cuh).
  template <class Epilogue>
  auto StateWork(const Epilogue& epilogue) const {
    return Work(w_h_, epilogue);
  }

  // Runs the steps of a block: the GEMMs of each, in their order, in all
  // directions that run together (MakeByDirection in step_loop.cuh).
  template <class... Works>
  Error RunSteps(const StepBlock& block, const Works&... works) const {
    return loop_.Run(host_, rows_, block, false, works...);
  }

  // Runs the steps of a block with a pass over whole rows behind each step's
  // GEMM: sums[B, kGates · H] = h · w_h, then pass_of(step)(row).
  template <class PassOf>
  Error RunRowSteps(const StepBlock& block, C* sums,
                    const PassOf& pass_of) const {
    const auto multiply = [&](const StepRange& range) {
      return w_h_.RunSums(host_, range, sums);
    };
    return blockrnn::cuda::RunRowSteps(host_, rows_, block, false, multiply,
                                       pass_of);
  }

  // For the epilogues of a block.
  ForwardStep<T> step() const {
    return {
        rows_.order(), gemm_.input(), state_, multiplied_,
        args_.h,       cell_.width,   ld_h(), StepZoneout<C>(args_.zoneout_h)};
  }
  const SequenceRows& rows() const { return rows_; }
  SequencePasses<T> passes() const { return {host_, rows_.order()}; }
  // The block's rows of x.
  const T* x() const { return x_.data(); }
  // x · w_x of the block's rows, [block rows, gates · H]; nullptr: no w_x.
  C* input_sums() const { return gemm_.sums(); }

  const Args& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;

 private:
  int64_t ld_h() const {
    return shape_.h_width > 0 ? shape_.h_width : cell_.width;
  }

  Error PrepareInput() {
    const int64_t row_bytes =
        InputGemm<T>::RowBytes(shape_, kGates + cell_.more_gates) +
        cell_.own_columns * static_cast<int64_t>(sizeof(C));
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false))) {
      return error;
    }
    return gemm_.Prepare(host_, shape_, rows_, args_.x, cell_.input);
  }

  Error PrepareState() {
    const int64_t size = shape_.batch * cell_.width;
    Error error = AllocateState(size, &multiplied_.even, &state_.even);
    if (error != nullptr) return error;
    if (cell_.in_place) {
      multiplied_.odd = multiplied_.even;
      state_.odd = state_.even;
    } else if ((error = AllocateState(size, &multiplied_.odd, &state_.odd))) {
      return error;
    }
    StepGemm<T>& gemm = w_h_.gemm();
    gemm.state = multiplied_;
    gemm.order = rows_.order().batch_rows;
    gemm.state_factors = args_.recurrent_dropout;
    // Slices of a single gate share its factors.
    if (kGates > 1) gemm.factors_stride = shape_.MemoryBatch() * cell_.width;
    if ((error = passes().LoadStates(RowEnd::kFirst, args_.h_prev, cell_.width,
                                     state_.even, multiplied_.even))) {
      return error;
    }
    return passes().ZeroPadding(args_.h, cell_.width, ld_h());
  }

  Error AllocateState(int64_t size, T** multiplied, C** state) const {
    if (Error error = AllocateStored(host_, size, multiplied)) return error;
    return ComputedInPlace(host_, *multiplied, size, state);
  }

  StepWeights<T> RecurrentWeights() const {
    const int64_t units = shape_.units;
    const int64_t width = cell_.width;
    const bool slices = kGates == 1;
    if (shape_.weights_by_unit) {
      return {cell_.w_h, width, slices ? 0 : units * width, 1};
    }
    const int64_t ld = cell_.input.ld > 0 ? cell_.input.ld : kGates * units;
    return {cell_.w_h, 1, slices ? 0 : units, ld};
  }

  const ForwardCell<T> cell_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGemm<T> gemm_;
  ForwardMatrix<T, kGates> w_h_;
  StepLoop loop_;
  DoubleBuffer<C> state_;       // [B, width]
  DoubleBuffer<T> multiplied_;  // the same array if T is the compute type
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_
