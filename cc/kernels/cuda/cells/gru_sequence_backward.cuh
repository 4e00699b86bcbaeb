// Implements the backward pass of a GRU with the reset before the GEMM over a
// whole sequence on the GPU. The equations are in cc/core/gru_cell.h; this file
// has the order of the GEMMs and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cells/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The arrays of both stages of a backward step.
template <class T>
struct GruSequenceGradArrays {
  using C = ComputeType<T>;
  GruSequenceBackwardArgs<T> args;
  T* d_c;  // [B, H], d_c_bar of a step
  C* d_h;  // [B, H], of a step
  T* h_r;  // [block rows, H], h ∘ r with its factors
};

// [d_r_bar d_u_bar] · w_hᵀ, columns of r, u, of the next step  →  d_h, d_c_bar,
// d_u_bar; as step -1, the gradient of the initial state.
template <class T>
struct GruSequenceGradState {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  GruSequenceGradArrays<T> arrays;

  struct Operands {
    StepRow row;
    typename BackwardStep<T>::HGrads h_grads;
    C r;
    C u;
    C c;
    C h_prev;
    C factor;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    const GruSequenceBackwardArgs<T>& args = arrays.args;
    Operands in = {};
    common.ReadRow(step, b, unit, &in.row, &in.h_grads);
    if (step < 0) return in;
    const int64_t at = in.row.saved * common.width + unit;
    in.r = Load(args.r, at);
    in.u = Load(args.u, at);
    in.c = Load(args.c, at);
    in.h_prev = common.PreviousH(step, b, unit);
    in.factor = CandidateFactor(args, common.rows, b, unit);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    const int64_t units = common.width;
    C d_h = C(0);
    if (!common.GradOfH(step, b, unit, sums[0], in.h_grads, &d_h)) return;
    GruStateGrad<C> out = {C(0), C(0)};
    C h_r = C(0);
    if (!in.row.masked) {
      const C kept = common.KeptGrad(in.row, unit, d_h);
      common.d_h_direct[b * units + unit] = kept;
      d_h -= kept;
      out = GruBackwardState(d_h, in.u, in.c, in.h_prev);
      h_r = in.h_prev * in.r * in.factor;
    }
    arrays.d_h[b * units + unit] = d_h;
    Store(arrays.d_c, b * units + unit, out.d_c_bar);
    common.StoreDz(in.row, step, b, arrays.args.layout.u * units + unit,
                   out.d_u_bar);
    common.StoreBlockDz(in.row, kGruCandidate * units + unit, out.d_c_bar);
    Store(arrays.h_r, common.BlockRow(in.row) * units + unit, h_r);
  }
};

// d_c_bar · w_hᵀ, columns of c  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
template <class T>
struct GruSequenceGradReset {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  GruSequenceGradArrays<T> arrays;

