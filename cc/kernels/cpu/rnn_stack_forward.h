// Owns the forward of a stack of recurrent layers on the CPU: layer after
// layer, and in each its directions, as whole sequences. Their equations are
// those of the sequences; here stand the order and what is kept.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_FORWARD_H_

#include <cstdint>
#include <cstring>

#include "cc/core/gate_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gru_after_sequence_forward.h"
#include "cc/kernels/cpu/lstm_sequence_forward.h"
#include "cc/kernels/cpu/rnn_sequence.h"
#include "cc/kernels/cpu/rnn_stack_dropout.h"
#include "cc/kernels/cpu/rnn_stack_plan.h"
#include "cc/kernels/cpu/scratch.h"

namespace blockrnn::cpu {

namespace internal {

template <class T, class Activations>
class RnnStackForward {
 public:
  RnnStackForward(const RnnForwardArgs<T>& args, const Host& host)
      : args_(args),
        host_(host),
        drops_(args.reserve != nullptr && args.dropout > 0),
        plan_(args, drops_),
        scratch_(host),
        directions_(host, args.geometry.directions) {}

  Status Run() {
    const int64_t layers = args_.geometry.layers;
    const T* x = args_.input;
    // All outputs are empty else; the layers may then be without number.
    const bool empty = args_.batch == 0 || args_.geometry.units == 0;
    for (int64_t layer = 0; layer < layers && !empty; ++layer) {
      T* const h = Output(layer);
      if (!scratch_.ok()) return Status::kOutOfMemory;
      const Status status =
          directions_.Run(layer, [&](const Pseudo& pseudo, const Host& host) {
            return Sequence(pseudo, x, plan_.Columns(h, pseudo), host);
          });
      if (status != Status::kOk) return status;
      x = h;
      if (drops_ && layer + 1 < layers) x = Dropped(layer, h);
    }
    FinishReserve();
    return Status::kOk;
  }

 private:
  // Where the output of a layer goes. Without a backward only the layer above
  // reads it, and two buffers serve all.
  T* Output(int64_t layer) {
    if (layer + 1 == args_.geometry.layers) return args_.output;
    if (args_.reserve != nullptr)
      return plan_.template H<T>(args_.reserve, layer);
    T*& buffer = between_[layer % 2];
    if (buffer == nullptr) buffer = scratch_.Array<T>(plan_.elements());
    return buffer;
  }

  // What goes up of a layer's output. The output itself stays: it is the state
  // that the layer's own backward reads.
  const T* Dropped(int64_t layer, const T* h) {
    const int64_t elements = plan_.elements();
    if (dropped_ == nullptr) dropped_ = scratch_.Array<T>(elements);
    if (dropped_ == nullptr) return nullptr;
    const RnnGeometry& g = args_.geometry;
    auto* const mask = plan_.template Mask<uint8_t>(args_.reserve, layer);
    const int64_t counters =
        DropoutBlocks(g, args_.steps, args_.batch) / (g.layers - 1);
    DrawMask(host_, PhiloxSkip(args_.philox, layer * counters), args_.dropout,
             elements, mask);
    ApplyMask(host_, mask, args_.dropout, elements, h, dropped_);
    return dropped_;
  }

  // Last, so that a forward that did not end leaves no header.
  void FinishReserve() const {
    if (args_.reserve == nullptr) return;
    plan_.reserve().ClearGaps(args_.reserve);
    const ReserveHeader header =
        MakeReserveHeader(args_, sizeof(T), ReserveDevice::kCpu);
    std::memset(args_.reserve, 0, kReserveHeaderBytes);
    std::memcpy(args_.reserve, &header, sizeof(header));
  }

  Status Sequence(const Pseudo& pseudo, const T* x, T* h, const Host& host) {
    switch (args_.geometry.mode) {
      case RnnMode::kLstm:
        return Lstm(pseudo, x, h, host);
      case RnnMode::kGru:
        return Gru(pseudo, x, h, host);
      default:
        return Rnn(pseudo, x, h, host);
    }
  }

  // The fields that the arguments of all cells have.
  template <class Args>
  PseudoParams<const T> Fill(const Pseudo& pseudo, const T* x, T* h,
                             Args* args) const {
    const int64_t width = args_.geometry.proj;
    const PseudoParams<const T> params = plan_.Params(args_.params, pseudo);
    args->shape = plan_.Shape(pseudo);
    args->x = x;
    args->h_prev = plan_.State(args_.input_h, pseudo, width);
    args->w_x = params.w_x;
    args->w_h = params.w_h;
    args->h = h;
    args->h_last = plan_.State(args_.output_h, pseudo, width);
    return params;
  }

  T* Kept(const Pseudo& pseudo, int index) const {
    return plan_.template Array<T>(args_.reserve, pseudo, index);
  }

  Status Lstm(const Pseudo& pseudo, const T* x, T* h, const Host& host) {
    const RnnGeometry& g = args_.geometry;
    LstmSequenceForwardArgs<T> args;
    const PseudoParams<const T> params = Fill(pseudo, x, h, &args);
    args.layout = kLstmIfco;
    args.cs_prev = plan_.State(args_.input_c, pseudo, g.units);
    args.proj = g.projected ? g.proj : 0;
    args.w_p = params.w_p;
    args.b = params.b_x;
    args.b_h = params.b_h;
    args.i = Kept(pseudo, 0);
    args.f = Kept(pseudo, 1);
    args.o = Kept(pseudo, 2);
    args.ci = Kept(pseudo, 3);
    args.cs = Kept(pseudo, 4);
    args.cs_last = plan_.State(args_.output_c, pseudo, g.units);
    return cpu::LstmSequenceForward<T, Activations>(args, host);
  }

  Status Gru(const Pseudo& pseudo, const T* x, T* h, const Host& host) {
    GruAfterSequenceForwardArgs<T> args;
    const PseudoParams<const T> params = Fill(pseudo, x, h, &args);
    args.layout = kGruRuc;
    args.b_x = params.b_x;
    args.b_h = params.b_h;
    args.r = Kept(pseudo, 0);
    args.u = Kept(pseudo, 1);
    args.c = Kept(pseudo, 2);
    args.hc = Kept(pseudo, 3);
    return cpu::GruAfterSequenceForward<T, Activations>(args, host);
  }

  Status Rnn(const Pseudo& pseudo, const T* x, T* h, const Host& host) {
    RnnSequenceForwardArgs<T> args;
    const PseudoParams<const T> params = Fill(pseudo, x, h, &args);
    args.relu = args_.geometry.mode == RnnMode::kRelu;
    args.b = params.b_x;
    args.b_h = params.b_h;
    return cpu::RnnSequenceForward<T, Activations>(args, host);
  }

  const RnnForwardArgs<T>& args_;
  const Host& host_;
  const bool drops_;
  const RnnStackPlan<T> plan_;
  Scratch scratch_;
  Directions directions_;
  T* between_[2] = {};    // [steps, batch, D·P]
  T* dropped_ = nullptr;  // [steps, batch, D·P]
};

}  // namespace internal

template <class T, class Activations>
Status RnnStackForward(const RnnForwardArgs<T>& args, const Host& host) {
  return internal::RnnStackForward<T, Activations>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_FORWARD_H_
