// Implements a GRU with the reset after the GEMM over a whole sequence on the
// GPU, forward and backward. The equations are in cc/core/gru_cell.h; this file
// has the order of the GEMMs and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_GRU_AFTER_SEQUENCE_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_GRU_AFTER_SEQUENCE_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/sequence/calls.cuh"
#include "cc/kernels/cuda/sequence/sequence_backward.cuh"
#include "cc/kernels/cuda/sequence/sequence_forward.cuh"
#include "cc/kernels/cuda/sequence/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/sequence/step_loop.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

static_assert(kGruRuc.c == 2 && kGruUrc.c == 2);

// x · w_x + b_x, and h · w_h + b_h  →  r, u, hc, c, h
//
// The candidate's gate is the last one in every layout.
template <class T, class Activations>
struct GruAfterSequenceCell {
  using C = ComputeType<T>;
  ForwardStep<T> common;
  GruAfterSequenceForwardArgs<T> args;

  struct Operands {
    StepRow row;
    C bars[kGruAfterGates];  // but for the sums
    C b_hc;
    C h_prev;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in;
    in.row = FindStepRow(common.rows, step, b);
    common.template ReadInput<kGruAfterGates - 1>(in.row, unit, in.bars);
    in.b_hc = common.input.StateBias(kGruAfterGates - 1, unit);
    in.h_prev = common.PreviousH(step, b, unit);
    return in;
  }

  struct Results {
    GruAfterStep<C> step;
    C hc;
  };

  __device__ __forceinline__ Results Publish(int64_t step, int64_t b,
                                             int64_t unit,
                                             const C (&sums)[kGruAfterGates],
                                             const Operands& in) const {
    Results out = {{C(0), C(0), C(0), in.h_prev}, C(0)};
    if (!in.row.masked) {
      const C first = in.bars[0] + sums[0];
      const C second = in.bars[1] + sums[1];
      const bool r_first = args.layout.r == 0;
      out.hc = sums[2] + in.b_hc;
      out.step = GruAfterForward<Activations>(r_first ? first : second,
                                              r_first ? second : first,
                                              in.bars[2], out.hc, in.h_prev);
    }
    out.step.h = common.AfterStep(in.row, step, b, unit, out.step.h);
    common.PublishH(step, b, unit, out.step.h);
    return out;
  }

  __device__ __forceinline__ void Save(int64_t, int64_t, int64_t unit,
                                       const Operands& in,
                                       const Results& out) const {
    const int64_t at = in.row.saved * args.shape.units + unit;
    StoreIf(args.r, at, out.step.r);
    StoreIf(args.u, at, out.step.u);
    StoreIf(args.c, at, out.step.c);
    StoreIf(args.hc, at, out.hc);
    common.SaveH(in.row, unit, out.step.h);
  }
};

// [d_r_bar d_u_bar d_hc] · w_hᵀ of the next step  →  d_h  →  d_r_bar, d_u_bar,
// d_hc, d_c_bar, in the layout's order; as step -1, the gradient of the initial
// state.
template <class T>
struct GruAfterSequenceGradCell {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  GruAfterSequenceBackwardArgs<T> args;

  struct Operands {
    StepRow row;
    typename BackwardStep<T>::HGrads h_grads;
    GruAfterStep<C> saved;
    C hc;
    C h_prev;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in = {};
    common.ReadRow(step, b, unit, &in.row, &in.h_grads);
    if (step < 0) return in;
    const int64_t at = in.row.saved * args.shape.units + unit;
    in.saved = {Load(args.r, at), Load(args.u, at), Load(args.c, at), C(0)};
    in.hc = Load(args.hc, at);
    in.h_prev = common.PreviousH(step, b, unit);
    return in;
  }

  using Results = GruAfterStepGrad<C>;

  __device__ __forceinline__ Results Publish(int64_t step, int64_t b,
                                             int64_t unit, const C (&sums)[1],
                                             const Operands& in) const {
    C d_h = C(0);
    if (!common.GradOfH(step, b, unit, sums[0], in.h_grads, &d_h)) return {};
    Results out = {C(0), C(0), C(0), C(0), d_h};
    if (!in.row.masked) {
      const C kept = common.KeptGrad(in.row, unit, d_h);
      out = GruAfterBackward(in.saved, in.hc, in.h_prev, d_h - kept);
      out.d_h_prev += kept;
    }
    const int64_t units = args.shape.units;
    common.PublishDz(step, b, args.layout.r * units + unit, out.d_r_bar);
    common.PublishDz(step, b, args.layout.u * units + unit, out.d_u_bar);
    common.PublishDz(step, b, args.layout.c * units + unit, out.d_hc);
    return out;
  }

