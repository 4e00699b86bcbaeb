// Implements what the backward calls over a whole sequence share on the GPU:
// their sequence of operations, the recurrent GEMM of a step, and the gradients
// that are GEMMs over all rows of a block of steps. The cells supply the
// epilogues.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/row_steps.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The part of an epilogue (StepEpilogue in step_panel.cuh) that all cells
// share.
template <class T>
struct BackwardStep {
  using C = ComputeType<T>;

  RowOrder rows;
  int64_t first = 0;          // rows of all steps before the block
  const T* h_prev = nullptr;  // [B, width]
  const T* h = nullptr;       // [steps, batch, ld_h]
  const T* h_grad = nullptr;  // [steps, batch, ld_h]; nullptr: zeros
  T* h_prev_grad = nullptr;   // [B, width]
  int64_t width = 0;          // of the state
  int64_t ld_h = 0;
  C* d_h_direct = nullptr;  // [B, width], gradient of the previous state,
                            // without for what comes through w_h
  DoubleBuffer<T> step_dz;  // [B, step_columns], of the gates of w_h
  int64_t step_columns = 0;
  T* dz = nullptr;    // [block rows, columns], these gates first
  T* dz_x = nullptr;  // the same on the side of x, where the sides differ
  int64_t columns = 0;
  StepZoneout<C> zoneout;  // of h

  // The gradient of h after a step, without the part through w_h.
  struct HGrads {
    C direct;  // through all but w_h of the next step
    C output;
  };

  // The row of a block's arrays.
  __device__ __forceinline__ int64_t BlockRow(const StepRow& row) const {
    return row.packed - first;
  }
  __device__ __forceinline__ C StoredH(int64_t memory_row, int64_t unit) const {
    return Load(h, memory_row * ld_h + unit);
  }
  __device__ __forceinline__ C PreviousH(int64_t step, int64_t b,
                                         int64_t unit) const {
    if (step > 0) return StoredH(rows.MemoryRow(step - 1, b), unit);
    const int64_t row = rows.FirstStateRow(b);
    return row < 0 ? C(0) : Load(h_prev, row * width + unit);
  }
  // Step -1 has no row.
  __device__ __forceinline__ void ReadRow(int64_t step, int64_t b, int64_t unit,
                                          StepRow* row, HGrads* grads) const {
    grads->direct = d_h_direct[b * width + unit];
    grads->output = C(0);
    if (step < 0) return;
    *row = FindStepRow(rows, step, b);
    if (h_grad != nullptr) {
      grads->output = Load(h_grad, row->memory * ld_h + unit);
    }
  }
  // *d_h = the gradient of h after a step; `sum` is its part through w_h of the
  // next step. For step -1 that is the gradient of the initial state, which is
  // stored; returns whether there is more to do.
  __device__ __forceinline__ bool GradOfH(int64_t step, int64_t b, int64_t unit,
                                          C sum, const HGrads& grads,
                                          C* d_h) const {
    *d_h = sum + grads.direct + grads.output;
    if (step >= 0) return true;
    const int64_t row = rows.FirstStateRow(b);
    if (row >= 0) StoreIf(h_prev_grad, row * width + unit, *d_h);
    return false;
  }
  // The part of it that zoneout passes on to the state before a step that is
  // not masked; the rest is that of the new state.
  __device__ __forceinline__ C KeptGrad(const StepRow& row, int64_t unit,
                                        C d_h) const {
    return KeptShare(zoneout, row.memory * width + unit) * d_h;
  }
  // What the next step reads. column: of a gate and unit, among the gates of
  // w_h.
  __device__ __forceinline__ void PublishDz(int64_t step, int64_t b,
                                            int64_t column, C value) const {
    Store(step_dz.Buffer(step), b * step_columns + column, value);
  }
  // And what the GEMMs over all rows of a block read.
  __device__ __forceinline__ void StoreDz(const StepRow& row, int64_t step,
                                          int64_t b, int64_t column,
                                          C value) const {
    PublishDz(step, b, column, value);
    StoreBlockDz(row, column, value);
  }
  // column: among all gates.
  __device__ __forceinline__ void StoreBlockDz(const StepRow& row,
                                               int64_t column, C value) const {
    Store(dz, BlockRow(row) * columns + column, value);
  }
  __device__ __forceinline__ void StoreBlockDzX(const StepRow& row,
                                                int64_t column, C value) const {
    Store(dz_x, BlockRow(row) * columns + column, value);
  }
};

