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
#include "cc/kernels/cuda/input_product.cuh"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence_gradients.cuh"
#include "cc/kernels/cuda/sequence_passes.cuh"
#include "cc/kernels/cuda/sequence_rows.cuh"
#include "cc/kernels/cuda/step_loop.cuh"
#include "cc/kernels/cuda/step_matrix.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// What both stages of a backward step have.
template <class T>
struct GruSequenceGradStep {
  using C = ComputeType<T>;
  GruSequenceBackwardArgs<T> args;
  RowMap rows;
  int64_t first;              // rows of all steps before the block
  Alternating<C> step_dz_ru;  // [B, 2H]
  C* step_d_c;                // [B, H]
  C* d_h;                     // [B, H]
  C* d_h_before;              // [B, H], less what comes through r̄ and ū
  T* dz;                      // [block rows, 3H]: r̄, ū, c̄
  T* h_r;                     // [block rows, H], h ∘ r with its factors

  __device__ __forceinline__ int64_t BlockRow(int64_t step, int64_t b) const {
    return rows.Before(step) - first + b;
  }
  __device__ __forceinline__ C HBefore(int64_t step, int64_t b,
                                       int64_t unit) const {
    const int64_t units = args.shape.units;
    return step == 0 ? Load(args.h_prev, rows.State(b) * units + unit)
                     : Load(args.h, rows.InMemory(step - 1, b) * units + unit);
  }
  __device__ __forceinline__ void StoreDz(int64_t step, int64_t b, int gate,
                                          int64_t unit, C value) const {
    const int64_t units = args.shape.units;
    Store(dz, (BlockRow(step, b) * kGruAllGates + gate) * units + unit, value);
  }
};

// [d_r_bar d_u_bar] · w_ru_hᵀ of the step after  →  d_h, d_c_bar, d_u_bar; as
// step -1, the gradient of the first state.
template <class T>
struct GruSequenceGradState {
  using C = ComputeType<T>;
  GruSequenceGradStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const GruSequenceBackwardArgs<T>& args = of.args;
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    C d_h = sums[0] + of.d_h_before[state];
    if (step < 0) {
      StoreIf(args.h_prev_grad, of.rows.State(b) * units + unit, d_h);
      return;
    }
    if (args.h_grad != nullptr) {
      d_h += Load(args.h_grad, of.rows.InMemory(step, b) * units + unit);
    }
    GruStateGrad<C> out = {C(0), C(0)};
    C h_r = C(0);
    if (!of.rows.Skipped(step, b)) {
      const int64_t at = of.rows.Saved(step, b) * units + unit;
      const C before = of.HBefore(step, b, unit);
      out = GruBackwardState(d_h, Load(args.u, at), Load(args.c, at), before);
      h_r = before * Load(args.r, at) * CandidateFactor(args, of.rows, b, unit);
    }
    of.d_h[state] = d_h;
    of.step_d_c[state] = out.d_c_bar;
    of.step_dz_ru.At(step)[(b * kGruGates + kGruRu.u) * units + unit] =
        out.d_u_bar;
    of.StoreDz(step, b, kGruRu.u, unit, out.d_u_bar);
    of.StoreDz(step, b, kGruCandidate, unit, out.d_c_bar);
    Store(of.h_r, of.BlockRow(step, b) * units + unit, h_r);
  }
};

// d_c_bar · w_c_hᵀ  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
template <class T>
struct GruSequenceGradReset {
  using C = ComputeType<T>;
  GruSequenceGradStep<T> of;

  __device__ void operator()(int64_t step, int64_t b, int64_t unit,
                             const C (&sums)[1]) const {
    const GruSequenceBackwardArgs<T>& args = of.args;
    const int64_t units = args.shape.units;
    const int64_t state = b * units + unit;
    const C d_h = of.d_h[state];
    C d_r_bar = C(0);
    C d_h_before = d_h;
    if (!of.rows.Skipped(step, b)) {
      const int64_t at = of.rows.Saved(step, b) * units + unit;
      const C r = Load(args.r, at);
      const C d_hr = sums[0] * CandidateFactor(args, of.rows, b, unit);
      d_r_bar = GruBackwardReset(d_hr, of.HBefore(step, b, unit), r);
      d_h_before = GruBackwardPrevious(C(0), d_hr, r, d_h, Load(args.u, at));
    }
    of.d_h_before[state] = d_h_before;
    of.step_dz_ru.At(step)[(b * kGruGates + kGruRu.r) * units + unit] = d_r_bar;
    of.StoreDz(step, b, kGruRu.r, unit, d_r_bar);
  }
};