  __device__ __forceinline__ void Save(int64_t step, int64_t b, int64_t unit,
                                       const Operands& in,
                                       const Results& out) const {
    if (step < 0) return;
    const int64_t units = args.shape.units;
    common.d_h_direct[b * units + unit] = out.d_h_prev;
    const auto store = [&](int gate, C from_h, C from_x) {
      const int64_t column = gate * units + unit;
      common.StoreBlockDz(in.row, column, from_h);
      common.StoreBlockDzX(in.row, column, from_x);
    };
    store(args.layout.r, out.d_r_bar, out.d_r_bar);
    store(args.layout.u, out.d_u_bar, out.d_u_bar);
    store(args.layout.c, out.d_hc, out.d_c_bar);
  }
};

template <class T, class Activations = StandardActivations>
class GruAfterSequenceForwardCall
    : public SequenceForward<T, GruAfterSequenceForwardArgs<T>,
                             kGruAfterGates> {
  using Base =
      SequenceForward<T, GruAfterSequenceForwardArgs<T>, kGruAfterGates>;
  using Base::args_;

 public:
  GruAfterSequenceForwardCall(const GruAfterSequenceForwardArgs<T>& args,
                              const HostInterface& host)
      : Base(args, host,
             {{args.w_x, args.b_x, args.b_h, kGruAfterGates},
              args.w_h,
              args.shape.units}) {}

  Error Prepare() {
    if (Error error = Base::Prepare()) return error;
    return this->ZeroSaved({args_.r, args_.u, args_.c, args_.hc});
  }

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    return this->RunSteps(block,
                          MakeByDirection(CellWork(), others.CellWork()...));
  }

 private:
  auto CellWork() const {
    return this->StateWork(
        GruAfterSequenceCell<T, Activations>{this->step(), args_});
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = dz_x · w_xᵀ    w_x_grad += xᵀ · dz_x        b_x_grad += Σ dz_x
//   w_h_grad += h of the previous stepᵀ · dz_h           b_h_grad += Σ dz_h
template <class T>
class GruAfterSequenceBackwardCall
    : public SequenceBackward<T, GruAfterSequenceBackwardArgs<T>,
                              kGruAfterGates> {
  using Base =
      SequenceBackward<T, GruAfterSequenceBackwardArgs<T>, kGruAfterGates>;
  using Base::args_;
  using Base::host_;

 public:
  GruAfterSequenceBackwardCall(const GruAfterSequenceBackwardArgs<T>& args,
                               const HostInterface& host)
      : Base(args, host,
             {args.w_x, args.w_h, args.w_x_grad, args.w_h_grad, args.b_x_grad,
              args.shape.units, /*more_gates=*/0, /*own_columns=*/0,
              /*by_rows=*/false, /*sides_differ=*/true}),
        columns_(kGruAfterGates * args.shape.units) {}

  Error Prepare() {
    if (Error error = Base::Prepare()) return error;
    return b_h_grad_.Prepare(host_, this->rows(), args_.b_h_grad, columns_);
  }

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    return this->RunSteps(block,
                          MakeByDirection(CellWork(), others.CellWork()...));
  }

  Error EndBlock(const StepBlock& block) {
    if (Error error = Base::EndBlock(block)) return error;
    return b_h_grad_.Add(host_, block, ColumnsOf(this->dz(), 0, columns_));
  }

  Error Finish() const {
    Error error = nullptr;
    if ((error = this->RunBeforeFirst(Cell())) || (error = Base::Finish())) {
      return error;
    }
    return b_h_grad_.Finish(host_);
  }

 private:
  GruAfterSequenceGradCell<T> Cell() const { return {this->step(), args_}; }
  auto CellWork() const { return this->StateWork(Cell()); }

  const int64_t columns_;  // 3H
  BiasGrad<T> b_h_grad_;
};

template <class T>
struct FunctionOf<GruAfterSequenceForwardArgs<T>>
    : SequenceFunction<GruAfterSequenceForwardCall<T>> {};
template <class T>
struct FunctionOf<GruAfterSequenceBackwardArgs<T>>
    : SequenceFunction<GruAfterSequenceBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_GRU_AFTER_SEQUENCE_CUH_
