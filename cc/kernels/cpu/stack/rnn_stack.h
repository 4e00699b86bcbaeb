// Implements the engine that a stack of recurrent layers runs on
// (cc/core/rnn_stack_forward.h), and the functions for stacks, on the CPU.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_
#define BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/core/dropout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_backward.h"
#include "cc/core/rnn_stack_forward.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/stack/directions.h"
#include "cc/kernels/cpu/stack/dropout.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Functions::Run(args, executor) runs a sequence.
template <class T, class Functions>
class RnnStackEngine {
 public:
  using Status = cpu::Status;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCpu;
  static bool Failed(Status status) { return status != Status::kOk; }

  // Of a stack's arguments, forward or backward.
  template <class Args>
  RnnStackEngine(const Executor& executor, const Args& args)
      : executor_(executor),
        scratch_(executor),
        num_directions_(args.geometry.directions),
        concurrent_(DirectionsFitConcurrently(
            args.batch, static_cast<double>(args.geometry.gates()) *
                            args.geometry.units * args.geometry.proj *
                            kPackedBytes<PanelElement<T>>)),
        directions_(executor) {}

  Status Allocate(int64_t elements, T** array) {
    *array = scratch_.Array<T>(elements);
    return scratch_.ok() ? Status::kOk : Status::kOutOfMemory;
  }

  template <class ArgsOf>
  Status RunLayer(int64_t layer, const ArgsOf& args_of) {
    return directions_.Run(num_directions_, concurrent_,
                           [&](int64_t direction, const Executor& executor) {
                             const LayerDirection dir = {
                                 layer, direction,
                                 layer * num_directions_ + direction};
                             return Functions::Run(args_of(dir), executor);
                           });
  }

  Status DrawMask(const PhiloxState& philox, float rate, int64_t elements,
                  uint8_t* mask) const {
    cpu::DrawMask(executor_, philox, rate, elements, mask);
    return Status::kOk;
  }

  Status ApplyMask(const uint8_t* mask, float rate, int64_t elements,
                   const T* from, T* to) const {
    cpu::ApplyMask(executor_, mask, rate, elements, from, to);
    return Status::kOk;
  }

  Status FinishReserve(const ReserveLayout& layout, const ReserveHeader& header,
                       void* reserve) const {
    layout.ClearGaps(reserve);
    std::memset(reserve, 0, kReserveHeaderBytes);
    std::memcpy(reserve, &header, sizeof(header));
    return Status::kOk;
  }

  Status FillZero(int64_t elements, T* array) const {
    std::fill_n(array, elements, T(0));
    return Status::kOk;
  }
  Status AddGradients(const T* other, int64_t elements, T* grad) const {
    cpu::AddGradients(executor_, other, elements, grad);
    return Status::kOk;
  }
  Status Copy(const T* from, int64_t elements, T* to) const {
    std::copy_n(from, elements, to);
    return Status::kOk;
  }

 private:
  const Executor& executor_;
  Scratch scratch_;
  const int64_t num_directions_;
  const bool concurrent_;
  Directions directions_;
};

template <class T, class Functions>
struct RnnStack {
  using Engine = RnnStackEngine<T, Functions>;

  static Status Run(const RnnStackForwardArgs<T>& args,
                    const Executor& executor) {
    Engine engine(executor, args);
    return RnnStackForward<T, Engine>(args, &engine).Run();
  }
  static Status Run(const RnnStackBackwardArgs<T>& args,
                    const Executor& executor) {
    Engine engine(executor, args);
    return RnnStackBackward<T, Engine>(args, &engine).Run();
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_
