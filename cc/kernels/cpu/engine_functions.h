// Defines the functions of the engine: which cell computes what, and the table
// of them for one storage type. Each type is instantiated in a source file of
// its own, so that they compile in parallel.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_

#include <type_traits>

#include "cc/core/activations.h"
#include "cc/core/engine_args.h"
#include "cc/core/row_pieces.h"
#include "cc/kernels/cpu/cells/gru.h"
#include "cc/kernels/cpu/cells/gru_after.h"
#include "cc/kernels/cpu/cells/gru_block_cell.h"
#include "cc/kernels/cpu/cells/layer_norm_gru.h"
#include "cc/kernels/cpu/cells/layer_norm_lstm.h"
#include "cc/kernels/cpu/cells/lstm_backward.h"
#include "cc/kernels/cpu/cells/lstm_block_cell.h"
#include "cc/kernels/cpu/cells/lstm_forward.h"
#include "cc/kernels/cpu/cells/simple_rnn.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/sequence/sequence_backward.h"
#include "cc/kernels/cpu/sequence/sequence_forward.h"
#include "cc/kernels/cpu/stack/frozen_stack.h"
#include "cc/kernels/cpu/stack/rnn_stack.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

// The functions for frozen weights of float in another precision than its own:
// engine_low_precision.cc.
template <class Args>
struct LowPrecisionFunction {
  Status (*run)(const Args& args, const Executor& executor);
};
using LowPrecisionFunctions =
    FunctionTable<LowPrecisionFunction, float, FrozenSequenceArgs>;
extern const LowPrecisionFunctions kLowPrecisionFunctions;

// What a cell computes over sequences. P: the elements of its panels.
// kRecomputes: whether its backward pass may run the forward pass again.
template <class T, class Activations, class P,
          template <class, class, class> class ForwardCell,
          template <class> class BackwardCell, bool kRecomputes = true>
struct CellFunctions {
  using Forward = ForwardCell<T, Activations, P>;
  using ForwardArgs = typename Forward::Args;
  using Backward = BackwardCell<T>;
  using BackwardArgs = typename Backward::Args;

  // Not inlined: the table and both kinds of stacks share one copy.
  EIGEN_DONT_INLINE static Status Run(const ForwardArgs& args,
                                      const Executor& executor) {
    if constexpr (kHasLowPrecision) {
      if (args.frozen != nullptr &&
          args.frozen->precision != Precision::kStorage) {
        return kLowPrecisionFunctions.Run(args, executor);
      }
    }
    if (args.resets != nullptr) return RunPieces(args, executor);
    return SequenceForward<Forward>(args, executor).Run();
  }

  EIGEN_DONT_INLINE static Status Run(const BackwardArgs& args,
                                      const Executor& executor) {
    if (args.resets != nullptr) return RunPieces(args, executor);
    if constexpr (kRecomputes) {
      if (args.span_steps > 0) {
        return RecomputedBackward<Forward, Backward>(args, executor).Run();
      }
    }
    return SequenceBackward<Backward>(args, executor).Run();
  }

  static Status Run(const FreezeArgs<ForwardArgs>& args,
                    const Executor& executor) {
    if constexpr (kHasLowPrecision) {
      if (args.precision != Precision::kStorage) {
        return kLowPrecisionFunctions.Run(args, executor);
      }
    }
    PanelMemory memory(executor, args.packed);
    const typename Forward::Panels packed(args.layer, &memory, Packing());
    *args.bytes = memory.bytes();
    return Status::kOk;
  }

  static Status Run(const FrozenStackArgs<ForwardArgs>& args,
                    const Executor& executor) {
    return FrozenStack<ForwardArgs, CellFunctions>(args, executor).Run();
  }

 private:
  // A call with resets: its pieces as rows.
  template <class Args>
  static Status RunPieces(Args args, const Executor& executor) {
    Scratch scratch(executor);
    const auto allocate = [&scratch](int64_t count) {
      return scratch.Array<int64_t>(count);
    };
    if (!SplitAtResets(&args, allocate)) return Status::kOutOfMemory;
    return Run(args, executor);
  }

  // Only float has other precisions.
  static constexpr bool kHasLowPrecision =
      std::is_same_v<T, float> && std::is_same_v<P, PanelElement<float>>;
};

// Functions that differ in the struct of their arguments.
template <class... Functions>
struct Overloads : Functions... {
  using Functions::Run...;
};

// The sequences of all cells.
template <class T, class A, class P = PanelElement<T>>
using SequenceFunctions = Overloads<
    CellFunctions<T, A, P, GruForwardCell, GruBackwardCell>,
    CellFunctions<T, A, P, GruAfterForwardCell, GruAfterBackwardCell>,
    CellFunctions<T, A, P, LstmForwardCell, LstmBackwardCell>,
    CellFunctions<T, A, P, SimpleRnnForwardCell, SimpleRnnBackwardCell, false>,
    CellFunctions<T, A, P, LayerNormGruForwardCell, LayerNormGruBackwardCell>,
    CellFunctions<T, A, P, LayerNormLstmForwardCell,
                  LayerNormLstmBackwardCell>>;

template <class T, class A = StandardActivations>
using Functions =
    Overloads<SequenceFunctions<T, A>, GruBlockCell<T, A>, LstmBlockCell<T, A>,
              RnnStack<T, SequenceFunctions<T, A>>>;

// A function as the engine's caller sees it. Nothing in the engine throws: its
// memory is the host's, and it goes on without anything else that it cannot
// allocate.
template <class T, class Args>
Status RunFunction(const Args& args, const HostInterface& host) noexcept {
  const Executor executor(host);
  return Functions<T>::Run(args, executor);
}

template <class T, template <class> class... Args>
EngineFunctions<T> TableOf(ArgsList<Args...>) {
  return {{&RunFunction<T, Args<T>>}...};
}

template <class T>
EngineFunctions<T> MakeEngineFunctions() {
  return TableOf<T>(CpuEngineArgs());
}

// The epilogues of other activations. A prefix cannot be in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define BLOCKRNN_OTHER_ACTIVATIONS(prefix)                              \
  prefix template void                                                  \
  LstmEpilogue<float>::Cells<OtherActivations<Vec<float>>, true, true>( \
      int64_t, const GateTile<float>&) const;                           \
  prefix template void                                                  \
  GruEpilogue<float>::GatesWith<OtherActivations<Vec<float>>>(          \
      int64_t, const GateTile<float>&) const;                           \
  prefix template void                                                  \
  GruEpilogue<float>::CandidateWith<OtherActivations<Vec<float>>>(      \
      int64_t, const GateTile<float>&) const;                           \
  prefix template void GruAfterEpilogue<float>::OtherCells(             \
      int64_t, const GateTile<float>&, const RowView<float>&) const;
// NOLINTEND(bugprone-macro-parentheses)
BLOCKRNN_OTHER_ACTIVATIONS(extern)

extern template EngineFunctions<Eigen::half> MakeEngineFunctions();
extern template EngineFunctions<Eigen::bfloat16> MakeEngineFunctions();
extern template EngineFunctions<float> MakeEngineFunctions();
extern template EngineFunctions<double> MakeEngineFunctions();

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
