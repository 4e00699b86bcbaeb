// Implements the engine that a stack of recurrent layers runs on
// (cc/core/rnn_stack_forward.h), and the functions for stacks, on the CPU.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_
#define BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/core/dropout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_backward.h"
#include "cc/core/rnn_stack_forward.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/cells/sequence_functions.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/stack/directions.h"
#include "cc/kernels/cpu/stack/dropout.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

namespace internal {

// What forward and backward have in common. Self: the class of the engine,
// which runs the sequences.
template <class T, class Self>
class RnnStackEngine {
 public:
  using Status = cpu::Status;
  using Context = Executor;
  static constexpr ReserveDevice kReserveDevice = ReserveDevice::kCpu;
  static bool Failed(Status status) { return status != Status::kOk; }

  // Of a stack's arguments, forward or backward.
  template <class Args>
  RnnStackEngine(const Executor& executor, const Args& args)
      : executor_(executor),
        scratch_(executor),
        all_steps_{0, args.steps},
        directions_(executor, args.geometry.directions,
                    RunsConcurrently<T>(args.geometry, args.batch,
                                        executor.num_threads())) {}

  Status Allocate(int64_t elements, T** array) {
    *array = scratch_.Array<T>(elements);
    return scratch_.ok() ? Status::kOk : Status::kOutOfMemory;
  }

  template <class Take, class ArgsOf, class After>
  Status RunLayer(int64_t layer, const Take& take, const ArgsOf& args_of,
                  const After& after) {
    const Status status = take(all_steps_, executor_);
    if (Failed(status)) return status;
    return directions_.Run(
        layer, [&](const LayerDirection& dir, const Executor& executor) {
          const Status ran =
              static_cast<const Self*>(this)->Run(args_of(dir), executor);
          return Failed(ran) ? ran : after(dir, executor);
        });
  }

  // span: as RunLayer takes all steps at once, a whole array.
  Status ApplyMask(const uint8_t* mask, float rate, const ElementSpan& span,
                   const T* from, T* to, const Executor& executor) const {
    cpu::ApplyMask(executor, mask, rate, span.elements(), from, to);
    return Status::kOk;
  }

 protected:
  const Executor& executor_;

 private:
  Scratch scratch_;
  const StepSpan all_steps_;
  Directions directions_;
};

template <class T, class Activations>
class RnnStackForwardEngine
    : public RnnStackEngine<T, RnnStackForwardEngine<T, Activations>> {
 public:
  using RnnStackEngine<T, RnnStackForwardEngine>::RnnStackEngine;

  Status Run(const LstmSequenceForwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::LstmSequenceForward<T, Activations>(args, executor);
  }
  Status Run(const GruAfterSequenceForwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::GruAfterSequenceForward<T, Activations>(args, executor);
  }
  Status Run(const SimpleRnnForwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::SimpleRnnForward<T, Activations>(args, executor);
  }

  Status DrawMask(const PhiloxState& philox, float rate, int64_t elements,
                  uint8_t* mask) const {
    cpu::DrawMask(this->executor_, philox, rate, elements, mask);
    return Status::kOk;
  }

  Status FinishReserve(const ReserveLayout& layout, const ReserveHeader& header,
                       void* reserve) const {
    layout.ClearGaps(reserve);
    std::memset(reserve, 0, kReserveHeaderBytes);
    std::memcpy(reserve, &header, sizeof(header));
    return Status::kOk;
  }
};

template <class T>
class RnnStackBackwardEngine
    : public RnnStackEngine<T, RnnStackBackwardEngine<T>> {
 public:
  using RnnStackEngine<T, RnnStackBackwardEngine>::RnnStackEngine;

  Status Run(const LstmSequenceBackwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::LstmSequenceBackward<T>(args, executor);
  }
  Status Run(const GruAfterSequenceBackwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::GruAfterSequenceBackward<T>(args, executor);
  }
  Status Run(const SimpleRnnBackwardArgs<T>& args,
             const Executor& executor) const {
    return cpu::SimpleRnnBackward<T>(args, executor);
  }

  Status FillZero(int64_t elements, T* array) const {
    std::fill_n(array, elements, T(0));
    return Status::kOk;
  }
  Status AddGradients(const T* other, int64_t elements, T* grad) const {
    cpu::AddGradients(this->executor_, other, elements, grad);
    return Status::kOk;
  }
  Status Copy(const T* from, int64_t elements, T* to, const Executor&) const {
    std::copy_n(from, elements, to);
    return Status::kOk;
  }
};

}  // namespace internal

template <class T, class Activations>
Status RnnStackForward(const RnnStackForwardArgs<T>& args,
                       const Executor& executor) {
  using Engine = internal::RnnStackForwardEngine<T, Activations>;
  Engine engine(executor, args);
  return blockrnn::RnnStackForward<T, Engine>(args, &engine).Run();
}

template <class T>
Status RnnStackBackward(const RnnStackBackwardArgs<T>& args,
                        const Executor& executor) {
  using Engine = internal::RnnStackBackwardEngine<T>;
  Engine engine(executor, args);
  return blockrnn::RnnStackBackward<T, Engine>(args, &engine).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_RNN_STACK_H_
