// Implements a simple RNN over a whole sequence on the GPU, forward and
// backward. The equations are in cc/core/simple_rnn_cell.h; this file has the
// order of the GEMMs and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_SIMPLE_RNN_SEQUENCE_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_SIMPLE_RNN_SEQUENCE_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// x · w_x + b + h · w_h  →  h
//
// The state is rounded when it is stored: relu's slope jumps at 0, and backward
// reads the stored state.
template <class T, class Activations>
struct SimpleRnnCell {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  bool relu;

  struct Operands {
    StepRow row;
    C bars[1];  // but for the sum
    C h_prev;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    common.template ReadInput<1>(in.row, unit, in.bars);
    in.h_prev = common.PreviousH(step, b, unit);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    C value = in.h_prev;
    if (!in.row.masked) {
      const C h_bar = in.bars[0] + sums[0];
      value = AsStored<T>(
          relu ? blockrnn::SimpleRnnStep<Activations, true>(h_bar)
               : blockrnn::SimpleRnnStep<Activations, false>(h_bar));
    }
    common.StoreH(in.row, step, b, unit, value);
  }
};

// d_h_bar · w_hᵀ of the next step  →  d_h  →  d_h_bar; as step -1, the gradient
// of the initial state.
template <class T>
struct SimpleRnnGradCell {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  bool relu;

  struct Operands {
    StepRow row;
    typename BackwardStep<T>::HGrads h_grads;
    C h;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in = {};
    common.ReadRow(step, b, unit, &in.row, &in.h_grads);
    if (step >= 0) in.h = common.StoredH(in.row.memory, unit);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    C d_h = C(0);
    if (!common.GradOfH(step, b, unit, sums[0], in.h_grads, &d_h)) return;
    const bool masked = in.row.masked;
    C d_h_bar = C(0);
    if (!masked) {
      d_h_bar = relu ? blockrnn::SimpleRnnStepGrad<true>(in.h, d_h)
                     : blockrnn::SimpleRnnStepGrad<false>(in.h, d_h);
    }
    common.d_h_direct[b * common.width + unit] = masked ? d_h : C(0);
    common.StoreDz(in.row, step, b, unit, d_h_bar);
  }
};

template <class T, class Activations = StandardActivations>
class SimpleRnnForwardCall
    : public SequenceForward<T, SimpleRnnForwardArgs<T>, 1> {
  using Base = SequenceForward<T, SimpleRnnForwardArgs<T>, 1>;

 public:
  SimpleRnnForwardCall(const SimpleRnnForwardArgs<T>& args,
                       const HostInterface& host)
      : Base(args, host,
             {{args.w_x, args.b, args.b_h, 1}, args.w_h, args.shape.units}) {}

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    return this->RunSteps(block,
                          MakeByDirection(CellWork(), others.CellWork()...));
  }

 private:
  auto CellWork() const {
    return this->StateWork(
        SimpleRnnCell<T, Activations>{this->step(), this->args_.relu});
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = d_h_bar · w_xᵀ    w_x_grad += xᵀ · d_h_bar
//   w_h_grad += h of the previous stepᵀ · d_h_bar    b_grad += Σ d_h_bar
template <class T>
class SimpleRnnBackwardCall
    : public SequenceBackward<T, SimpleRnnBackwardArgs<T>, 1> {
  using Base = SequenceBackward<T, SimpleRnnBackwardArgs<T>, 1>;

 public:
  SimpleRnnBackwardCall(const SimpleRnnBackwardArgs<T>& args,
                        const HostInterface& host)
      : Base(args, host,
             {args.w_x, args.w_h, args.w_x_grad, args.w_h_grad, args.b_grad,
              args.shape.units}) {}

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    return this->RunSteps(block,
                          MakeByDirection(CellWork(), others.CellWork()...));
  }

  Error Finish() const {
    if (Error error = this->RunBeforeFirst(Cell())) return error;
    return Base::Finish();
  }

 private:
  SimpleRnnGradCell<T> Cell() const { return {this->step(), this->args_.relu}; }
  auto CellWork() const { return this->StateWork(Cell()); }
};

template <class T>
struct FunctionOf<SimpleRnnForwardArgs<T>>
    : SequenceFunction<SimpleRnnForwardCall<T>> {};
template <class T>
struct FunctionOf<SimpleRnnBackwardArgs<T>>
    : SequenceFunction<SimpleRnnBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_SIMPLE_RNN_SEQUENCE_CUH_
