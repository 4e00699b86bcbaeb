// Owns the backward of a stack of recurrent layers on the CPU: the last layer
// first, and in each its directions, whose gradients by their common input are
// added.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_BACKWARD_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_BACKWARD_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/rnn_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gru_after_sequence_backward.h"
#include "cc/kernels/cpu/lstm_sequence_backward.h"
#include "cc/kernels/cpu/rnn_sequence.h"
#include "cc/kernels/cpu/rnn_stack_dropout.h"
#include "cc/kernels/cpu/rnn_stack_plan.h"
#include "cc/kernels/cpu/scratch.h"

namespace blockrnn::cpu {

namespace internal {

template <class T>
class RnnStackBackward {
 public:
  RnnStackBackward(const RnnBackwardArgs<T>& args, const Host& host)
      : args_(args),
        host_(host),
        drops_(args.dropout > 0),
        plan_(args, drops_),
        scratch_(host),
        directions_(host, args.geometry.directions) {}

  Status Run() {
    const RnnGeometry& g = args_.geometry;
    if (args_.batch == 0 || g.units == 0) {
      std::fill_n(args_.input_backprop, plan_.InputElements(0), T(0));
      std::fill_n(args_.params_backprop, plan_.params().size(), T(0));
      return Status::kOk;
    }
    Allocate();
    if (!scratch_.ok()) return Status::kOutOfMemory;
    h_grad_ = args_.output_backprop;
    for (int64_t layer = g.layers - 1; layer >= 0; --layer) {
      x_ = Input(layer);
      h_ = layer + 1 == g.layers
               ? args_.output
               : plan_.template H<const T>(args_.reserve, layer);
      x_grad_[0] = layer == 0 ? args_.input_backprop : between_[layer % 2];
      const Status status =
          directions_.Run(layer, [&](const Pseudo& pseudo, const Host& host) {
            return Sequence(pseudo, host);
          });
      if (status != Status::kOk) return status;
      FinishInputGrad(layer);
      h_grad_ = x_grad_[0];
    }
    return Status::kOk;
  }

 private:
  void Allocate() {
    const RnnGeometry& g = args_.geometry;
    const int64_t between = plan_.elements();
    for (int64_t layer = 1; layer < std::min<int64_t>(g.layers, 3); ++layer) {
      between_[layer % 2] = scratch_.Array<T>(between);
    }
    if (g.layers > 1 && drops_) dropped_ = scratch_.Array<T>(between);
    if (g.directions == 2) {
      x_grad_[1] = scratch_.Array<T>(
          std::max(plan_.InputElements(0), g.layers > 1 ? between : 0));
    }
  }

  // What the layer took in: of a dropped input, made again.
  const T* Input(int64_t layer) {
    if (layer == 0) return args_.input;
    const T* const below = plan_.template H<const T>(args_.reserve, layer - 1);
    if (!drops_) return below;
    ApplyMask(host_, MaskBelow(layer), args_.dropout, plan_.elements(), below,
              dropped_);
    return dropped_;
  }

  const uint8_t* MaskBelow(int64_t layer) const {
    return plan_.template Mask<const uint8_t>(args_.reserve, layer - 1);
  }

  // Adds up the directions' gradients, and takes away those of what had been
  // dropped.
  void FinishInputGrad(int64_t layer) {
    const int64_t elements = plan_.InputElements(layer);
    if (args_.geometry.directions == 2) {
      AddGradients(host_, x_grad_[1], elements, x_grad_[0]);
    }
    if (drops_ && layer > 0) {
      ApplyMask(host_, MaskBelow(layer), args_.dropout, elements, x_grad_[0],
                x_grad_[0]);
    }
  }

  Status Sequence(const Pseudo& pseudo, const Host& host) {
    switch (args_.geometry.mode) {
      case RnnMode::kLstm:
        return Lstm(pseudo, host);
      case RnnMode::kGru:
        return Gru(pseudo, host);
      default:
        return Rnn(pseudo, host);
    }
  }

