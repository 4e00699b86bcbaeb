// Lists the functions of an engine (CPU or CUDA), each identified by the struct
// of its arguments, and defines the tables through which an engine's library
// gives them to its callers.

#ifndef BLOCKRNN_CORE_ENGINE_ARGS_H_
#define BLOCKRNN_CORE_ENGINE_ARGS_H_

#include <type_traits>

#include "cc/core/frozen_stack_args.h"
#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/simple_rnn_cell.h"

namespace Eigen {
struct half;
struct bfloat16;
}  // namespace Eigen

namespace blockrnn {

template <template <class T> class... Args>
struct ArgsList {};

template <class First, class Second>
struct JoinedLists;
template <template <class> class... First, template <class> class... Second>
struct JoinedLists<ArgsList<First...>, ArgsList<Second...>> {
  using List = ArgsList<First..., Second...>;
};

// Args<F<T>> for each F of a list.
template <template <class> class Args, class List>
struct EachIn;
template <template <class> class Args, template <class> class... F>
struct EachIn<Args, ArgsList<F...>> {
  template <template <class> class Of>
  struct Each {
    template <class T>
    using ArgsOf = Args<Of<T>>;
  };
  using List = ArgsList<Each<F>::template ArgsOf...>;
};

// The forward passes over a sequence, of all cells.
using SequenceForwards =
    ArgsList<GruSequenceForwardArgs, GruAfterSequenceForwardArgs,
             LstmSequenceForwardArgs, SimpleRnnForwardArgs,
             LayerNormGruForwardArgs, LayerNormLstmForwardArgs>;

// The functions of every engine.
using EngineArgs =
    JoinedLists<SequenceForwards,
                ArgsList<GruSequenceBackwardArgs, GruAfterSequenceBackwardArgs,
                         LstmSequenceBackwardArgs, SimpleRnnBackwardArgs,
                         LayerNormGruBackwardArgs, LayerNormLstmBackwardArgs,
                         GruCellForwardArgs, GruCellBackwardArgs,
                         LstmCellForwardArgs, LstmCellBackwardArgs,
                         RnnStackForwardArgs, RnnStackBackwardArgs>>::List;

// What freezes weights, of which the CPU engine alone has functions.
using FreezeList = EachIn<FreezeArgs, SequenceForwards>::List;
using CpuEngineArgs =
    JoinedLists<JoinedLists<EngineArgs, FreezeList>::List,
                EachIn<FrozenStackArgs, SequenceForwards>::List>::List;

// The functions that are another's for each precision of frozen weights.
using FrozenSequenceArgs = JoinedLists<SequenceForwards, FreezeList>::List;

// The functions of a list for storage type T. Function<Args> has a member
// `run`, a pointer to the function that takes Args.
template <template <class Args> class Function, class T, class List>
struct FunctionTable;
template <template <class Args> class Function, class T,
          template <class> class... Args>
struct FunctionTable<Function, T, ArgsList<Args...>> : Function<Args<T>>... {
  template <class A, class Host>
  auto Run(const A& args, const Host& host) const {
    return Function<A>::run(args, host);
  }
};

// The table of an engine for storage type T.
template <class T, class Engine>
const auto& EngineFunctionsOf(const Engine& engine) {
  if constexpr (std::is_same_v<T, float>) {
    return engine.f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return engine.f64;
  } else if constexpr (std::is_same_v<T, Eigen::half>) {
    return engine.f16;
  } else {
    static_assert(std::is_same_v<T, Eigen::bfloat16>);
    return engine.bf16;
  }
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ENGINE_ARGS_H_
