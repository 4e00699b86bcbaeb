// Implements the backward pass of a stack of recurrent layers: the last layer
// first, and in each its directions, whose gradients of their common input are
// added. What an engine provides is described in cc/core/rnn_stack_forward.h.

#ifndef BLOCKRNN_CORE_RNN_STACK_BACKWARD_H_
#define BLOCKRNN_CORE_RNN_STACK_BACKWARD_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/simple_rnn_cell.h"

namespace blockrnn {

template <class T, class Engine>
class RnnStackBackward {
 public:
  using Status = typename Engine::Status;

  RnnStackBackward(const RnnStackBackwardArgs<T>& args, Engine* engine)
      : args_(args),
        engine_(*engine),
        drops_(args.dropout > 0),
        plan_(args, drops_) {}

  Status Run() {
    const RnnGeometry& g = args_.geometry;
    if (args_.batch == 0 || g.units == 0) return Empty();
    Status status = Allocate();
    if (Engine::Failed(status)) return status;
    h_grad_ = args_.output_backprop;
    for (int64_t layer = g.layers - 1; layer >= 0; --layer) {
      h_ = layer + 1 == g.layers ? args_.output : Below(layer + 1);
      x_ = layer == 0 ? args_.input : drops_ ? dropped_ : Below(layer);
      x_grad_[0] = layer == 0 ? args_.input_backprop : between_[layer % 2];
      status = Drop(layer);
      if (Engine::Failed(status)) return status;
      status = RunLayer(layer);
      if (Engine::Failed(status)) return status;
      status = FinishBiases(layer);
      if (Engine::Failed(status)) return status;
      if (g.directions == 2) {
        status = engine_.AddGradients(x_grad_[1], plan_.InputElements(layer),
                                      x_grad_[0]);
      }
      if (Engine::Failed(status)) return status;
      h_grad_ = above_ = x_grad_[0];
    }
    return status;
  }

 private:
  Status Empty() {
    const Status status =
        engine_.FillZero(plan_.InputElements(0), args_.input_backprop);
    if (Engine::Failed(status)) return status;
    return engine_.FillZero(plan_.params().size(), args_.params_backprop);
  }

  Status Allocate() {
    const RnnGeometry& g = args_.geometry;
    const int64_t between = plan_.elements();
    Status status{};
    for (int64_t layer = 1; layer < std::min<int64_t>(g.layers, 3); ++layer) {
      status = engine_.Allocate(between, &between_[layer % 2]);
      if (Engine::Failed(status)) return status;
    }
    if (g.layers > 1 && drops_) status = engine_.Allocate(between, &dropped_);
    if (Engine::Failed(status) || g.directions == 1) return status;
    return engine_.Allocate(
        std::max(plan_.InputElements(0), g.layers > 1 ? between : 0),
        &x_grad_[1]);
  }

  // What the layer below put out.
  const T* Below(int64_t layer) const {
    return plan_.template H<const T>(args_.reserve, layer - 1);
  }

  const uint8_t* MaskBelow(int64_t layer) const {
    return plan_.template Mask<const uint8_t>(args_.reserve, layer - 1);
  }

  // Before a layer's backward: masks the gradient that the layer above gave,
  // and makes the layer's own input again by its mask.
  Status Drop(int64_t layer) const {
    if (!drops_) return Status{};
    Status status{};
    if (layer + 1 < args_.geometry.layers) {
      status = engine_.ApplyMask(MaskBelow(layer + 1), args_.dropout,
                                 plan_.elements(), above_, above_);
    }
    if (Engine::Failed(status) || layer == 0) return status;
    return engine_.ApplyMask(MaskBelow(layer), args_.dropout, plan_.elements(),
                             Below(layer), dropped_);
  }

  Status RunLayer(int64_t layer) {
    using Direction = LayerDirection;
    switch (args_.geometry.mode) {
      case RnnMode::kLstm:
        return engine_.RunLayer(
            layer, [&](const Direction& d) { return LstmArgs(d); });
      case RnnMode::kGru:
        return engine_.RunLayer(layer,
                                [&](const Direction& d) { return GruArgs(d); });
      default:
        return engine_.RunLayer(layer,
                                [&](const Direction& d) { return RnnArgs(d); });
    }
  }