// For each block of steps, the last one first: its steps, then
//   x_grad = [d_r_bar d_u_bar] · w_ru_xᵀ + d_c_bar · w_c_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruSequenceBackwardCall {
 public:
  using C = ComputeType<T>;

  GruSequenceBackwardCall(const GruSequenceBackwardArgs<T>& args,
                          const Host& host)
      : args_(args), host_(host), shape_(args.shape), units_(shape_.units) {}

  Error Run() {
    if (Error error = Prepare()) return error;
    Error error = nullptr;
    for (StepBlock block = rows_.BlockBefore(rows_.steps()); block.steps > 0;
         block = rows_.BlockBefore(block.first)) {
      step_.first = rows_.Before(block.first);
      if ((error = Steps(block)) || (error = Weights(block)) ||
          (error = InputGradOf(block))) {
        return error;
      }
    }
    if ((error = BeforeFirst())) return error;
    const WeightGrad<T>* const grads[] = {&w_ru_x_grad_, &w_ru_h_grad_,
                                          &w_c_x_grad_, &w_c_h_grad_};
    for (const WeightGrad<T>* grad : grads) {
      if ((error = grad->Finish(host_))) return error;
    }
    if ((error = b_ru_grad_.Finish(host_))) return error;
    return b_c_grad_.Finish(host_);
  }

 private:
  Error Steps(const StepBlock& block) const {
    return loop_.Run(host_, rows_, block, true,
                     Work(w_ru_h_t_, GruSequenceGradState<T>{step_}),
                     Work(w_c_h_t_, GruSequenceGradReset<T>{step_}, true));
  }

  // Step -1: the gradient of the first state.
  Error BeforeFirst() const {
    return w_ru_h_t_.Run(host_, {-1, shape_.batch, rows_.Active(0), 0},
                         GruSequenceGradState<T>{step_});
  }

  Error Plan() {
    if (args_.recurrent_dropout != nullptr) return nullptr;
    return loop_.Plan(
        host_, rows_.steps(),
        Planned{&w_ru_h_t_, units_, kGruGates * units_, shape_.batch},
        Planned{&w_c_h_t_, units_, units_, shape_.batch});
  }

  Error Prepare() {
    const int64_t batch = shape_.batch;
    const int64_t row_bytes =
        InputGrad<T>::RowBytes(shape_) +
        static_cast<int64_t>(sizeof(C)) * (5 * units_ + shape_.input);
    Error error = nullptr;
    if ((error = rows_.Prepare(host_, shape_, args_.mask, row_bytes)) ||
        (error = x_.Prepare(host_, shape_, rows_, args_.x, true)) ||
        (error = x_grad_.Prepare(host_, shape_, rows_, args_.x_grad)) ||
        (error = state_grad_.Prepare(host_, shape_, rows_,
                                     {args_.h, units_, args_.h_prev, units_},
                                     args_.recurrent_dropout)) ||
        (error = dz_.Prepare(host_, rows_, kGruAllGates * units_)) ||
        (error = h_r_.Prepare(host_, rows_, units_)) || (error = Plan()) ||
        (error = w_ru_h_t_.Prepare(
             host_, {args_.w_ru_h, kGruGates * units_, 0, 1}, units_,
             kGruGates * units_, batch, args_.recurrent_dropout != nullptr)) ||
        (error = w_c_h_t_.Prepare(host_, {args_.w_c_h, units_, 0, 1}, units_,
                                  units_, batch, false)) ||
        (error = PrepareStates()) || (error = PrepareWeights())) {
      return error;
    }
    step_.args = args_;
    step_.rows = rows_.map();
    step_.dz = dz_.data;
    step_.h_r = h_r_.data;
    w_c_h_t_.product().state = {step_.step_d_c, step_.step_d_c};
    StepProduct<T>& product = w_ru_h_t_.product();
    product.state = step_.step_dz_ru;
    product.order = rows_.map().order;
    product.sum_factors = args_.recurrent_dropout;
    product.factors_stride = batch * units_;
    return nullptr;
  }

  Error PrepareStates() {
    const int64_t size = shape_.batch * units_;
    Error error = nullptr;
    if ((error = Allocate(host_, kGruGates * size, &step_.step_dz_ru.even)) ||
        (error = Allocate(host_, kGruGates * size, &step_.step_dz_ru.odd)) ||
        (error = Allocate(host_, size, &step_.step_d_c)) ||
        (error = Allocate(host_, size, &step_.d_h)) ||
        (error = Allocate(host_, size, &step_.d_h_before))) {
      return error;
    }
    return SequencePasses<T>::BeginStates(host_, rows_.map(), args_.h_last_grad,
                                          units_, step_.d_h_before);
  }

  Error PrepareWeights() {
    const int64_t ru = kGruGates * units_;
    const bool has_x = shape_.HasInputWeights();
    Error error = nullptr;
    if ((error = w_ru_x_grad_.Prepare(
             host_, has_x ? args_.w_ru_x_grad : nullptr, shape_.input * ru)) ||
        (error = w_c_x_grad_.Prepare(host_, has_x ? args_.w_c_x_grad : nullptr,
                                     shape_.input * units_)) ||
        (error = w_ru_h_grad_.Prepare(host_, args_.w_ru_h_grad, units_ * ru)) ||
        (error =
             w_c_h_grad_.Prepare(host_, args_.w_c_h_grad, units_ * units_)) ||
        (error = b_ru_grad_.Prepare(host_, rows_, args_.b_ru_grad, ru))) {
      return error;
    }
    return b_c_grad_.Prepare(host_, rows_, args_.b_c_grad, units_);
  }

  GateColumns<T> Ru() const { return ColumnsOf(dz_, 0, kGruGates * units_); }
  GateColumns<T> Candidate() const {
    return ColumnsOf(dz_, kGruGates * units_, units_);
  }

  Error Weights(const StepBlock& block) {
    const auto sum = [&](const T* left, int64_t width,
                         const GateColumns<T>& gates) {
      return WeightSum<T>{block.rows, left,        width, gates,
                          0,          gates.width, false};
    };
    Error error = nullptr;
    if ((error = x_.Enter(host_, block)) ||
        (error = AddWeights(host_, sum(x_.data(), shape_.input, Ru()),
                            w_ru_x_grad_)) ||
        (error = AddWeights(host_, sum(x_.data(), shape_.input, Candidate()),
                            w_c_x_grad_)) ||
        (error =
             state_grad_.Add(host_, block, dz_, 0, kGruGates, w_ru_h_grad_)) ||
        (error = AddWeights(host_, sum(h_r_.data, units_, Candidate()),
                            w_c_h_grad_)) ||
        (error = b_ru_grad_.Add(host_, block, Ru()))) {
      return error;
    }
    return b_c_grad_.Add(host_, block, Candidate());
  }

  Error InputGradOf(const StepBlock& block) {
    Error error = nullptr;
    if ((error = SequencePasses<T>::StoreGates(host_, rows_.map(), block,
                                               shape_, dz_.data, kGruAllGates,
                                               args_.x_grad)) ||
        (error = x_grad_.Add(host_, block, Ru(), args_.w_ru_x,
                             kGruGates * units_, true, false))) {
      return error;
    }
    return x_grad_.Add(host_, block, Candidate(), args_.w_c_x, units_, false,
                       true);
  }

  const GruSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  SequenceRows rows_;
  BlockInput<T> x_;
  InputGrad<T> x_grad_;
  StateWeightsGrad<T> state_grad_;
  BlockArray<T> dz_;   // [block rows, 3H]: r̄, ū, c̄
  BlockArray<T> h_r_;  // [block rows, H]
  StepMatrix<T, kGruGates, true> w_ru_h_t_;
  StepMatrix<T, kSlices, true> w_c_h_t_;
  StepLoop loop_;
  GruSequenceGradStep<T> step_ = {};
  WeightGrad<T> w_ru_x_grad_;
  WeightGrad<T> w_ru_h_grad_;
  WeightGrad<T> w_c_x_grad_;
  WeightGrad<T> w_c_h_grad_;
  BiasGrad<T> b_ru_grad_;
  BiasGrad<T> b_c_grad_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_GRU_SEQUENCE_BACKWARD_CUH_
