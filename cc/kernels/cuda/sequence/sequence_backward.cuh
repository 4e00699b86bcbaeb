// Owns what the backward calls over a whole sequence share on the GPU: the
// order of events, the recurrent product of a step, and the gradients that are
// products over all rows of a block of steps. What a step makes of its product
// is the cell's.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/step/step_gemm.cuh"
#include "cc/kernels/cuda/step/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What the epilogues of every cell have (StepEpilogue in step_panel.cuh).
template <class T>
struct BackwardStep {
  using C = ComputeType<T>;

  RowMap rows;
  int64_t first = 0;          // rows of all steps before the block
  const T* h_prev = nullptr;  // [B, width]
  const T* h = nullptr;       // [steps, batch, ld_h]
  const T* h_grad = nullptr;  // [steps, batch, ld_h]; nullptr: zeros
  T* h_prev_grad = nullptr;   // [B, width]
  int64_t width = 0;          // of the state
  int64_t ld_h = 0;
  C* d_h_before = nullptr;  // [B, width], of the state before a step, but
                            // for what comes through w_h
  Alternating<T> step_dz;   // [B, step_columns], of the gates of w_h
  int64_t step_columns = 0;
  T* dz = nullptr;  // [block rows, columns], these gates first
  int64_t columns = 0;

  // The gradient of h after a step, but for what comes through w_h.
  struct HGrads {
    C before;  // through all else of the step after it
    C given;
  };

  // The row of a block's arrays.
  __device__ __forceinline__ int64_t BlockRow(const RowPlace& place) const {
    return place.in_steps - first;
  }
  __device__ __forceinline__ C HAt(int64_t in_memory, int64_t unit) const {
    return Load(h, in_memory * ld_h + unit);
  }
  __device__ __forceinline__ C HBefore(int64_t step, int64_t b,
                                       int64_t unit) const {
    return step == 0 ? Load(h_prev, rows.State(b) * width + unit)
                     : HAt(rows.InMemory(step - 1, b), unit);
  }
  // Of step -1 there is no place.
  __device__ __forceinline__ void ReadPlace(int64_t step, int64_t b,
                                            int64_t unit, RowPlace* place,
                                            HGrads* grads) const {
    grads->before = d_h_before[b * width + unit];
    grads->given = C(0);
    if (step < 0) return;
    *place = rows.Place(step, b);
    if (h_grad != nullptr) {
      grads->given = Load(h_grad, place->in_memory * ld_h + unit);
    }
  }
  // *d_h = the gradient of h after a step, of which `sum` comes through w_h of
  // the step after it. After step -1 that is the first state's; it is stored,
  // and nothing is left to do.
  __device__ __forceinline__ bool GradOfH(int64_t step, int64_t b, int64_t unit,
                                          C sum, const HGrads& grads,
                                          C* d_h) const {
    *d_h = sum + grads.before + grads.given;
    if (step >= 0) return true;
    StoreIf(h_prev_grad, rows.State(b) * width + unit, *d_h);
    return false;
  }
  // column: of a gate and unit, among the gates of w_h.
  __device__ __forceinline__ void StoreDz(const RowPlace& place, int64_t step,
                                          int64_t b, int64_t column,
                                          C value) const {
    Store(step_dz.At(step), b * step_columns + column, value);
    StoreBlockDz(place, column, value);
  }
  // column: among all gates.
  __device__ __forceinline__ void StoreBlockDz(const RowPlace& place,
                                               int64_t column, C value) const {
    Store(dz, BlockRow(place) * columns + column, value);
  }
};

// What a cell is to SequenceBackward.
template <class T>
struct BackwardCell {
  // Of the gates that w_h has; gradients that are nullptr are not wanted.
  const T* w_x = nullptr;  // [I, gates · H], or transposed
  const T* w_h = nullptr;  // [width, gates · H], or transposed
  T* w_x_grad = nullptr;
  T* w_h_grad = nullptr;
  T* b_grad = nullptr;      // [gates · H]
  int64_t width = 0;        // of the state
  int64_t more_gates = 0;   // that dz has behind these
  int64_t own_columns = 0;  // of the cell's own arrays of block rows
};

// The events of a call in their order, to which a cell adds what is its own:
//   Prepare         rows and x; how steps are run; weights; the last state's
//                   gradient
//   Run             for each block, the last one first, as the cell's work
//                   RunSteps and AddGradients
//   RunBeforeFirst  the gradient of the first state
//   Finish          what was summed over the blocks
// kGates: of the recurrent product.
template <class T, class Args, int kGates>
class SequenceBackward {
 public:
  using C = ComputeType<T>;

  SequenceBackward(const Args& args, const HostInterface& host,
                   const BackwardCell<T>& cell)
      : args_(args), host_(host), shape_(args.shape), cell_(cell) {}

  // others: the matrices of a step's other products, in their order, which are
  // to be prepared after this.
  template <class... Matrices>
  Error Prepare(Matrices&... others) {
    w_h_t_.SetShape({cell_.width, gate_columns(), shape_.batch,
                     args_.recurrent_dropout != nullptr});
    Error error = nullptr;
    if ((error = PrepareRows()) ||
        (error = loop_.Plan(host_, rows_.steps(), w_h_t_, others...)) ||
        (error = w_h_t_.Prepare(host_, TransposedWeights())) ||
        (error = PrepareState()) ||
        (error = w_x_grad_.Prepare(host_, shape_, rows_, cell_.w_x_grad,
                                   cell_.b_grad, gate_columns()))) {
      return error;
    }
    return w_h_grad_.Prepare(host_, cell_.w_h_grad,
                             cell_.width * gate_columns());
  }