// What a cell passes to SequenceBackward.
template <class T>
struct BackwardCell {
  // Of the gates of w_h; a gradient that is nullptr is not computed.
  const T* w_x = nullptr;  // [I, gates · H], or transposed
  const T* w_h = nullptr;  // [width, gates · H], or transposed
  T* w_x_grad = nullptr;
  T* w_h_grad = nullptr;
  T* b_grad = nullptr;      // [gates · H]
  int64_t width = 0;        // of the state
  int64_t more_gates = 0;   // that dz has behind these
  int64_t own_columns = 0;  // of the cell's own arrays of block rows
  bool by_rows = false;     // steps are run by RunRowSteps
  bool sides_differ =
      false;         // dz on the side of x is not that on the side of h
  int64_t ld_w = 0;  // elements from row to row of the weights and their
                     // gradients, unless transposed; 0: gates · H
};

// The base of a backward call (calls.cuh): its operations in their order,
// to which a cell adds its own.
//   Plan            the order of the rows, and how steps are run
//   Prepare         rows and x; weights; the last state's gradient
//   BeginBlock      for each block, the last one first; then the cell's
//                   RunBlock, which calls RunSteps
//   EndBlock        the gradients of x and of the weights
//   RunBeforeFirst  the gradient of the initial state
//   Finish          what was summed over the blocks
// kGates: of the recurrent GEMM.
template <class T, class Args, int kGates>
class SequenceBackward {
 public:
  using C = ComputeType<T>;

  SequenceBackward(const Args& args, const HostInterface& host,
                   const BackwardCell<T>& cell)
      : args_(args), host_(host), shape_(args.shape), cell_(cell) {}

  // others: the matrices of a step's other GEMMs, in their order, which must be
  // prepared after this.
  template <class... Matrices>
  Error Plan(Matrices&... others) {
    w_h_t_.SetShape({cell_.width, gate_columns(), shape_.batch,
                     args_.recurrent_dropout != nullptr});
    const Error error = rows_.SetOrder(shape_, args_.mask);
    if (error != nullptr || cell_.by_rows) return error;
    return loop_.Plan(host_, rows_.steps(), w_h_t_, others...);
  }
  bool persistent() const { return loop_.persistent(); }

  Error Prepare() {
    Error error = nullptr;
    if ((error = PrepareRows()) ||
        (error = w_h_t_.Prepare(host_, TransposedWeights())) ||
        (error = PrepareState()) ||
        (error = w_x_grad_.Prepare(host_, shape_, rows_, cell_.w_x_grad,
                                   cell_.b_grad, gate_columns(), ld_w()))) {
      return error;
    }
    return w_h_grad_.Prepare(host_, cell_.w_h_grad, cell_.width, gate_columns(),
                             ld_w());
  }

  StepBlock FirstBlock() const { return rows_.BlockBefore(rows_.steps()); }
  StepBlock NextBlock(const StepBlock& block) const {
    return rows_.BlockBefore(block.first);
  }
  // From here on the block's step() is known.
  Error BeginBlock(const StepBlock& block) {
    step_.first = rows_.RowsBefore(block.first);
    return nullptr;
  }

  // Adds a block's part to the gradients of x, w_x, w_h and the bias. Gates
  // without a part in w_h are left to the cell; the last one of them finishes
  // the gradient of x.
  Error EndBlock(const StepBlock& block) {
    const BlockArray<T>& dz_x = cell_.sides_differ ? dz_x_ : dz_;
    const GateColumns<T> gates = ColumnsOf(dz_x, 0, gate_columns());
    Error error = nullptr;
    if ((error = x_.LoadBlock(host_, block)) ||
        (error =
             passes().StoreGates(block, shape_, dz_x.data,
                                 kGates + cell_.more_gates, args_.x_grad)) ||
        (error = w_x_grad_.Add(host_, block, x_.data(), gates)) ||
        (error = x_grad_.Add(host_, block, gates, cell_.w_x, ld_w(), true,
                             cell_.more_gates == 0))) {
      return error;
    }
    return state_grad_.Add(host_, block, dz_, 0, kGates, w_h_grad_);
  }

  Error Finish() const {
    if (Error error = w_x_grad_.Finish(host_)) return error;
    return w_h_grad_.Finish(host_);
  }

 protected:
  // The recurrent GEMM of a step, whose sums of the next step's dz · w_hᵀ go to
  // the epilogue (step_panel.cuh).
  template <class Epilogue>
  auto StateWork(const Epilogue& epilogue) const {
    return Work(w_h_t_, epilogue);
  }

  // Runs the steps of a block, the last one first: the GEMMs of each, in their
  // order, in all directions that run together (MakeByDirection in
  // step_loop.cuh).
  template <class... Works>
  Error RunSteps(const StepBlock& block, const Works&... works) const {
    return loop_.Run(host_, rows_, block, true, works...);
  }

