// Owns the backward pass of a GRU, reset before the product, over a whole
// sequence on the GPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence_rows.cuh"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What both stages of a backward step have besides.
template <class T>
struct GruSequenceGradArrays {
  using C = ComputeType<T>;
  GruSequenceBackwardArgs<T> args;
  T* d_c;  // [B, H], d_c_bar of a step
  C* d_h;  // [B, H], of a step
  T* h_r;  // [block rows, H], h ∘ r with its factors
};

// [d_r_bar d_u_bar] · w_ru_hᵀ of the step after  →  d_h, d_c_bar, d_u_bar; as
// step -1, the gradient of the first state.
template <class T>
struct GruSequenceGradState {
  using C = ComputeType<T>;
  BackwardStep<T> of;
  GruSequenceGradArrays<T> own;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const GruSequenceBackwardArgs<T>& args = own.args;
    const int64_t units = of.width;
    C d_h = C(0);
    if (!of.GradOfH(step, b, unit, sums[0], &d_h)) return;
    GruStateGrad<C> out = {C(0), C(0)};
    C h_r = C(0);
    if (!of.rows.Skipped(step, b)) {
      const int64_t at = of.rows.Saved(step, b) * units + unit;
      const C before = of.HBefore(step, b, unit);
      out = GruBackwardState(d_h, Load(args.u, at), Load(args.c, at), before);
      h_r = before * Load(args.r, at) * CandidateFactor(args, of.rows, b, unit);
    }
    own.d_h[b * units + unit] = d_h;
    Store(own.d_c, b * units + unit, out.d_c_bar);
    of.StoreDz(step, b, kGruRu.u * units + unit, out.d_u_bar);
    of.StoreBlockDz(step, b, kGruCandidate * units + unit, out.d_c_bar);
    Store(own.h_r, of.BlockRow(step, b) * units + unit, h_r);
  }
};

// d_c_bar · w_c_hᵀ  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
template <class T>
struct GruSequenceGradReset {
  using C = ComputeType<T>;
  BackwardStep<T> of;
  GruSequenceGradArrays<T> own;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const GruSequenceBackwardArgs<T>& args = own.args;
    const int64_t units = of.width;
    const C d_h = own.d_h[b * units + unit];
    C d_r_bar = C(0);
    C d_h_before = d_h;
    if (!of.rows.Skipped(step, b)) {
      const int64_t at = of.rows.Saved(step, b) * units + unit;
      const C r = Load(args.r, at);
      const C d_hr = sums[0] * CandidateFactor(args, of.rows, b, unit);
      d_r_bar = GruBackwardReset(d_hr, of.HBefore(step, b, unit), r);
      d_h_before = GruBackwardPrevious(C(0), d_hr, r, d_h, Load(args.u, at));
    }
    of.d_h_before[b * units + unit] = d_h_before;
    of.StoreDz(step, b, kGruRu.r * units + unit, d_r_bar);
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = [d_r_bar d_u_bar] · w_ru_xᵀ + d_c_bar · w_c_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruSequenceBackwardCall {
 public:
  GruSequenceBackwardCall(const GruSequenceBackwardArgs<T>& args,
                          const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        sequence_(args, host,
                  {args.w_ru_x, args.w_ru_h, args.w_ru_x_grad, args.w_ru_h_grad,
                   args.b_ru_grad, units_, /*more_gates=*/1,
                   /*own_columns=*/units_}) {}

  Error Run() {
    Error error = nullptr;
    if ((error = Prepare()) ||
        (error = sequence_.Run(
             [&](const StepBlock& block) { return RunBlock(block); })) ||
        (error = sequence_.RunBeforeFirst(State())) ||
        (error = sequence_.Finish()) || (error = w_c_x_grad_.Finish(host_))) {
      return error;
    }
    return w_c_h_grad_.Finish(host_);
  }

 private:
  GruSequenceGradState<T> State() const { return {sequence_.step(), arrays_}; }
  GruSequenceGradReset<T> Reset() const { return {sequence_.step(), arrays_}; }

  Error Prepare() {
    const int64_t size = shape_.batch * units_;
    w_c_h_t_.SetShape({units_, units_, shape_.batch});
    Error error = nullptr;
    if ((error = sequence_.Prepare(w_c_h_t_)) ||
        (error = w_c_h_t_.Prepare(host_, {args_.w_c_h, units_, 0, 1})) ||
        (error = h_r_.Prepare(host_, sequence_.rows(), units_)) ||
        (error = AllocateStored(host_, size, &arrays_.d_c)) ||
        (error = Allocate(host_, size, &arrays_.d_h)) ||
        (error =
             w_c_x_grad_.Prepare(host_, shape_, sequence_.rows(),
                                 args_.w_c_x_grad, args_.b_c_grad, units_))) {
      return error;
    }
    arrays_.args = args_;
    arrays_.h_r = h_r_.data;
    w_c_h_t_.product().state = {arrays_.d_c, arrays_.d_c};
    return w_c_h_grad_.Prepare(host_, args_.w_c_h_grad, units_ * units_);
  }

  Error RunBlock(const StepBlock& block) {
    Error error = nullptr;
    if ((error = sequence_.RunSteps(block, State(),
                                    Work(w_c_h_t_, Reset(), true))) ||
        (error = sequence_.AddGradients(block, sequence_.dz()))) {
      return error;
    }
    return AddCandidate(block);
  }

  // What the candidate brings to x and to its weights.
  Error AddCandidate(const StepBlock& block) {
    const GateColumns<T> candidate =
        ColumnsOf(sequence_.dz(), kGruGates * units_, units_);
    Error error = nullptr;
    if ((error = sequence_.x_grad().Add(host_, block, candidate, args_.w_c_x,
                                        units_, false, true)) ||
        (error = w_c_x_grad_.Add(host_, block, sequence_.x(), candidate))) {
      return error;
    }
    const WeightSum<T> h_r = {block.rows, h_r_.data, units_, candidate,
                              0,          units_,    false};
    return AddWeights(host_, h_r, w_c_h_grad_);
  }

  const GruSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  SequenceBackward<T, GruSequenceBackwardArgs<T>, kGruGates> sequence_;
  StepMatrix<T, kSlices, true> w_c_h_t_;
  BlockArray<T> h_r_;  // [block rows, H]
  GruSequenceGradArrays<T> arrays_ = {};
  InputWeightsGrad<T> w_c_x_grad_;
  WeightGrad<T> w_c_h_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_BACKWARD_CUH_
