// Implements the backward pass of an LSTM over a whole sequence on the GPU. The
// equations are in cc/core/lstm_cell.h; this file has the order of the GEMMs
// and what is handed from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/cells/lstm_common.cuh"
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

// The arrays of both stages of a step.
template <class T>
struct LstmSequenceGradArrays {
  using C = ComputeType<T>;
  LstmSequenceBackwardArgs<T> args;
  C cell_clip;             // infinity: not clipped
  StepZoneout<C> zoneout;  // of cs
  C* cs_grad;              // [B, H], from the step after
  C* peepholes;            // [3, B, H], with peepholes
  bool projects;
  // nullptr without a projection or without units:
  T* step_d_h;  // [B, P]
  T* d_h;       // [block rows, P]
  T* m;         // [block rows, H], o ∘ tanh(cs)
};

// d_m  →  dZ = [di dci df do], in the layout's order
template <class T>
struct LstmSequenceGradCell {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  LstmSequenceGradArrays<T> arrays;

  struct Operands {
    StepRow row;
    C cs_grad;  // through all but m
    LstmStep<C> saved;
    C cs_prev;
    LstmPeepholes<C> peepholes;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    return ReadAt(FindStepRow(common.rows, step, b), step, b, unit);
  }
  __device__ __forceinline__ Operands ReadAt(const StepRow& row, int64_t step,
                                             int64_t b, int64_t unit) const {
    const LstmSequenceBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    const int64_t at = row.saved * units + unit;
    Operands in;
    in.row = row;
    in.saved.i = Load(args.i, at);
    in.saved.cs = Load(args.cs, at);
    in.saved.f = Load(args.f, at);
    in.saved.o = Load(args.o, at);
    in.saved.ci = Load(args.ci, at);
    in.saved.co = args.co == nullptr ? C(0) : Load(args.co, at);
    in.saved.h = C(0);  // the equations do not read it
    in.cs_prev = PreviousCs(args, common.rows, step, b, unit);
    in.peepholes = LoadPeepholes(args, unit, args.options.use_peephole);
    in.cs_grad = CsGrad(args, row, unit, arrays.cs_grad[b * units + unit]);
    return in;
  }

  struct Results {
    LstmStepGrad<C> grad;
    C cs;  // new, before its zoneout
    C m;
  };

  __device__ __forceinline__ Results Publish(int64_t step, int64_t b,
                                             int64_t unit, const C (&d_m)[1],
                                             const Operands& in) const {
    const LstmSequenceBackwardArgs<T>& args = arrays.args;
    const int64_t units = args.shape.units;
    Results out = {{C(0), C(0), C(0), C(0), in.cs_grad}, C(0), C(0)};
    if (!in.row.masked) {
      LstmStep<C> saved = in.saved;
      C kept_grad = C(0);
      if (arrays.zoneout) {
        // What is saved is the state after it.
        saved.cs = LstmNewCs(saved, in.cs_prev, true, arrays.cell_clip);
        kept_grad = KeptShare(arrays.zoneout, in.row.memory * units + unit) *
                    in.cs_grad;
      }
      if (args.co == nullptr) saved.co = Tanh(saved.cs);
      out.grad = blockrnn::LstmBackward<true>(
          saved, in.cs_prev, in.cs_grad - kept_grad, d_m[0], in.peepholes,
          args.options.use_peephole);
      out.grad.cs_prev_grad += kept_grad;
      out.cs = saved.cs;
      out.m = saved.o * saved.co;
    }
    ForEachGate(unit, out.grad, [&](int64_t column, C value) {
      common.PublishDz(step, b, column, value);
    });
    return out;
  }

  __device__ __forceinline__ void Save(int64_t, int64_t b, int64_t unit,
                                       const Operands& in,
                                       const Results& out) const {
    const int64_t units = arrays.args.shape.units;
    const int64_t state = b * units + unit;
    if (arrays.args.options.use_peephole && !in.row.masked) {
      AddPeepholes(state, out.grad, in.cs_prev, out.cs);
    }
    arrays.cs_grad[state] = out.grad.cs_prev_grad;
    ForEachGate(unit, out.grad, [&](int64_t column, C value) {
      common.StoreBlockDz(in.row, column, value);
    });
    if (arrays.m != nullptr) {
      Store(arrays.m, common.BlockRow(in.row) * units + unit, out.m);
    }
  }

