// Owns a simple RNN over a whole sequence on the GPU, forward and backward. The
// equations are in cc/core/rnn_cell.h; here stand the order of the products and
// what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_RNN_SEQUENCE_CUH_
#define BLOCKRNN_KERNELS_CUDA_RNN_SEQUENCE_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/rnn_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/input_product.cuh"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence_rows.cuh"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// x · w_x + b + h · w_h  →  h
//
// The state is rounded as it is stored: relu's slope jumps at 0, and the
// backward reads the stored state.
template <class T>
struct RnnSequenceCell {
  using C = ComputeType<T>;
  RnnSequenceForwardArgs<T> args;
  RowMap rows;
  StepInput<T> input;
  Alternating<C> h;  // [B, H], before a step and after it
  int64_t ld_h;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    C value = h.At(step)[state];
    if (!rows.Skipped(step, b)) {
      const C h_bar =
          input.Of(rows, step, b, 0, unit) + input.StateBias(0, unit) + sums[0];
      value = AsStored<T>(
          args.relu ? blockrnn::RnnForward<StandardActivations, true>(h_bar)
                    : blockrnn::RnnForward<StandardActivations, false>(h_bar));
    }
    StoreIf(args.h, rows.InMemory(step, b) * ld_h + unit, value);
    h.At(step + 1)[state] = value;
  }
};

// d_h_bar · w_hᵀ of the step after  →  d_h  →  d_h_bar; as step -1, the
// gradient of the first state.
template <class T>
struct RnnSequenceGradCell {
  using C = ComputeType<T>;
  RnnSequenceBackwardArgs<T> args;
  RowMap rows;
  int64_t ld_h;
  Alternating<C> step_dz;  // [B, H]
  C* d_h_before;           // [B, H], what skipped steps hand on
  T* dz;                   // [block rows, H]
  int64_t first;           // rows of all steps before the block

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    C d_h = sums[0] + d_h_before[state];
    if (step < 0) {
      StoreIf(args.h_prev_grad, rows.State(b) * units + unit, d_h);
      return;
    }
    const int64_t at = rows.InMemory(step, b) * ld_h + unit;
    if (args.h_grad != nullptr) d_h += Load(args.h_grad, at);
    C d_h_bar = C(0);
    C handed_on = d_h;
    if (!rows.Skipped(step, b)) {
      const C value = Load(args.h, at);
      d_h_bar = args.relu ? blockrnn::RnnBackward<true>(value, d_h)
                          : blockrnn::RnnBackward<false>(value, d_h);
      handed_on = C(0);
    }
    d_h_before[state] = handed_on;
    step_dz.At(step)[state] = d_h_bar;
    Store(dz, (rows.Before(step) - first + b) * units + unit, d_h_bar);
  }
};

template <class T>
class RnnSequenceForwardCall {
 public:
  using C = ComputeType<T>;

  RnnSequenceForwardCall(const RnnSequenceForwardArgs<T>& args,
                         const Host& host)
      : args_(args), host_(host), shape_(args.shape) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    Error error = nullptr;
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      if ((error = x_.Enter(host_, block)) ||
          (error = product_.Enter(host_, block, x_.data()))) {
        return error;
      }
      const RnnSequenceCell<T> cell = {args_, rows_.map(), product_.input(), h_,
                                       ld_h_};
      error = loop_.Run(host_, rows_, block, false, Work(w_h_, cell));
      if (error) return error;
    }
    return SequencePasses<T>::EndStates(host_, rows_.map(), h_.even, h_.odd,
                                        shape_.units, args_.h_last);
  }

 private:
  Error Prepare() {
    const int64_t units = shape_.units;
    ld_h_ = shape_.h_width > 0 ? shape_.h_width : units;
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask,
                               InputProduct<T>::RowBytes(shape_, 1))) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false)) ||
        (error = product_.Prepare(host_, shape_, rows_, args_.x,
                                  {args_.w_x, args_.b, args_.b_h, 1})) ||
        (error = Plan()) ||
        (error = w_h_.Prepare(host_, Weights(), units, units, shape_.batch,
                              args_.recurrent_dropout != nullptr)) ||
        (error = Allocate(host_, shape_.batch * units, &h_.even)) ||
        (error = Allocate(host_, shape_.batch * units, &h_.odd)) ||
        (error = SequencePasses<T>::BeginStates(
             host_, rows_.map(), args_.h_prev, units, h_.even)) ||
        (error = SequencePasses<T>::ZeroPast(host_, rows_.map(), args_.h, units,
                                             ld_h_))) {
      return error;
    }
    StepProduct<T>& product = w_h_.product();
    product.state = h_;
    product.order = rows_.map().order;
    product.state_factors = args_.recurrent_dropout;
    return nullptr;
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    return loop_.Plan(host_, rows_.steps(),
                      Planned{&w_h_, shape_.units, shape_.units, shape_.batch});
  }

  StepWeights<T> Weights() const {
    const int64_t units = shape_.units;
    return shape_.weights_by_unit ? StepWeights<T>{args_.w_h, units, 0, 1}
                                  : StepWeights<T>{args_.w_h, 1, 0, units};
  }

  const RnnSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  int64_t ld_h_ = 0;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputProduct<T> product_;
  StepMatrix<T, kSlices, true> w_h_;
  StepLoop loop_;
  Alternating<C> h_;  // [B, H]
};

