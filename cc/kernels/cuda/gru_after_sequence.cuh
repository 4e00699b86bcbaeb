// Owns a GRU, reset after the product, over a whole sequence on the GPU,
// forward and backward. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CUDA_GRU_AFTER_SEQUENCE_CUH_
#define BLOCKRNN_KERNELS_CUDA_GRU_AFTER_SEQUENCE_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
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

static_assert(kGruRuc.c == 2 && kGruUrc.c == 2);

// x · w_x + b_x, and h · w_h + b_h  →  r, u, hc, c, h
//
// The candidate's gate is the last in every layout.
template <class T>
struct GruAfterSequenceCell {
  using C = ComputeType<T>;
  GruAfterSequenceForwardArgs<T> args;
  RowMap rows;
  StepInput<T> input;
  Alternating<C> h;  // [B, H], before a step and after it
  int64_t ld_h;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[kGruAfterGates]) const {
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    const C h_prev = h.At(step)[state];
    GruAfterStep<C> out = {C(0), C(0), C(0), h_prev};
    C hc = C(0);
    if (!rows.Skipped(step, b)) {
      const auto bar = [&](int gate, C sum) {
        return input.Of(rows, step, b, gate, unit) +
               input.StateBias(gate, unit) + sum;
      };
      const C first = bar(0, sums[0]);
      const C second = bar(1, sums[1]);
      const bool r_first = args.layout.r == 0;
      hc = sums[2] + input.StateBias(2, unit);
      out = GruAfterForward<StandardActivations>(
          r_first ? first : second, r_first ? second : first,
          input.Of(rows, step, b, 2, unit), hc, h_prev);
    }
    const int64_t at = rows.Saved(step, b) * units + unit;
    StoreIf(args.r, at, out.r);
    StoreIf(args.u, at, out.u);
    StoreIf(args.c, at, out.c);
    StoreIf(args.hc, at, hc);
    StoreIf(args.h, rows.InMemory(step, b) * ld_h + unit, out.h);
    h.At(step + 1)[state] = out.h;
  }
};

// [d_r_bar d_u_bar d_hc] · w_hᵀ of the step after  →  d_h  →  d_r_bar, d_u_bar,
// d_hc, d_c_bar, in the layout's order; as step -1, the gradient of the first
// state.
template <class T>
struct GruAfterSequenceGradCell {
  using C = ComputeType<T>;
  GruAfterSequenceBackwardArgs<T> args;
  RowMap rows;
  int64_t ld_h;
  int64_t first;           // rows of all steps before the block
  Alternating<C> step_dz;  // [B, 3H], the gradients on the side of h
  C* d_h_before;           // [B, H], what does not come through w_h
  T* dz_h;                 // [block rows, 3H], the same for a block
  T* dz_x;                 // [block rows, 3H], on the side of x

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    C d_h = sums[0] + d_h_before[state];
    if (step < 0) {
      StoreIf(args.h_prev_grad, rows.State(b) * units + unit, d_h);
      return;
    }
    if (args.h_grad != nullptr) {
      d_h += Load(args.h_grad, rows.InMemory(step, b) * ld_h + unit);
    }
    GruAfterStepGrad<C> out = {C(0), C(0), C(0), C(0), d_h};
    if (!rows.Skipped(step, b)) {
      const int64_t at = rows.Saved(step, b) * units + unit;
      const C h_prev =
          step == 0 ? Load(args.h_prev, rows.State(b) * units + unit)
                    : Load(args.h, rows.InMemory(step - 1, b) * ld_h + unit);
      const GruAfterStep<C> saved = {Load(args.r, at), Load(args.u, at),
                                     Load(args.c, at), C(0)};
      out = GruAfterBackward(saved, Load(args.hc, at), h_prev, d_h);
    }
    d_h_before[state] = out.d_h_prev;
    const int64_t block_row = rows.Before(step) - first + b;
    const auto store = [&](int gate, C from_h, C from_x) {
      const int64_t column = gate * units + unit;
      step_dz.At(step)[b * kGruAfterGates * units + column] = from_h;
      const int64_t at = block_row * kGruAfterGates * units + column;
      Store(dz_h, at, from_h);
      Store(dz_x, at, from_x);
    };
    store(args.layout.r, out.d_r_bar, out.d_r_bar);
    store(args.layout.u, out.d_u_bar, out.d_u_bar);
    store(args.layout.c, out.d_hc, out.d_c_bar);
  }
};