 private:
  // One sum for each row of the batch, which only this thread updates.
  __device__ __forceinline__ void AddPeepholes(int64_t state,
                                               const LstmStepGrad<C>& out,
                                               C cs_prev, C cs) const {
    const int64_t stride = arrays.args.shape.batch * arrays.args.shape.units;
    arrays.peepholes[state] += out.di * cs_prev;
    arrays.peepholes[stride + state] += out.df * cs_prev;
    arrays.peepholes[2 * stride + state] += out.d_o * cs;
  }

  // store(column, gradient) for each gate.
  template <class StoreGate>
  __device__ __forceinline__ void ForEachGate(int64_t unit,
                                              const LstmStepGrad<C>& out,
                                              const StoreGate& store) const {
    const int64_t units = arrays.args.shape.units;
    const LstmGateLayout& layout = arrays.args.layout;
    store(layout.i * units + unit, out.di);
    store(layout.ci * units + unit, out.dci);
    store(layout.f * units + unit, out.df);
    store(layout.o * units + unit, out.d_o);
  }
};

// dZ · w_hᵀ of the next step  →  d_h, which is d_m without a projection; as
// step -1, the gradient of the initial state
template <class T>
struct LstmSequenceGradOutput {
  using C = ComputeType<T>;
  BackwardStep<T> common;
  LstmSequenceGradArrays<T> arrays;

  struct Operands {
    typename BackwardStep<T>::HGrads h_grads;
    // Without a projection; with one, only the row.
    typename LstmSequenceGradCell<T>::Operands cell;
  };

  __device__ __forceinline__ Operands Read(int64_t step, int64_t b,
                                           int64_t unit) const {
    Operands in = {};
    common.ReadRow(step, b, unit, &in.cell.row, &in.h_grads);
    if (step >= 0 && !arrays.projects) {
      in.cell = Cell().ReadAt(in.cell.row, step, b, unit);
    }
    return in;
  }

  struct Results {
    C d_h;   // of the new h
    C kept;  // of h before the step, by a mask or by zoneout
    typename LstmSequenceGradCell<T>::Results cell;  // without a projection
  };

  __device__ __forceinline__ Results Publish(int64_t step, int64_t b,
                                             int64_t unit, const C (&sums)[1],
                                             const Operands& in) const {
    Results out = {};
    C d_h = C(0);
    if (!common.GradOfH(step, b, unit, sums[0], in.h_grads, &d_h)) return out;
    const StepRow& row = in.cell.row;
    out.kept = row.masked ? d_h : common.KeptGrad(row, unit, d_h);
    out.d_h = d_h - out.kept;
    if (arrays.projects) {
      Store(arrays.step_d_h, b * common.width + unit, out.d_h);
    } else {
      out.cell = Cell().Publish(step, b, unit, {out.d_h}, in.cell);
    }
    return out;
  }

  __device__ __forceinline__ void Save(int64_t step, int64_t b, int64_t unit,
                                       const Operands& in,
                                       const Results& out) const {
    if (step < 0) return;
    const StepRow& row = in.cell.row;
    common.d_h_direct[b * common.width + unit] = out.kept;
    if (arrays.projects) {
      Store(arrays.d_h, common.BlockRow(row) * common.width + unit, out.d_h);
    } else {
      Cell().Save(step, b, unit, in.cell, out.cell);
    }
  }