  // bW and bR are only ever added, so one's gradient is the other's; a GRU has
  // its own for each.
  Status FinishBiases(int64_t layer) const {
    const RnnGeometry& g = args_.geometry;
    Status status{};
    if (g.mode == RnnMode::kGru) return status;
    for (int64_t n = 0; n < g.directions && !Engine::Failed(status); ++n) {
      const LayerDirectionParams<T> grads = Grads(MakeDirection(g, layer, n));
      status = engine_.Copy(grads.b_x, g.gates() * g.units, grads.b_h);
    }
    return status;
  }

  LayerDirectionParams<T> Grads(const LayerDirection& dir) const {
    return plan_.Params(args_.params_backprop, dir);
  }

  // The fields that the arguments of all cells have.
  template <class Args>
  LayerDirectionParams<T> Fill(const LayerDirection& dir, Args* args) const {
    const int64_t width = args_.geometry.proj;
    const LayerDirectionParams<T> grads = Grads(dir);
    const LayerDirectionParams<const T> params =
        plan_.Params(args_.params, dir);
    args->shape = plan_.Shape(dir);
    args->x = x_;
    args->h_prev = plan_.State(args_.input_h, dir, width);
    args->w_x = params.w_x;
    args->w_h = params.w_h;
    args->h = plan_.Columns(h_, dir);
    args->h_grad = plan_.Columns(h_grad_, dir);
    args->h_last_grad = plan_.State(args_.output_h_backprop, dir, width);
    args->x_grad = x_grad_[dir.direction];
    args->h_prev_grad = plan_.State(args_.input_h_backprop, dir, width);
    args->w_x_grad = grads.w_x;
    args->w_h_grad = grads.w_h;
    return grads;
  }

  const T* Saved(const LayerDirection& dir, int index) const {
    return plan_.template Array<const T>(args_.reserve, dir, index);
  }

  LstmSequenceBackwardArgs<T> LstmArgs(const LayerDirection& dir) const {
    const RnnGeometry& g = args_.geometry;
    LstmSequenceBackwardArgs<T> args;
    const LayerDirectionParams<T> grads = Fill(dir, &args);
    args.layout = kLstmIfco;
    args.cs_prev = plan_.State(args_.input_c, dir, g.units);
    args.proj = g.projected ? g.proj : 0;
    args.w_p = plan_.Params(args_.params, dir).w_p;
    args.i = Saved(dir, kSavedI);
    args.f = Saved(dir, kSavedF);
    args.o = Saved(dir, kSavedO);
    args.ci = Saved(dir, kSavedCi);
    args.cs = Saved(dir, kSavedCs);
    args.cs_last_grad = plan_.State(args_.output_c_backprop, dir, g.units);
    args.cs_prev_grad = plan_.State(args_.input_c_backprop, dir, g.units);
    args.w_p_grad = grads.w_p;
    args.b_grad = grads.b_x;
    return args;
  }

  GruAfterSequenceBackwardArgs<T> GruArgs(const LayerDirection& dir) const {
    GruAfterSequenceBackwardArgs<T> args;
    const LayerDirectionParams<T> grads = Fill(dir, &args);
    args.layout = kGruRuc;
    args.r = Saved(dir, kSavedR);
    args.u = Saved(dir, kSavedU);
    args.c = Saved(dir, kSavedC);
    args.hc = Saved(dir, kSavedHc);
    args.b_x_grad = grads.b_x;
    args.b_h_grad = grads.b_h;
    return args;
  }

  SimpleRnnBackwardArgs<T> RnnArgs(const LayerDirection& dir) const {
    SimpleRnnBackwardArgs<T> args;
    const LayerDirectionParams<T> grads = Fill(dir, &args);
    args.relu = args_.geometry.mode == RnnMode::kRelu;
    args.b_grad = grads.b_x;
    return args;
  }

  const RnnStackBackwardArgs<T>& args_;
  Engine& engine_;
  const bool drops_;
  const RnnStackPlan<T> plan_;
  T* between_[2] = {};  // [steps, batch, D·P], gradients by outputs of layers
  T* dropped_ = nullptr;  // [steps, batch, D·P]
  // Of the layer at hand.
  const T* x_ = nullptr;       // [steps, batch, its width]
  const T* h_ = nullptr;       // [steps, batch, D·P]
  const T* h_grad_ = nullptr;  // [steps, batch, D·P], or nullptr
  T* above_ = nullptr;         // the same, of the layer above
  T* x_grad_[2] = {};          // [steps, batch, its width], by direction
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RNN_STACK_BACKWARD_H_