template <class T>
class GruAfterSequenceForwardCall {
 public:
  using C = ComputeType<T>;

  GruAfterSequenceForwardCall(const GruAfterSequenceForwardArgs<T>& args,
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
      const GruAfterSequenceCell<T> cell = {args_, rows_.map(),
                                            product_.input(), h_, ld_h_};
      error = loop_.Run(host_, rows_, block, false, Work(w_h_, cell));
      if (error != nullptr) return error;
    }
    return SequencePasses<T>::EndStates(host_, rows_.map(), h_.even, h_.odd,
                                        shape_.units, args_.h_last);
  }

 private:
  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    ld_h_ = shape_.h_width > 0 ? shape_.h_width : units;
    Error error = nullptr;
    if ((error = rows_.Prepare(
             host_, shape_, args_.mask,
             InputProduct<T>::RowBytes(shape_, kGruAfterGates))) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, false)) ||
        (error = product_.Prepare(
             host_, shape_, rows_, args_.x,
             {args_.w_x, args_.b_x, args_.b_h, kGruAfterGates})) ||
        (error = Plan()) ||
        (error = w_h_.Prepare(host_, Weights(), units, units, batch,
                              args_.recurrent_dropout != nullptr)) ||
        (error = Allocate(host_, batch * units, &h_.even)) ||
        (error = Allocate(host_, batch * units, &h_.odd)) ||
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
    product.factors_stride = batch * units;
    if (shape_.saved_in_steps) return nullptr;
    T* const saved[] = {args_.r, args_.u, args_.c, args_.hc};
    for (T* out : saved) {
      error =
          SequencePasses<T>::ZeroPast(host_, rows_.map(), out, units, units);
      if (error != nullptr) return error;
    }
    return nullptr;
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    return loop_.Plan(host_, rows_.steps(),
                      Planned{&w_h_, shape_.units, shape_.units, shape_.batch});
  }

  StepWeights<T> Weights() const {
    const int64_t units = shape_.units;
    if (shape_.weights_by_unit) return {args_.w_h, units, units * units, 1};
    return {args_.w_h, 1, units, kGruAfterGates * units};
  }

  const GruAfterSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  int64_t ld_h_ = 0;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputProduct<T> product_;
  StepMatrix<T, kGruAfterGates, false> w_h_;
  StepLoop loop_;
  Alternating<C> h_;  // [B, H]
};

// For each block of steps, the last one first: its steps, then
//   x_grad = dz_x · w_xᵀ    w_x_grad += xᵀ · dz_x    b_x_grad += Σ dz_x
//   w_h_grad += h before the stepᵀ · dz_h            b_h_grad += Σ dz_h
template <class T>
class GruAfterSequenceBackwardCall {
 public:
  using C = ComputeType<T>;