 private:
  __device__ __forceinline__ LstmSequenceGradCell<T> Cell() const {
    return {common, arrays};
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = dZ · w_xᵀ    w_x_grad += xᵀ · dZ    w_p_grad += d_hᵀ · m
//   w_h_grad += h of the previous stepᵀ · dZ     b_grad += Σ dZ
template <class T>
class LstmSequenceBackwardCall
    : public SequenceBackward<T, LstmSequenceBackwardArgs<T>, kLstmGates> {
  using Base = SequenceBackward<T, LstmSequenceBackwardArgs<T>, kLstmGates>;
  using Base::args_;
  using Base::host_;
  using Base::shape_;

 public:
  LstmSequenceBackwardCall(const LstmSequenceBackwardArgs<T>& args,
                           const HostInterface& host)
      : Base(args, host,
             {args.w_x, args.w_h, args.w_x_grad, args.w_h_grad, args.b_grad,
              Width(args), /*more_gates=*/0,
              /*own_columns=*/Width(args) + args.shape.units}) {}

  Error Plan() {
    w_p_.SetShape({shape_.units, args_.proj, shape_.batch});
    return projects() ? Base::Plan(w_p_) : Base::Plan();
  }

  Error Prepare() {
    arrays_.args = args_;
    arrays_.cell_clip = CellClip<ComputeType<T>>(args_.options);
    arrays_.zoneout = StepZoneout<ComputeType<T>>(args_.zoneout_c);
    arrays_.projects = projects();
    Error error = nullptr;
    if ((error = Base::Prepare()) ||
        (error =
             Allocate(host_, shape_.batch * shape_.units, &arrays_.cs_grad)) ||
        (error = this->passes().LoadStates(RowEnd::kLast, args_.cs_last_grad,
                                           shape_.units, arrays_.cs_grad)) ||
        (error = PrepareProjection()) || !args_.options.use_peephole) {
      return error;
    }
    error = peepholes_.Prepare(host_, shape_.batch, shape_.units);
    arrays_.peepholes = peepholes_.array(0);
    return error;
  }

  template <class... Others>
  Error RunBlock(const StepBlock& block, const Others&... others) const {
    const auto outputs = MakeByDirection(OutputWork(), others.OutputWork()...);
    if (!projects()) return this->RunSteps(block, outputs);
    return this->RunSteps(block, outputs,
                          MakeByDirection(CellWork(), others.CellWork()...));
  }

  Error EndBlock(const StepBlock& block) {
    const Error error = Base::EndBlock(block);
    if (error != nullptr || !projects()) return error;
    const WeightSum<T> d_h = {block.rows, d_h_.data, args_.proj,
                              ColumnsOf(m_, 0, shape_.units)};
    return AddWeights(host_, d_h, w_p_grad_);
  }

  Error Finish() const {
    Error error = nullptr;
    if ((error = this->RunBeforeFirst(Output())) || (error = Base::Finish()) ||
        (error = w_p_grad_.Finish(host_)) ||
        (error = this->passes().StoreStates(RowEnd::kFirst, arrays_.cs_grad,
                                            arrays_.cs_grad, shape_.units,
                                            args_.cs_prev_grad))) {
      return error;
    }
    if (!args_.options.use_peephole) return nullptr;
    return peepholes_.Finish(
        host_, {{args_.wci_grad, args_.wcf_grad, args_.wco_grad}});
  }

 private:
  // P
  static int64_t Width(const LstmSequenceBackwardArgs<T>& args) {
    return args.proj > 0 ? args.proj : args.shape.units;
  }
  bool projects() const { return args_.proj > 0; }

  LstmSequenceGradOutput<T> Output() const { return {this->step(), arrays_}; }
  auto OutputWork() const { return this->StateWork(Output()); }
  // With a projection.
  auto CellWork() const {
    return Work(w_p_, LstmSequenceGradCell<T>{this->step(), arrays_}, true);
  }

  Error PrepareProjection() {
    if (!projects()) return nullptr;
    const int64_t units = shape_.units;
    Error error = nullptr;
    if ((error = d_h_.Prepare(host_, this->rows(), args_.proj)) ||
        (error = m_.Prepare(host_, this->rows(), units)) ||
        (error = AllocateStored(host_, shape_.batch * args_.proj,
                                &arrays_.step_d_h)) ||
        (error = w_p_.Prepare(host_, {args_.w_p, 1, 0, units})) ||
        (error = w_p_grad_.Prepare(host_, args_.w_p_grad, args_.proj, units,
                                   units))) {
      return error;
    }
    arrays_.d_h = d_h_.data;
    arrays_.m = m_.data;
    w_p_.gemm().state = {arrays_.step_d_h, arrays_.step_d_h};
    return nullptr;
  }

  StepMatrix<T, kSlices, true> w_p_;
  BlockArray<T> d_h_;  // [block rows, P], with a projection
  BlockArray<T> m_;    // [block rows, H], with one
  LstmSequenceGradArrays<T> arrays_ = {};
  WeightGrad<T> w_p_grad_;
  VectorGrads<T, 3> peepholes_;  // with peepholes
};

template <class T>
struct FunctionOf<LstmSequenceBackwardArgs<T>>
    : SequenceFunction<LstmSequenceBackwardCall<T>> {};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_SEQUENCE_BACKWARD_CUH_