  // The same with a pass over whole rows behind each step's GEMM and epilogue:
  // pass_of(step)(row).
  template <class Epilogue, class PassOf>
  Error RunRowSteps(const StepBlock& block, const Epilogue& epilogue,
                    const PassOf& pass_of) const {
    const auto multiply = [&](const StepRange& range) {
      return w_h_t_.Run(host_, range, epilogue);
    };
    return blockrnn::cuda::RunRowSteps(host_, rows_, block, true, multiply,
                                       pass_of);
  }

  // Runs step -1, with the epilogue of the steps.
  template <class Epilogue>
  Error RunBeforeFirst(const Epilogue& epilogue) const {
    return w_h_t_.Run(host_, {-1, shape_.batch, rows_.ActiveRows(0), 0},
                      epilogue);
  }

  // For the epilogues of a block.
  const BackwardStep<T>& step() const { return step_; }
  const SequenceRows& rows() const { return rows_; }
  SequencePasses<T> passes() const { return {host_, rows_.order()}; }
  // The gradients of the gates' pre-activations on the side of h, [block rows,
  // all gates · H].
  const BlockArray<T>& dz() const { return dz_; }
  // The block's rows of x, and the sum of the gradient of x.
  const T* x() const { return x_.data(); }
  const InputGrad<T>& x_grad() const { return x_grad_; }

  const Args& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;

 private:
  int64_t ld_h() const {
    return shape_.h_width > 0 ? shape_.h_width : cell_.width;
  }
  // Of the gates of w_h, and of all gates.
  int64_t gate_columns() const { return kGates * shape_.units; }
  int64_t ld_w() const { return cell_.ld_w > 0 ? cell_.ld_w : gate_columns(); }
  int64_t all_columns() const {
    return (kGates + cell_.more_gates) * shape_.units;
  }

  Error PrepareRows() {
    const int64_t columns = (cell_.sides_differ ? 2 : 1) * all_columns() +
                            cell_.width + shape_.input + cell_.own_columns;
    const int64_t row_bytes = InputGrad<T>::RowBytes(shape_) +
                              static_cast<int64_t>(sizeof(C)) * columns;
    const States<T> states = {args_.h, ld_h(), args_.h_prev, cell_.width};
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(host_, shape_, rows_, states,
                                     args_.recurrent_dropout))) {
      return error;
    }
    error = dz_.Prepare(host_, rows_, all_columns());
    if (error != nullptr || !cell_.sides_differ) return error;
    return dz_x_.Prepare(host_, rows_, all_columns());
  }

  Error PrepareState() {
    step_.rows = rows_.order();
    step_.h_prev = args_.h_prev;
    step_.h = args_.h;
    step_.h_grad = args_.h_grad;
    step_.h_prev_grad = args_.h_prev_grad;
    step_.width = cell_.width;
    step_.ld_h = ld_h();
    step_.step_columns = gate_columns();
    step_.dz = dz_.data;
    step_.dz_x = dz_x_.data;
    step_.columns = all_columns();
    step_.zoneout = StepZoneout<C>(args_.zoneout_h);
    const int64_t size = shape_.batch * cell_.width;
    const int64_t gates_size = shape_.batch * gate_columns();
    Error error = nullptr;
    if ((error = AllocateStored(host_, gates_size, &step_.step_dz.even)) ||
        (error = AllocateStored(host_, gates_size, &step_.step_dz.odd)) ||
        (error = Allocate(host_, size, &step_.d_h_direct))) {
      return error;
    }
    StepGemm<T>& gemm = w_h_t_.gemm();
    gemm.state = step_.step_dz;
    gemm.order = step_.rows.batch_rows;
    gemm.sum_factors = args_.recurrent_dropout;
    // Slices of a single gate share its factors.
    if (kGates > 1) gemm.factors_stride = shape_.MemoryBatch() * cell_.width;
    return passes().LoadStates(RowEnd::kLast, args_.h_last_grad, cell_.width,
                               step_.d_h_direct);
  }

  StepWeights<T> TransposedWeights() const {
    if (shape_.weights_by_unit) return {cell_.w_h, 1, 0, cell_.width};
    return {cell_.w_h, ld_w(), 0, 1};
  }

  const BackwardCell<T> cell_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_;
  BlockArray<T> dz_x_;
  BackwardMatrix<T, kGates> w_h_t_;
  StepLoop loop_;
  BackwardStep<T> step_;
  InputWeightsGrad<T> w_x_grad_;
  WeightGrad<T> w_h_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_BACKWARD_CUH_