  GruAfterSequenceBackwardCall(const GruAfterSequenceBackwardArgs<T>& args,
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
        (error = w_h_grad_.Finish(host_)) ||
        (error = b_x_grad_.Finish(host_))) {
      return error;
    }
    return b_h_grad_.Finish(host_);
  }

 private:
  int64_t ldz() const { return kGruAfterGates * shape_.units; }

  // Step -1: the gradient of the first state.
  Error BeforeFirst() {
    return w_h_t_.Run(host_, {-1, shape_.batch, rows_.Active(0), 0}, cell_);
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    return loop_.Plan(host_, rows_.steps(),
                      Planned{&w_h_t_, shape_.units, ldz(), shape_.batch});
  }

  Error Prepare() {
    const int64_t units = shape_.units;
    const int64_t batch = shape_.batch;
    const int64_t row_bytes =
        InputGrad<T>::RowBytes(shape_) +
        static_cast<int64_t>(sizeof(C)) * (2 * ldz() + shape_.input + units);
    cell_.ld_h = shape_.h_width > 0 ? shape_.h_width : units;
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(host_, shape_, rows_,
                                     {args_.h, cell_.ld_h, args_.h_prev, units},
                                     args_.recurrent_dropout)) ||
        (error = dz_h_.Prepare(host_, rows_, ldz())) ||
        (error = dz_x_.Prepare(host_, rows_, ldz())) || (error = Plan()) ||
        (error = w_h_t_.Prepare(host_, Transposed(), units, ldz(), batch,
                                args_.recurrent_dropout != nullptr)) ||
        (error = Allocate(host_, batch * ldz(), &cell_.step_dz.even)) ||
        (error = Allocate(host_, batch * ldz(), &cell_.step_dz.odd)) ||
        (error = Allocate(host_, batch * units, &cell_.d_h_before)) ||
        (error = SequencePasses<T>::BeginStates(
             host_, rows_.map(), args_.h_last_grad, units, cell_.d_h_before)) ||
        (error = w_x_grad_.Prepare(
             host_, shape_.HasInputWeights() ? args_.w_x_grad : nullptr,
             shape_.input * ldz())) ||
        (error = w_h_grad_.Prepare(host_, args_.w_h_grad, units * ldz())) ||
        (error = b_x_grad_.Prepare(host_, rows_, args_.b_x_grad, ldz())) ||
        (error = b_h_grad_.Prepare(host_, rows_, args_.b_h_grad, ldz()))) {
      return error;
    }
    cell_.args = args_;
    cell_.rows = rows_.map();
    cell_.dz_h = dz_h_.data;
    cell_.dz_x = dz_x_.data;
    StepProduct<T>& product = w_h_t_.product();
    product.state = cell_.step_dz;
    product.order = rows_.map().order;
    product.sum_factors = args_.recurrent_dropout;
    product.factors_stride = batch * units;
    return nullptr;
  }

  Error Weights(const StepBlock& block) {
    const GateColumns<T> dz_x = ColumnsOf(dz_x_, 0, ldz());
    const GateColumns<T> dz_h = ColumnsOf(dz_h_, 0, ldz());
    Error error = nullptr;
    if ((error = x_.Enter(host_, block)) ||
        (error =
             AddWeights(host_,
                        WeightSum<T>{block.rows, x_.data(), shape_.input, dz_x,
                                     0, ldz(), shape_.weights_by_unit},
                        w_x_grad_)) ||
        (error = state_grad_.Add(host_, block, dz_h_, 0, kGruAfterGates,
                                 w_h_grad_)) ||
        (error = b_x_grad_.Add(host_, block, dz_x)) ||
        (error = b_h_grad_.Add(host_, block, dz_h)) ||
        (error = SequencePasses<T>::StoreGates(host_, rows_.map(), block,
                                               shape_, dz_x_.data,
                                               kGruAfterGates, args_.x_grad))) {
      return error;
    }
    return x_grad_.Add(host_, block, dz_x, args_.w_x, ldz(), true, true);
  }

  StepWeights<T> Transposed() const {
    return shape_.weights_by_unit
               ? StepWeights<T>{args_.w_h, 1, 0, shape_.units}
               : StepWeights<T>{args_.w_h, ldz(), 0, 1};
  }

  const GruAfterSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_h_;  // [block rows, 3H]
  BlockArray<T> dz_x_;  // [block rows, 3H]
  StepMatrix<T, kGruAfterGates, true> w_h_t_;
  StepLoop loop_;
  GruAfterSequenceGradCell<T> cell_ = {};
  WeightGrad<T> w_x_grad_;
  WeightGrad<T> w_h_grad_;
  BiasGrad<T> b_x_grad_;
  BiasGrad<T> b_h_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_GRU_AFTER_SEQUENCE_CUH_
