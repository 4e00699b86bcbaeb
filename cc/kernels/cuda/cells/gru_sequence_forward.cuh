// Implements the forward pass of a GRU with the reset before the GEMM over a
// whole sequence on the GPU. The equations are in cc/core/gru_cell.h; this file
// has the order of the GEMMs and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_FORWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_FORWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/input_gemm.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The candidate, behind r and u: among dropout factors and gradients.
inline constexpr int kGruCandidate = kGruGates;

// The candidate's dropout factor; 1 without dropout.
template <class Args>
__device__ __forceinline__ auto CandidateFactor(const Args& args,
                                                const RowOrder& rows, int64_t b,
                                                int64_t unit) {
  using C = decltype(Load(args.recurrent_dropout, 0));
  if (args.recurrent_dropout == nullptr) return C(1);
  const int64_t row = kGruCandidate * rows.memory_batch + rows.BatchRow(b);
  return Load(args.recurrent_dropout, row * args.shape.units + unit);
}

// The arrays of both stages of a step.
template <class T>
struct GruSequenceArrays {
  using C = ComputeType<T>;
  GruSequenceForwardArgs<T> args;
  StepInput<T> input_c;
  C* u;    // [B, H]
  T* h_r;  // [B, H], h ∘ r, times the candidate's factors
};

// Columns of r, u of x · w_x + b + h · w_h  →  r, u, h ∘ r
template <class T, class Activations>
struct GruSequenceGates {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  GruSequenceArrays<T> arrays;

  struct Operands {
    StepRow row;
    C bars[kGruGates];  // but for the sums
    C h_prev;
    C factor;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    common.template ReadInput<0>(in.row, unit, in.bars);
    in.h_prev = common.PreviousH(step, b, unit);
    in.factor = CandidateFactor(arrays.args, common.rows, b, unit);
    return in;
  }

  __device__ void operator()(int64_t, int64_t b, int64_t unit,
                             const C (&sums)[kGruGates],
                             const Operands& in) const {
    const int64_t units = common.width;
    GruGates<C> out = {C(0), C(0), C(0)};
    if (!in.row.masked) {
      const C first = in.bars[0] + sums[0];
      const C second = in.bars[1] + sums[1];
      const bool r_first = arrays.args.layout.r == 0;
      out = GruForwardGates<Activations>(r_first ? first : second,
                                         r_first ? second : first, in.h_prev);
      out.h_prev_r *= in.factor;
    }
    const int64_t at = in.row.saved * units + unit;
    StoreIf(arrays.args.r, at, out.r);
    StoreIf(arrays.args.u, at, out.u);
    arrays.u[b * units + unit] = out.u;
    Store(arrays.h_r, b * units + unit, out.h_prev_r);
  }
};

// Columns of c of x · w_x + b + (h ∘ r) · w_h  →  c, h
template <class T, class Activations>
struct GruSequenceCandidate {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  GruSequenceArrays<T> arrays;

  struct Operands {
    StepRow row;
    C bars[1];  // but for the sum
    C u;
    C h_prev;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    arrays.input_c.Read(in.row, unit, in.bars);
    in.u = arrays.u[b * common.width + unit];
    in.h_prev = common.PreviousH(step, b, unit);
    return in;
  }

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1], const Operands& in) const {
    GruState<C> out = {C(0), in.h_prev};
    if (!in.row.masked) {
      out = GruForwardState<Activations>(in.bars[0] + sums[0], in.u, in.h_prev);
    }
    StoreIf(arrays.args.c, in.row.saved * common.width + unit, out.c);
    common.StoreH(in.row, step, b, unit, out.h);
  }
};

// The state is updated in place: the first stage of a step has read it.
template <class T, class Activations = StandardActivations>
class GruSequenceForwardCall
    : public SequenceForward<T, GruSequenceForwardArgs<T>, kGruGates> {
  using Base = SequenceForward<T, GruSequenceForwardArgs<T>, kGruGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  GruSequenceForwardCall(const GruSequenceForwardArgs<T>& args,
                         const HostInterface& host)
      : Base(args, host, Cell(args)),
        w_x_(GruColumnsOf(args.w_x, args.w_c_x, args.shape.units)),
        w_h_(GruColumnsOf(args.w_h, args.w_c_h, args.shape.units)) {}

  Error Plan() {
    w_c_h_.SetShape({shape_.units, shape_.units, shape_.batch});
    return Base::Plan(w_c_h_);
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error = w_c_h_.Prepare(host_, {w_h_.c, 1, 0, w_h_.ld_c})) ||
        (error = c_.Prepare(host_, shape_, this->rows(), args_.x,
                            {w_x_.c, GruColumnsOf(args_.b, args_.b_c, units).c,
                             nullptr, 1, kGruGates * units, w_x_.ld_c})) ||
        (error = Allocate(host_, batch * units, &arrays_.u)) ||
        (error = AllocateStored(host_, batch * units, &arrays_.h_r))) {
      return error;
    }
    arrays_.args = args_;
    w_c_h_.gemm().state = {arrays_.h_r, arrays_.h_r};
    return this->ZeroSaved({args_.r, args_.u, args_.c});
  }

  Error RunBlock(const StepBlock& block) {
    if (Error error = c_.RunBlock(host_, block, this->x())) return error;
    arrays_.input_c = c_.input();
    const ForwardStep<T> step = this->step();
    const GruSequenceGates<T, Activations> gates = {step, arrays_};
    const GruSequenceCandidate<T, Activations> candidate = {step, arrays_};
    return this->RunSteps(block, MakeByDirection(this->StateWork(gates)),
                          MakeByDirection(Work(w_c_h_, candidate, true)));
  }

 private:
  // Of the gates r and u.
  static ForwardCell<T> Cell(const GruSequenceForwardArgs<T>& args) {
    ForwardCell<T> cell;
    cell.input = {args.w_x, args.b, nullptr, kGruGates};
    cell.input.ld = GruColumnsOf(args.w_h, args.w_c_h, args.shape.units).ld_ru;
    cell.w_h = args.w_h;
    cell.width = args.shape.units;
    cell.more_gates = 1;
    cell.in_place = true;
    return cell;
  }

  const GruColumns<const T> w_x_;
  const GruColumns<const T> w_h_;
  InputGemm<T> c_;
  StepMatrix<T, kSlices, true> w_c_h_;
  GruSequenceArrays<T> arrays_ = {};
};

template <class T>
struct FunctionOf<GruSequenceForwardArgs<T>>
    : SequenceFunction<GruSequenceForwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_GRU_SEQUENCE_FORWARD_CUH_