  struct Operands {
    StepRow row;
    C d_h;
    C kept_grad;
    C r;
    C u;
    C h_prev;
    C factor;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    const GruSequenceBackwardArgs<T>& args = arrays.args;
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    in.d_h = arrays.d_h[b * common.width + unit];
    in.kept_grad = common.d_h_direct[b * common.width + unit];
    const int64_t at = in.row.saved * common.width + unit;
    in.r = Load(args.r, at);
    in.u = Load(args.u, at);
    in.h_prev = common.PreviousH(step, b, unit);
    in.factor = CandidateFactor(args, common.rows, b, unit);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    const int64_t units = common.width;
    C d_r_bar = C(0);
    C d_h_direct = in.d_h;
    if (!in.row.masked) {
      const C d_hr = sums[0] * in.factor;
      d_r_bar = GruBackwardReset(d_hr, in.h_prev, in.r);
      d_h_direct = GruBackwardPrevious(in.kept_grad, d_hr, in.r, in.d_h, in.u);
    }
    common.d_h_direct[b * units + unit] = d_h_direct;
    common.StoreDz(in.row, step, b, arrays.args.layout.r * units + unit,
                   d_r_bar);
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = [d_r_bar d_u_bar d_c_bar] · w_xᵀ, the columns of c apart
//   and the gradients of the weights, which are sums over rows.
template <class T>
class GruSequenceBackwardCall
    : public SequenceBackward<T, GruSequenceBackwardArgs<T>, kGruGates> {
  using Base = SequenceBackward<T, GruSequenceBackwardArgs<T>, kGruGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  GruSequenceBackwardCall(const GruSequenceBackwardArgs<T>& args,
                          const HostInterface& host)
      : Base(args, host, Cell(args)),
        units_(args.shape.units),
        w_x_(GruColumnsOf(args.w_x, args.w_c_x, units_)),
        w_h_(GruColumnsOf(args.w_h, args.w_c_h, units_)) {}

  Error Plan() {
    w_c_h_t_.SetShape({units_, units_, shape_.batch});
    return Base::Plan(w_c_h_t_);
  }

  Error Prepare() {
    const int64_t size = shape_.batch * units_;
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = w_c_h_t_.Prepare(host_, {w_h_.c, w_h_.ld_c, 0, 1})) ||
        (error = h_r_.Prepare(host_, this->rows(), units_)) ||
        (error = AllocateStored(host_, size, &arrays_.d_c)) ||
        (error = Allocate(host_, size, &arrays_.d_h)) ||
        (error = w_c_x_grad_.Prepare(
             host_, shape_, this->rows(),
             GruColumnsOf(args_.w_x_grad, args_.w_c_x_grad, units_).c,
             GruColumnsOf(args_.b_grad, args_.b_c_grad, units_).c, units_,
             w_x_.ld_c))) {
      return error;
    }
    arrays_.args = args_;
    arrays_.h_r = h_r_.data;
    w_c_h_t_.gemm().state = {arrays_.d_c, arrays_.d_c};
    return w_c_h_grad_.Prepare(
        host_, GruColumnsOf(args_.w_h_grad, args_.w_c_h_grad, units_).c, units_,
        units_, w_h_.ld_c);
  }

  Error RunBlock(const StepBlock& block) const {
    return this->RunSteps(block, MakeByDirection(this->StateWork(State())),
                          MakeByDirection(Work(w_c_h_t_, Reset(), true)));
  }

  // With what the candidate adds to the gradients of x and of its weights.
  Error EndBlock(const StepBlock& block) {
    const GateColumns<T> candidate =
        ColumnsOf(this->dz(), kGruGates * units_, units_);
    const WeightSum<T> h_r = {block.rows, h_r_.data, units_, candidate};
    Error error = nullptr;
    if ((error = Base::EndBlock(block)) ||
        (error = this->x_grad().Add(host_, block, candidate, w_x_.c, w_x_.ld_c,
                                    false, true)) ||
        (error = w_c_x_grad_.Add(host_, block, this->x(), candidate))) {
      return error;
    }
    return AddWeights(host_, h_r, w_c_h_grad_);
  }

  Error Finish() const {
    Error error = nullptr;
    if ((error = this->RunBeforeFirst(State())) || (error = Base::Finish()) ||
        (error = w_c_x_grad_.Finish(host_))) {
      return error;
    }
    return w_c_h_grad_.Finish(host_);
  }

 private:
  // Of the gates r and u.
  static BackwardCell<T> Cell(const GruSequenceBackwardArgs<T>& args) {
    BackwardCell<T> cell;
    cell.w_x = args.w_x;
    cell.w_h = args.w_h;
    cell.w_x_grad = args.w_x_grad;
    cell.w_h_grad = args.w_h_grad;
    cell.b_grad = args.b_grad;
    cell.width = args.shape.units;
    cell.more_gates = 1;
    cell.own_columns = args.shape.units;
    cell.ld_w = GruColumnsOf(args.w_h, args.w_c_h, args.shape.units).ld_ru;
    return cell;
  }
  GruSequenceGradState<T> State() const { return {this->step(), arrays_}; }
  GruSequenceGradReset<T> Reset() const { return {this->step(), arrays_}; }

  const int64_t units_;
  const GruColumns<const T> w_x_;
  const GruColumns<const T> w_h_;
  StepMatrix<T, kSlices, true> w_c_h_t_;
  BlockArray<T> h_r_;  // [block rows, H]
  GruSequenceGradArrays<T> arrays_ = {};
  InputWeightsGrad<T> w_c_x_grad_;
  WeightGrad<T> w_c_h_grad_;
};

template <class T>
struct FunctionOf<GruSequenceBackwardArgs<T>>
    : SequenceFunction<GruSequenceBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_BACKWARD_CUH_