  // work(block) for each block of steps, the last one first.
  template <class BlockWork>
  Error Run(const BlockWork& work) {
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      step_.first = rows_.Before(block.first);
      Error error = nullptr;
      if ((error = Enter(host_, block)) || (error = work(block)) ||
          (error = Leave(host_, block))) {
        return error;
      }
    }
    return nullptr;
  }

  // The steps of a block, the last one first: the epilogue (step_panel.cuh)
  // with the sums of dz of the step after · w_hᵀ, then the step's other
  // products.
  template <class Epilogue, class... Works>
  Error RunSteps(const StepBlock& block, const Epilogue& epilogue,
                 const Works&... others) const {
    return loop_.Run(host_, rows_, block, true, Work(w_h_t_, epilogue),
                     others...);
  }

  // What a block's gates bring to the gradients of x, w_x, w_h and the bias.
  // dz_x: theirs on the side of x, dz() where that is the same as on the side
  // of h. Gates that are not w_h's are left to the cell, the last of them to
  // end the sum that x's gradient is.
  Error AddGradients(const StepBlock& block, const BlockArray<T>& dz_x) {
    const GateColumns<T> gates = ColumnsOf(dz_x, 0, gate_columns());
    Error error = nullptr;
    if ((error = x_.Enter(host_, block)) ||
        (error = SequencePasses<T>::StoreGates(
             host_, rows_.map(), block, shape_, dz_x.data,
             kGates + cell_.more_gates, args_.x_grad)) ||
        (error = w_x_grad_.Add(host_, block, x_.data(), gates)) ||
        (error = x_grad_.Add(host_, block, gates, cell_.w_x, gates.width, true,
                             cell_.more_gates == 0))) {
      return error;
    }
    return state_grad_.Add(host_, block, dz_, 0, kGates, w_h_grad_);
  }

  // Step -1, with the epilogue of the steps.
  template <class Epilogue>
  Error RunBeforeFirst(const Epilogue& epilogue) const {
    return w_h_t_.Run(host_, {-1, shape_.batch, rows_.Active(0), 0}, epilogue);
  }

  Error Finish() const {
    if (Error error = w_x_grad_.Finish(host_)) return error;
    return w_h_grad_.Finish(host_);
  }

  // What the epilogues of a block have.
  const BackwardStep<T>& step() const { return step_; }
  const SequenceRows& rows() const { return rows_; }
  // The gradients of the gates' pre-activations, on the side of h: [block rows,
  // all gates · H].
  const BlockArray<T>& dz() const { return dz_; }
  // The block's rows of x, and what sums the gradient of it.
  const T* x() const { return x_.data(); }
  const InputGrad<T>& x_grad() const { return x_grad_; }

 private:
  int64_t ld_h() const {
    return shape_.h_width > 0 ? shape_.h_width : cell_.width;
  }
  // Of the gates of w_h, and of all.
  int64_t gate_columns() const { return kGates * shape_.units; }
  int64_t all_columns() const {
    return (kGates + cell_.more_gates) * shape_.units;
  }

  Error PrepareRows() {
    const int64_t columns =
        all_columns() + cell_.width + shape_.input + cell_.own_columns;
    const int64_t row_bytes = InputGrad<T>::RowBytes(shape_) +
                              static_cast<int64_t>(sizeof(C)) * columns;
    const States<T> states = {args_.h, ld_h(), args_.h_prev, cell_.width};
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(host_, shape_, rows_, states,
                                     args_.recurrent_dropout))) {
      return error;
    }
    return dz_.Prepare(host_, rows_, all_columns());
  }

  Error PrepareState() {
    step_.rows = rows_.map();
    step_.h_prev = args_.h_prev;
    step_.h = args_.h;
    step_.h_grad = args_.h_grad;
    step_.h_prev_grad = args_.h_prev_grad;
    step_.width = cell_.width;
    step_.ld_h = ld_h();
    step_.step_columns = gate_columns();
    step_.dz = dz_.data;
    step_.columns = all_columns();
    const int64_t size = shape_.batch * cell_.width;
    const int64_t gates_size = shape_.batch * gate_columns();
    Error error = nullptr;
    if ((error = AllocateStored(host_, gates_size, &step_.step_dz.even)) ||
        (error = AllocateStored(host_, gates_size, &step_.step_dz.odd)) ||
        (error = Allocate(host_, size, &step_.d_h_before))) {
      return error;
    }
    StepProduct<T>& product = w_h_t_.product();
    product.state = step_.step_dz;
    product.order = step_.rows.order;
    product.sum_factors = args_.recurrent_dropout;
    // Slices of one gate have the same factors.
    if (kGates > 1) product.factors_stride = size;
    return SequencePasses<T>::BeginStates(host_, step_.rows, args_.h_last_grad,
                                          cell_.width, step_.d_h_before);
  }

  StepWeights<T> TransposedWeights() const {
    if (shape_.weights_by_unit) return {cell_.w_h, 1, 0, cell_.width};
    return {cell_.w_h, gate_columns(), 0, 1};
  }

  const Args& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const BackwardCell<T> cell_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_;
  BackwardMatrix<T, kGates> w_h_t_;
  StepLoop loop_;
  BackwardStep<T> step_;
  InputWeightsGrad<T> w_x_grad_;
  WeightGrad<T> w_h_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_
