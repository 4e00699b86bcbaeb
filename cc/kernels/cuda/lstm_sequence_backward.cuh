// Owns the backward pass of an LSTM over a whole sequence on the GPU. The
// equations are in cc/core/lstm_cell.h; here stand the order of the products
// and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/input_product.cuh"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/lstm_sequence_forward.cuh"
#include "cc/kernels/cuda/rows.cuh"
#include "cc/kernels/cuda/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence_rows.cuh"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What both stages of a step have.
template <class T>
struct LstmSequenceGradStep {
  using C = ComputeType<T>;
  LstmSequenceBackwardArgs<T> args;
  RowMap rows;
  int64_t width;  // P
  int64_t ld_h;
  int64_t first;           // rows of all steps before the block
  Alternating<C> step_dz;  // [B, 4H]
  C* cs_grad;              // [B, H], from the step after
  C* h_grad;               // [B, P], what skipped steps hand on
  C* peepholes;            // [3, B, H], with peepholes
  T* dz;                   // [block rows, 4H]
  // With a projection, else nullptr:
  C* step_d_h;  // [B, P]
  T* d_h;       // [block rows, P]
  T* m;         // [block rows, H], o ∘ tanh(cs)

  // The row of a block's arrays.
  __device__ __forceinline__ int64_t BlockRow(int64_t step, int64_t b) const {
    return rows.Before(step) - first + b;
  }
};

// d_m  →  dZ = [di dci df do], in the layout's order
template <class T>
struct LstmSequenceGradCell {
  using C = ComputeType<T>;
  LstmSequenceGradStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&d_m)[1]) const {
    Cell(step, b, unit, d_m[0]);
  }

  __device__ __forceinline__ void Cell(int64_t step, int64_t b, int64_t unit,
                                       C d_m) const {
    const LstmSequenceBackwardArgs<T>& args = of.args;
    const int64_t units = args.shape.units;
    const int64_t at = of.rows.Saved(step, b) * units + unit;
    const int64_t state = b * units + unit;
    C cs_grad = of.cs_grad[state];
    if (args.cs_grad != nullptr) cs_grad += Load(args.cs_grad, at);
    if (of.rows.Skipped(step, b)) {
      of.cs_grad[state] = cs_grad;
      StoreGates(step, b, unit, {0, 0, 0, 0, 0});
      if (of.m != nullptr)
        Store(of.m, of.BlockRow(step, b) * units + unit, C(0));
      return;
    }
    LstmStep<C> saved;
    saved.i = Load(args.i, at);
    saved.cs = Load(args.cs, at);
    saved.f = Load(args.f, at);
    saved.o = Load(args.o, at);
    saved.ci = Load(args.ci, at);
    saved.co = args.co == nullptr ? Tanh(saved.cs) : Load(args.co, at);
    saved.h = C(0);  // the equations do not read it
    const C cs_prev =
        step == 0 ? Load(args.cs_prev, of.rows.State(b) * units + unit)
                  : Load(args.cs, of.rows.Saved(step - 1, b) * units + unit);
    LstmStepGrad<C> out;
    if (args.use_peephole) {
      out = blockrnn::LstmBackward<true>(saved, cs_prev, cs_grad, d_m,
                                         SequencePeepholes(args, unit));
      AddPeepholes(state, out, cs_prev, saved.cs);
    } else {
      out = blockrnn::LstmBackward<false>(saved, cs_prev, cs_grad, d_m,
                                          LstmPeepholes<C>{0, 0, 0});
    }
    of.cs_grad[state] = out.cs_prev_grad;
    StoreGates(step, b, unit, out);
    if (of.m != nullptr) {
      Store(of.m, of.BlockRow(step, b) * units + unit, saved.o * saved.co);
    }
  }

 private:
  // A sum for each row of the batch, which no other thread has.
  __device__ __forceinline__ void AddPeepholes(int64_t state,
                                               const LstmStepGrad<C>& out,
                                               C cs_prev, C cs) const {
    const int64_t stride = of.args.shape.batch * of.args.shape.units;
    of.peepholes[state] += out.di * cs_prev;
    of.peepholes[stride + state] += out.df * cs_prev;
    of.peepholes[2 * stride + state] += out.d_o * cs;
  }

  __device__ __forceinline__ void StoreGates(int64_t step, int64_t b,
                                             int64_t unit,
                                             const LstmStepGrad<C>& out) const {
    const int64_t units = of.args.shape.units;
    const LstmGateLayout& layout = of.args.layout;
    const int64_t ld = kLstmGates * units;
    C* const step_dz = of.step_dz.At(step);
    const auto store = [&](int gate, C value) {
      const int64_t column = gate * units + unit;
      step_dz[b * ld + column] = value;
      Store(of.dz, of.BlockRow(step, b) * ld + column, value);
    };
    store(layout.i, out.di);
    store(layout.ci, out.dci);
    store(layout.f, out.df);
    store(layout.o, out.d_o);
  }
};

