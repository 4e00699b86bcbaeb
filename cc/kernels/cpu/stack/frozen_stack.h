// Implements the forward pass of a stack of layers whose weights are frozen
// (cc/core/frozen_stack_args.h).

#ifndef BLOCKRNN_KERNELS_CPU_STACK_FROZEN_STACK_H_
#define BLOCKRNN_KERNELS_CPU_STACK_FROZEN_STACK_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/frozen_stack_args.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/stack/directions.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Functions::Run(args, executor) runs a sequence.
template <class Forward, class Functions>
class FrozenStack {
 public:
  using Args = FrozenStackArgs<Forward>;
  using Layer = StackLayer<Forward>;
  using T = std::remove_pointer_t<decltype(Args::y)>;

  FrozenStack(const Args& args, const Executor& executor)
      : args_(args), scratch_(executor), directions_(executor) {}

  Status Run() {
    if (args_.state == nullptr && !AllocateZeros()) return Status::kOutOfMemory;
    const T* x = args_.x;
    for (int64_t n = 0; n < args_.num_layers; ++n) {
      const Layer& layer = args_.layers[n];
      T* const h = Output(n);
      if (!scratch_.ok()) return Status::kOutOfMemory;
      // Without outputs there are no units either.
      const Status status =
          layer.outputs == 0 ? Status::kOk : RunLayer(layer, x, h);
      if (status != Status::kOk) return status;
      first_state_ += layer.directions * StateSize(layer);
      x = h;
    }
    return Status::kOk;
  }

 private:
  // Of one row and one direction.
  static int64_t StateSize(const Layer& layer) {
    const int64_t units = layer.options[0].shape.units;
    return layer.outputs + (kHasCellState<Forward> ? units : 0);
  }

  bool AllocateZeros() {
    int64_t widest = 0;
    for (int64_t n = 0; n < args_.num_layers; ++n) {
      widest = std::max(widest, StateSize(args_.layers[n]));
    }
    zeros_ = scratch_.Array<T>(args_.batch * widest);
    if (scratch_.ok()) std::fill_n(zeros_, args_.batch * widest, T(0));
    return scratch_.ok();
  }

  // Where a layer's output goes. Only the next layer reads it, and two buffers
  // serve all.
  T* Output(int64_t n) {
    if (n + 1 == args_.num_layers) return args_.y;
    T*& buffer = between_[n % 2];
    if (buffer == nullptr) {
      int64_t widest = 0;
      for (int64_t k = 0; k + 1 < args_.num_layers; ++k) {
        const Layer& layer = args_.layers[k];
        widest = std::max(widest, layer.directions * layer.outputs);
      }
      buffer = scratch_.Array<T>(args_.batch * args_.steps * widest);
    }
    return buffer;
  }

  Status RunLayer(const Layer& layer, const T* x, T* h) {
    const SequenceShape& shape = layer.options[0].shape;
    const double gates = static_cast<double>(layer.gates) * shape.units;
    const double macs = gates * (shape.input + layer.outputs) *
                        static_cast<double>(args_.batch * args_.steps);
    const bool concurrent =
        macs >= Tuning::kMacsPerAwakeLoopWorker &&
        DirectionsFitConcurrently(
            args_.batch, gates * layer.outputs * kPackedBytes<PanelElement<T>>);
    return directions_.Run(layer.directions, concurrent,
                           [&](int64_t direction, const Executor& executor) {
                             return Functions::Run(
                                 ArgsOf(layer, direction, x, h), executor);
                           });
  }

  Forward ArgsOf(const Layer& layer, int64_t direction, const T* x,
                 T* h) const {
    Forward args = layer.options[direction];
    args.shape.steps = args_.steps;
    args.shape.batch = args_.batch;
    args.shape.time_major = false;
    args.shape.backwards = direction == 1;
    args.shape.lengths = args_.lengths;
    args.shape.h_width = layer.directions * layer.outputs;
    args.x = x;
    args.resets = args_.resets;
    args.frozen = &layer.weights[direction];
    args.batch_invariant = args_.batch_invariant;
    args.h = PointerAt(h, direction * layer.outputs);
    const int64_t state = first_state_ + direction * StateSize(layer);
    args.h_prev = Before(state);
    args.h_last = PointerAt(args_.new_state, args_.batch * state);
    if constexpr (kHasCellState<Forward>) {
      args.cs_prev = Before(state + layer.outputs);
      args.cs_last =
          PointerAt(args_.new_state, args_.batch * (state + layer.outputs));
    }
    return args;
  }

  const T* Before(int64_t state) const {
    return args_.state == nullptr ? zeros_
                                  : PointerAt(args_.state, args_.batch * state);
  }

  const Args& args_;
  Scratch scratch_;
  Directions directions_;
  T* zeros_ = nullptr;       // of a state
  T* between_[2] = {};       // [B, T, D·P]
  int64_t first_state_ = 0;  // of the layer at hand, in the states of a row
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_FROZEN_STACK_H_