  // The fields that the arguments of all cells have; where the rest of the
  // parameters' gradients go.
  template <class Args>
  PseudoParams<T> Fill(const Pseudo& pseudo, Args* args) const {
    const int64_t width = args_.geometry.proj;
    const PseudoParams<const T> params = plan_.Params(args_.params, pseudo);
    const PseudoParams<T> grads = plan_.Params(args_.params_backprop, pseudo);
    args->shape = plan_.Shape(pseudo);
    args->x = x_;
    args->h_prev = plan_.State(args_.input_h, pseudo, width);
    args->w_x = params.w_x;
    args->w_h = params.w_h;
    args->h = plan_.Columns(h_, pseudo);
    args->h_grad = plan_.Columns(h_grad_, pseudo);
    args->h_last_grad = plan_.State(args_.output_h_backprop, pseudo, width);
    args->x_grad = x_grad_[pseudo.direction];
    args->h_prev_grad = plan_.State(args_.input_h_backprop, pseudo, width);
    args->w_x_grad = grads.w_x;
    args->w_h_grad = grads.w_h;
    return grads;
  }

  const T* Kept(const Pseudo& pseudo, int index) const {
    return plan_.template Array<const T>(args_.reserve, pseudo, index);
  }

  // bW and bR are only ever added, so one's gradient is the other's.
  void CopyBiasGrad(const PseudoParams<T>& grads) const {
    std::copy_n(grads.b_x, args_.geometry.gates() * args_.geometry.units,
                grads.b_h);
  }

  Status Lstm(const Pseudo& pseudo, const Host& host) const {
    const RnnGeometry& g = args_.geometry;
    LstmSequenceBackwardArgs<T> args;
    const PseudoParams<T> grads = Fill(pseudo, &args);
    args.layout = kLstmIfco;
    args.cs_prev = plan_.State(args_.input_c, pseudo, g.units);
    args.proj = g.projected ? g.proj : 0;
    args.w_p = plan_.Params(args_.params, pseudo).w_p;
    args.i = Kept(pseudo, 0);
    args.f = Kept(pseudo, 1);
    args.o = Kept(pseudo, 2);
    args.ci = Kept(pseudo, 3);
    args.cs = Kept(pseudo, 4);
    args.cs_last_grad = plan_.State(args_.output_c_backprop, pseudo, g.units);
    args.cs_prev_grad = plan_.State(args_.input_c_backprop, pseudo, g.units);
    args.w_p_grad = grads.w_p;
    args.b_grad = grads.b_x;
    const Status status = cpu::LstmSequenceBackward<T>(args, host);
    CopyBiasGrad(grads);
    return status;
  }

  Status Gru(const Pseudo& pseudo, const Host& host) const {
    GruAfterSequenceBackwardArgs<T> args;
    const PseudoParams<T> grads = Fill(pseudo, &args);
    args.layout = kGruRuc;
    args.r = Kept(pseudo, 0);
    args.u = Kept(pseudo, 1);
    args.c = Kept(pseudo, 2);
    args.hc = Kept(pseudo, 3);
    args.b_x_grad = grads.b_x;
    args.b_h_grad = grads.b_h;
    return cpu::GruAfterSequenceBackward<T>(args, host);
  }

  Status Rnn(const Pseudo& pseudo, const Host& host) const {
    RnnSequenceBackwardArgs<T> args;
    const PseudoParams<T> grads = Fill(pseudo, &args);
    args.relu = args_.geometry.mode == RnnMode::kRelu;
    args.b_grad = grads.b_x;
    const Status status = cpu::RnnSequenceBackward<T>(args, host);
    CopyBiasGrad(grads);
    return status;
  }

  const RnnBackwardArgs<T>& args_;
  const Host& host_;
  const bool drops_;
  const RnnStackPlan<T> plan_;
  Scratch scratch_;
  Directions directions_;
  T* between_[2] = {};  // [steps, batch, D·P], gradients by outputs of layers
  T* dropped_ = nullptr;  // [steps, batch, D·P]
  // Of the layer at hand.
  const T* x_ = nullptr;       // [steps, batch, its width]
  const T* h_ = nullptr;       // [steps, batch, D·P]
  const T* h_grad_ = nullptr;  // [steps, batch, D·P], or nullptr
  T* x_grad_[2] = {};          // [steps, batch, its width], by direction
};

}  // namespace internal

template <class T>
Status RnnStackBackward(const RnnBackwardArgs<T>& args, const Host& host) {
  return internal::RnnStackBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_BACKWARD_H_
