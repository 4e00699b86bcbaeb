// Implements the forward pass of a stack of recurrent layers: layer after
// layer, and in each its directions, as whole sequences. The equations are
// those of the sequences; this file has the order, the arguments of each
// sequence, and what is saved for backward.
//
// An engine provides the parts of a stack, as a class Engine:
//
//   using Status;                        of the engine's functions
//   static bool Failed(Status);
//   static constexpr ReserveDevice kReserveDevice;
//   Status Allocate(elements, T** array);                scratch
//   Status RunLayer(layer, args_of);
//       Runs for each direction `dir` of the layer, possibly concurrently, the
//       sequence with the arguments args_of(dir).
//   Status DrawMask(philox, rate, elements, mask);
//   Status ApplyMask(mask, rate, elements, from, to);    may be in place
//   Status FinishReserve(layout, header, reserve);       forward only
//   Status FillZero(elements, array);                    the rest backward only
//   Status AddGradients(other, elements, grad);          grad += other
//   Status Copy(from, elements, to);

#ifndef BLOCKRNN_CORE_RNN_STACK_FORWARD_H_
#define BLOCKRNN_CORE_RNN_STACK_FORWARD_H_

#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/simple_rnn_cell.h"

namespace blockrnn {

template <class T, class Engine>
class RnnStackForward {
 public:
  using Status = typename Engine::Status;

  RnnStackForward(const RnnStackForwardArgs<T>& args, Engine* engine)
      : args_(args),
        engine_(*engine),
        drops_(args.reserve != nullptr && args.dropout > 0),
        plan_(args, drops_) {}

  Status Run() {
    const int64_t layers = args_.geometry.layers;
    x_ = args_.input;
    // All outputs are empty else; the layers may then be without number.
    const bool empty = args_.batch == 0 || args_.geometry.units == 0;
    for (int64_t layer = 0; layer < layers && !empty; ++layer) {
      Status status = FindOutput(layer);
      if (Engine::Failed(status)) return status;
      status = Drop(layer);
      if (Engine::Failed(status)) return status;
      status = RunLayer(layer);
      if (Engine::Failed(status)) return status;
      below_ = x_ = h_;
      if (drops_ && layer + 1 < layers) status = DrawMask(layer);
      if (Engine::Failed(status)) return status;
    }
    return FinishReserve();
  }

 private:
  // Where the output of a layer goes. Without a backward only the layer above
  // reads it, and two buffers serve all.
  Status FindOutput(int64_t layer) {
    if (layer + 1 == args_.geometry.layers) {
      h_ = args_.output;
    } else if (args_.reserve != nullptr) {
      h_ = plan_.template H<T>(args_.reserve, layer);
    } else {
      T*& buffer = between_[layer % 2];
      Status status{};
      if (buffer == nullptr) {
        status = engine_.Allocate(plan_.elements(), &buffer);
      }
      h_ = buffer;
      return status;
    }
    return Status{};
  }

  uint8_t* Mask(int64_t layer) const {
    return plan_.template Mask<uint8_t>(args_.reserve, layer);
  }

  // Of what goes up of a layer's output.
  Status DrawMask(int64_t layer) {
    const int64_t elements = plan_.elements();
    Status status{};
    if (dropped_ == nullptr) status = engine_.Allocate(elements, &dropped_);
    if (Engine::Failed(status)) return status;
    x_ = dropped_;
    const int64_t counters =
        DropoutBlocksOfLayer(args_.geometry, args_.steps, args_.batch);
    return engine_.DrawMask(PhiloxSkip(args_.philox, layer * counters),
                            args_.dropout, elements, Mask(layer));
  }

  // Masks the input of a layer. The output of the layer below is not changed:
  // it is the state that its own backward reads.
  Status Drop(int64_t layer) const {
    if (!drops_ || layer == 0) return Status{};
    return engine_.ApplyMask(Mask(layer - 1), args_.dropout, plan_.elements(),
                             below_, dropped_);
  }

  // Last, so that a forward that did not end leaves no header.
  Status FinishReserve() {
    if (args_.reserve == nullptr) return Status{};
    const ReserveHeader header =
        MakeReserveHeader(args_, kElementBytes<T>, Engine::kReserveDevice);
    return engine_.FinishReserve(plan_.reserve(), header, args_.reserve);
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

  // The fields that the arguments of all cells have.
  template <class Args>
  LayerDirectionParams<const T> Fill(const LayerDirection& dir,
                                     Args* args) const {
    const int64_t width = args_.geometry.proj;
    const LayerDirectionParams<const T> params =
        plan_.Params(args_.params, dir);
    args->shape = plan_.Shape(dir);
    args->x = x_;
    args->h_prev = plan_.State(args_.input_h, dir, width);
    args->w_x = params.w_x;
    args->w_h = params.w_h;
    args->h = plan_.Columns(h_, dir);
    args->h_last = plan_.State(args_.output_h, dir, width);
    return params;
  }

  T* Saved(const LayerDirection& dir, int index) const {
    return plan_.template Array<T>(args_.reserve, dir, index);
  }

  LstmSequenceForwardArgs<T> LstmArgs(const LayerDirection& dir) const {
    const RnnGeometry& g = args_.geometry;
    LstmSequenceForwardArgs<T> args;
    const LayerDirectionParams<const T> params = Fill(dir, &args);
    args.layout = kLstmIfco;
    args.cs_prev = plan_.State(args_.input_c, dir, g.units);
    args.proj = g.projected ? g.proj : 0;
    args.w_p = params.w_p;
    args.b = params.b_x;
    args.b_h = params.b_h;
    args.i = Saved(dir, kSavedI);
    args.f = Saved(dir, kSavedF);
    args.o = Saved(dir, kSavedO);
    args.ci = Saved(dir, kSavedCi);
    args.cs = Saved(dir, kSavedCs);
    args.cs_last = plan_.State(args_.output_c, dir, g.units);
    return args;
  }

  GruAfterSequenceForwardArgs<T> GruArgs(const LayerDirection& dir) const {
    GruAfterSequenceForwardArgs<T> args;
    const LayerDirectionParams<const T> params = Fill(dir, &args);
    args.layout = kGruRuc;
    args.b_x = params.b_x;
    args.b_h = params.b_h;
    args.r = Saved(dir, kSavedR);
    args.u = Saved(dir, kSavedU);
    args.c = Saved(dir, kSavedC);
    args.hc = Saved(dir, kSavedHc);
    return args;
  }

  SimpleRnnForwardArgs<T> RnnArgs(const LayerDirection& dir) const {
    SimpleRnnForwardArgs<T> args;
    const LayerDirectionParams<const T> params = Fill(dir, &args);
    args.relu = args_.geometry.mode == RnnMode::kRelu;
    args.b = params.b_x;
    args.b_h = params.b_h;
    return args;
  }

  const RnnStackForwardArgs<T>& args_;
  Engine& engine_;
  const bool drops_;
  const RnnStackPlan<T> plan_;
  T* between_[2] = {};    // [steps, batch, D·P]
  T* dropped_ = nullptr;  // [steps, batch, D·P]
  // Of the layer at hand.
  const T* below_ = nullptr;  // [steps, batch, D·P], put out by the one below
  const T* x_ = nullptr;      // [steps, batch, its width]
  T* h_ = nullptr;            // [steps, batch, D·P]
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RNN_STACK_FORWARD_H_