// dZ · w_hᵀ of the step after  →  d_h, which is d_m without a projection; as
// step -1, the gradient of the first state
template <class T>
struct LstmSequenceGradOutput {
  using C = ComputeType<T>;
  LstmSequenceGradStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const LstmSequenceBackwardArgs<T>& args = of.args;
    const int64_t width = of.width;
    C d_h = sums[0] + of.h_grad[b * width + unit];
    if (step < 0) {
      StoreIf(args.h_prev_grad, of.rows.State(b) * width + unit, d_h);
      return;
    }
    if (args.h_grad != nullptr) {
      d_h += Load(args.h_grad, of.rows.InMemory(step, b) * of.ld_h + unit);
    }
    const bool skip = of.rows.Skipped(step, b);
    of.h_grad[b * width + unit] = skip ? d_h : C(0);
    if (of.m == nullptr) {
      LstmSequenceGradCell<T>{of}.Cell(step, b, unit, d_h);
      return;
    }
    const C kept = skip ? C(0) : d_h;
    of.step_d_h[b * width + unit] = kept;
    Store(of.d_h, of.BlockRow(step, b) * width + unit, kept);
  }
};

// peepholes[3, B, H]  →  the sums over the batch
template <class C>
struct PeepholeSums {
  const C* peepholes;
  int64_t batch;
  int64_t units;

  __device__ void operator()(int64_t row, int64_t unit, C (&sums)[3]) const {
#pragma unroll
    for (int which = 0; which < 3; ++which) {
      sums[which] += peepholes[(which * batch + row) * units + unit];
    }
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = dZ · w_xᵀ    w_x_grad += xᵀ · dZ    w_p_grad += d_hᵀ · m
//   w_h_grad += h before the stepᵀ · dZ          b_grad += Σ dZ
template <class T>
class LstmSequenceBackwardCall {
 public:
  using C = ComputeType<T>;

  LstmSequenceBackwardCall(const LstmSequenceBackwardArgs<T>& args,
                           const Host& host)
      : args_(args), host_(host), shape_(args.shape) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      step_.first = rows_.Before(block.first);
      if (Error error = Steps(block)) return error;
      if (Error error = Weights(block)) return error;
    }
    return Finish();
  }

 private:
  bool projects() const { return args_.proj > 0; }
  int64_t ldz() const { return kLstmGates * shape_.units; }

  Error Steps(const StepBlock& block) const {
    const auto output = Work(w_h_t_, LstmSequenceGradOutput<T>{step_});
    if (!projects()) return loop_.Run(host_, rows_, block, true, output);
    return loop_.Run(host_, rows_, block, true, output,
                     Work(w_p_, LstmSequenceGradCell<T>{step_}, true));
  }