// For each block of steps, the last one first: its steps, then
//   x_grad = d_h_bar · w_xᵀ    w_x_grad += xᵀ · d_h_bar
//   w_h_grad += h before the stepᵀ · d_h_bar    b_grad += Σ d_h_bar
template <class T>
class RnnSequenceBackwardCall {
 public:
  using C = ComputeType<T>;

  RnnSequenceBackwardCall(const RnnSequenceBackwardArgs<T>& args,
                          const Host& host)
      : args_(args), host_(host), shape_(args.shape) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    Error error = nullptr;
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      cell_.first = rows_.Before(block.first);
      if ((error = loop_.Run(host_, rows_, block, true, Work(w_h_t_, cell_))) ||
          (error = Weights(block))) {
        return error;
      }
    }
    if ((error = BeforeFirst()) || (error = w_x_grad_.Finish(host_)) ||
        (error = w_h_grad_.Finish(host_))) {
      return error;
    }
    return b_grad_.Finish(host_);
  }

 private:
  // Step -1: the gradient of the first state.
  Error BeforeFirst() {
    return w_h_t_.Run(host_, {-1, shape_.batch, rows_.Active(0), 0}, cell_);
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    const int64_t row_bytes =
        InputGrad<T>::RowBytes(shape_) +
        static_cast<int64_t>(sizeof(C)) * (2 * units + shape_.input);
    const int64_t ld_h = shape_.h_width > 0 ? shape_.h_width : units;
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(host_, shape_, rows_,
                                     {args_.h, ld_h, args_.h_prev, units},
                                     args_.recurrent_dropout)) ||
        (error = dz_.Prepare(host_, rows_, units)) || (error = Plan()) ||
        (error = w_h_t_.Prepare(host_, Transposed(), units, units, batch,
                                args_.recurrent_dropout != nullptr)) ||
        (error = Allocate(host_, batch * units, &cell_.step_dz.even)) ||
        (error = Allocate(host_, batch * units, &cell_.step_dz.odd)) ||
        (error = Allocate(host_, batch * units, &cell_.d_h_before)) ||
        (error = SequencePasses<T>::BeginStates(
             host_, rows_.map(), args_.h_last_grad, units, cell_.d_h_before)) ||
        (error = w_x_grad_.Prepare(
             host_, shape_.HasInputWeights() ? args_.w_x_grad : nullptr,
             shape_.input * units)) ||
        (error = w_h_grad_.Prepare(host_, args_.w_h_grad, units * units)) ||
        (error = b_grad_.Prepare(host_, rows_, args_.b_grad, units))) {
      return error;
    }
    cell_.args = args_;
    cell_.rows = rows_.map();
    cell_.ld_h = ld_h;
    cell_.dz = dz_.data;
    StepProduct<T>& product = w_h_t_.product();
    product.state = cell_.step_dz;
    product.order = rows_.map().order;
    product.sum_factors = args_.recurrent_dropout;
    return nullptr;
  }

  Error Weights(const StepBlock& block) {
    const int64_t units = shape_.units;
    const GateColumns<T> dz = ColumnsOf(dz_, 0, units);
    Error error = nullptr;
    if ((error = x_.Enter(host_, block)) ||
        (error = AddWeights(host_,
                            WeightSum<T>{block.rows, x_.data(), shape_.input,
                                         dz, 0, units, shape_.weights_by_unit},
                            w_x_grad_)) ||
        (error = state_grad_.Add(host_, block, dz_, 0, 1, w_h_grad_)) ||
        (error = b_grad_.Add(host_, block, dz)) ||
        (error = SequencePasses<T>::StoreGates(
             host_, rows_.map(), block, shape_, dz_.data, 1, args_.x_grad))) {
      return error;
    }
    return x_grad_.Add(host_, block, dz, args_.w_x, units, true, true);
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    return loop_.Plan(
        host_, rows_.steps(),
        Planned{&w_h_t_, shape_.units, shape_.units, shape_.batch});
  }

  StepWeights<T> Transposed() const {
    const int64_t units = shape_.units;
    return shape_.weights_by_unit ? StepWeights<T>{args_.w_h, 1, 0, units}
                                  : StepWeights<T>{args_.w_h, units, 0, 1};
  }

  const RnnSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_;  // [block rows, H]
  StepMatrix<T, kSlices, true> w_h_t_;
  StepLoop loop_;
  RnnSequenceGradCell<T> cell_ = {};
  WeightGrad<T> w_x_grad_;
  WeightGrad<T> w_h_grad_;
  BiasGrad<T> b_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_RNN_SEQUENCE_CUH_
