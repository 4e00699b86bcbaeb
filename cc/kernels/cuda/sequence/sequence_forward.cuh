// Owns what the forward calls over a whole sequence share on the GPU: the order
// of events, x · w_x + b of a block of steps, the recurrent product of a step,
// and the states at both ends. What a step makes of the products is the cell's.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_

#include <cstdint>
#include <initializer_list>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/step/step_gemm.cuh"
#include "cc/kernels/cuda/step/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What the epilogues of every cell have (StepEpilogue in step_panel.cuh).
template <class T>
struct ForwardStep {
  using C = ComputeType<T>;

  RowMap rows;
  StepInput<T> input;
  Alternating<C> state;       // [B, width], h before a step and after it
  Alternating<T> multiplied;  // the same as w_h multiplies it
  T* h = nullptr;             // [steps, batch, ld_h]
  int64_t width = 0;
  int64_t ld_h = 0;

  // x · w_x + b + b_h of the first kStateBiases gates, x · w_x + b of the
  // others.
  template <int kStateBiases, int kGates>
  __device__ __forceinline__ void ReadInput(const RowPlace& place, int64_t unit,
                                            C (&out)[kGates]) const {
    input.Read(place, unit, out);
#pragma unroll
    for (int gate = 0; gate < kStateBiases; ++gate) {
      out[gate] += input.StateBias(gate, unit);
    }
  }
  __device__ __forceinline__ C HBefore(int64_t step, int64_t b,
                                       int64_t unit) const {
    return state.At(step)[b * width + unit];
  }
  __device__ __forceinline__ void StoreH(const RowPlace& place, int64_t step,
                                         int64_t b, int64_t unit,
                                         C value) const {
    StoreIf(h, place.in_memory * ld_h + unit, value);
    StoreBoth(multiplied.At(step + 1), state.At(step + 1), b * width + unit,
              value);
  }
};

// What a cell is to SequenceForward.
template <class T>
struct ForwardCell {
  InputWeights<T> input;
  const T* w_h = nullptr;  // [width, gates · H], or transposed
  int64_t width = 0;       // of the state
  int64_t more_gates = 0;  // whose products with x are the cell's own
  bool in_place = false;   // the state after a step is written over the one
                           // before it, which no product reads any more
};

// The events of a call in their order, to which a cell adds what is its own:
//   Prepare  rows and x; how steps are run; weights; the first state
//   Run      for each block x · w_x + b, and RunSteps as the cell's work; then
//            the last state
// kGates: of the recurrent product.
template <class T, class Args, int kGates>
class SequenceForward {
 public:
  using C = ComputeType<T>;

  SequenceForward(const Args& args, const HostInterface& host,
                  const ForwardCell<T>& cell)
      : args_(args), host_(host), shape_(args.shape), cell_(cell) {}

  // others: the matrices of a step's other products, in their order, which are
  // to be prepared after this.
  template <class... Matrices>
  Error Prepare(Matrices&... others) {
    w_h_.SetShape({shape_.units, cell_.width, shape_.batch,
                   args_.recurrent_dropout != nullptr});
    Error error = nullptr;
    if ((error = PrepareInput()) ||
        (error = loop_.Plan(host_, rows_.steps(), w_h_, others...)) ||
        (error = w_h_.Prepare(host_, RecurrentWeights()))) {
      return error;
    }
    return PrepareState();
  }

  // Zeros past the rows' lengths in what is kept for the backward.
  Error ZeroSaved(std::initializer_list<T*> saved) const {
    if (shape_.saved_in_steps) return nullptr;
    for (T* out : saved) {
      if (Error error = SequencePasses<T>::ZeroPast(
              host_, map(), out, shape_.units, shape_.units)) {
        return error;
      }
    }
    return nullptr;
  }

  // work(block) for each block of steps, once its step() is known.
  template <class BlockWork>
  Error Run(const BlockWork& work) {
    Error error = nullptr;
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      if ((error = Enter(host_, block)) || (error = x_.Enter(host_, block)) ||
          (error = product_.Enter(host_, block, x_.data())) ||
          (error = work(block)) || (error = Leave(host_, block))) {
        return error;
      }
    }
    return SequencePasses<T>::EndStates(host_, map(), state_.even, state_.odd,
                                        cell_.width, args_.h_last);
  }

  // The steps of a block: the epilogue (step_panel.cuh) with the sums of
  // h · w_h, then the step's other products.
  template <class Epilogue, class... Works>
  Error RunSteps(const StepBlock& block, const Epilogue& epilogue,
                 const Works&... others) const {
    return loop_.Run(host_, rows_, block, false, Work(w_h_, epilogue),
                     others...);
  }

  // What the epilogues of a block have.
  ForwardStep<T> step() const {
    return {map(),   product_.input(), state_, multiplied_,
            args_.h, cell_.width,      ld_h()};
  }
  const SequenceRows& rows() const { return rows_; }
  // The block's rows of x.
  const T* x() const { return x_.data(); }

 private:
  const RowMap& map() const { return rows_.map(); }
  int64_t ld_h() const {
    return shape_.h_width > 0 ? shape_.h_width : cell_.width;
  }

  Error PrepareInput() {
    const int64_t row_bytes =
        InputProduct<T>::RowBytes(shape_, kGates + cell_.more_gates);
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false))) {
      return error;
    }
    return product_.Prepare(host_, shape_, rows_, args_.x, cell_.input);
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
    StepProduct<T>& product = w_h_.product();
    product.state = multiplied_;
    product.order = map().order;
    product.state_factors = args_.recurrent_dropout;
    // Slices of one gate have the same factors.
    if (kGates > 1) product.factors_stride = size;
    if ((error = SequencePasses<T>::BeginStates(host_, map(), args_.h_prev,
                                                cell_.width, state_.even,
                                                multiplied_.even))) {
      return error;
    }
    return SequencePasses<T>::ZeroPast(host_, map(), args_.h, cell_.width,
                                       ld_h());
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
    return {cell_.w_h, 1, slices ? 0 : units, kGates * units};
  }

  const Args& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const ForwardCell<T> cell_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputProduct<T> product_;
  ForwardMatrix<T, kGates> w_h_;
  StepLoop loop_;
  Alternating<C> state_;       // [B, width]
  Alternating<T> multiplied_;  // the same array where T is computed as such
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_FORWARD_CUH_