  // Step -1: the gradient of the first state.
  Error BeforeFirst() const {
    return w_h_t_.Run(host_, {-1, shape_.batch, rows_.Active(0), 0},
                      LstmSequenceGradOutput<T>{step_});
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    const int64_t steps = rows_.steps();
    const int64_t batch = shape_.batch;
    const Planned output = {&w_h_t_, step_.width, ldz(), batch};
    if (!projects()) return loop_.Plan(host_, steps, output);
    return loop_.Plan(host_, steps, output,
                      Planned{&w_p_, shape_.units, args_.proj, batch});
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    step_.args = args_;
    step_.width = projects() ? args_.proj : units;
    step_.ld_h = shape_.h_width > 0 ? shape_.h_width : step_.width;
    const int64_t row_bytes =
        InputGrad<T>::RowBytes(shape_) +
        static_cast<int64_t>(sizeof(C)) *
            (ldz() + shape_.input + 2 * step_.width + units);
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(
             host_, shape_, rows_,
             {args_.h, step_.ld_h, args_.h_prev, step_.width},
             args_.recurrent_dropout)) ||
        (error = dz_.Prepare(host_, rows_, ldz())) || (error = Plan()) ||
        (error = w_h_t_.Prepare(host_, Transposed(), step_.width, ldz(),
                                shape_.batch,
                                args_.recurrent_dropout != nullptr)) ||
        (error = PrepareStates()) || (error = PrepareProjection())) {
      return error;
    }
    step_.rows = rows_.map();
    step_.dz = dz_.data;
    StepProduct<T>& product = w_h_t_.product();
    product.state = step_.step_dz;
    product.order = rows_.map().order;
    product.sum_factors = args_.recurrent_dropout;
    product.factors_stride = shape_.batch * step_.width;
    return PrepareWeights();
  }

  Error PrepareStates() {
    const int64_t batch = shape_.batch;
    const int64_t units = shape_.units;
    Error error = nullptr;
    if ((error = Allocate(host_, batch * ldz(), &step_.step_dz.even)) ||
        (error = Allocate(host_, batch * ldz(), &step_.step_dz.odd)) ||
        (error = Allocate(host_, batch * units, &step_.cs_grad)) ||
        (error = Allocate(host_, batch * step_.width, &step_.h_grad)) ||
        (error = SequencePasses<T>::BeginStates(
             host_, rows_.map(), args_.cs_last_grad, units, step_.cs_grad)) ||
        (error = SequencePasses<T>::BeginStates(host_, rows_.map(),
                                                args_.h_last_grad, step_.width,
                                                step_.h_grad))) {
      return error;
    }
    if (!args_.use_peephole) return nullptr;
    const int64_t count = 3 * batch * units;
    if ((error = Allocate(host_, count, &step_.peepholes))) return error;
    return FillZero(step_.peepholes,
                    static_cast<std::size_t>(count) * sizeof(C), host_);
  }

  Error PrepareProjection() {
    if (!projects()) return nullptr;
    const int64_t units = shape_.units;
    Error error = nullptr;
    if ((error = d_h_.Prepare(host_, rows_, args_.proj)) ||
        (error = m_.Prepare(host_, rows_, units)) ||
        (error = Allocate(host_, shape_.batch * args_.proj, &step_.step_d_h)) ||
        (error = w_p_.Prepare(host_, {args_.w_p, 1, 0, units}, units,
                              args_.proj, shape_.batch, false))) {
      return error;
    }
    step_.d_h = d_h_.data;
    step_.m = m_.data;
    w_p_.product().state = {step_.step_d_h, step_.step_d_h};
    return nullptr;
  }

  Error PrepareWeights() {
    Error error = nullptr;
    if ((error = w_x_grad_.Prepare(
             host_, shape_.HasInputWeights() ? args_.w_x_grad : nullptr,
             shape_.input * ldz())) ||
        (error =
             w_h_grad_.Prepare(host_, args_.w_h_grad, step_.width * ldz())) ||
        (error = b_grad_.Prepare(host_, rows_, args_.b_grad, ldz()))) {
      return error;
    }
    return w_p_grad_.Prepare(host_, projects() ? args_.w_p_grad : nullptr,
                             step_.width * shape_.units);
  }

  Error Weights(const StepBlock& block) {
    const int64_t units = shape_.units;
    const GateColumns<T> dz = ColumnsOf(dz_, 0, ldz());
    Error error = nullptr;
    if ((error = x_.Enter(host_, block)) ||
        (error = AddWeights(host_,
                            WeightSum<T>{block.rows, x_.data(), shape_.input,
                                         dz, 0, ldz(), shape_.weights_by_unit},
                            w_x_grad_)) ||
        (error =
             state_grad_.Add(host_, block, dz_, 0, kLstmGates, w_h_grad_)) ||
        (error =
             AddWeights(host_,
                        WeightSum<T>{block.rows, d_h_.data, step_.width,
                                     ColumnsOf(m_, 0, units), 0, units, false},
                        w_p_grad_)) ||
        (error = b_grad_.Add(host_, block, dz)) ||
        (error = SequencePasses<T>::StoreGates(host_, rows_.map(), block,
                                               shape_, dz_.data, kLstmGates,
                                               args_.x_grad))) {
      return error;
    }
    return x_grad_.Add(host_, block, dz, args_.w_x, ldz(), true, true);
  }

  Error Finish() {
    const RowMap& map = rows_.map();
    Error error = nullptr;
    if ((error = BeforeFirst()) ||
        (error = SequencePasses<T>::EndStates(host_, map, step_.cs_grad,
                                              step_.cs_grad, shape_.units,
                                              args_.cs_prev_grad)) ||
        (error = w_x_grad_.Finish(host_)) ||
        (error = w_h_grad_.Finish(host_)) || (error = b_grad_.Finish(host_)) ||
        (error = w_p_grad_.Finish(host_)) || !args_.use_peephole) {
      return error;
    }
    const SumOutputs<T, 3> sums = {
        {args_.wci_grad, args_.wcf_grad, args_.wco_grad}};
    return RunPointwiseWithSums(
        host_, shape_.batch, shape_.units,
        PeepholeSums<C>{step_.peepholes, shape_.batch, shape_.units}, sums);
  }

  StepWeights<T> Transposed() const {
    return shape_.weights_by_unit ? StepWeights<T>{args_.w_h, 1, 0, step_.width}
                                  : StepWeights<T>{args_.w_h, ldz(), 0, 1};
  }

  const LstmSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_;   // [block rows, 4H]
  BlockArray<T> d_h_;  // [block rows, P], with a projection
  BlockArray<T> m_;    // [block rows, H], with one
  StepMatrix<T, kLstmGates, true> w_h_t_;
  StepMatrix<T, kSlices, true> w_p_;
  StepLoop loop_;
  LstmSequenceGradStep<T> step_ = {};
  WeightGrad<T> w_x_grad_;
  WeightGrad<T> w_h_grad_;
  BiasGrad<T> b_grad_;
  WeightGrad<T> w_p_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_LSTM_SEQUENCE_BACKWARD_CUH_
