// Lists the functions of an engine (CPU or CUDA): each is identified by the
// struct of its arguments.

#ifndef BLOCKRNN_CORE_ENGINE_ARGS_H_
#define BLOCKRNN_CORE_ENGINE_ARGS_H_

#include "cc/core/cell_args.h"
#include "cc/core/frozen_weights.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/sequence_args.h"

namespace blockrnn {

template <template <class T> class... Args>
struct ArgsList {};

using EngineArgs = ArgsList<
    GruCellForwardArgs, GruCellBackwardArgs, LstmCellForwardArgs,
    LstmCellBackwardArgs, GruSequenceForwardArgs, GruSequenceBackwardArgs,
    GruAfterSequenceForwardArgs, GruAfterSequenceBackwardArgs,
    LstmSequenceForwardArgs, LstmSequenceBackwardArgs, SimpleRnnForwardArgs,
    SimpleRnnBackwardArgs, RnnStackForwardArgs, RnnStackBackwardArgs,
    LstmFreezeArgs, GruFreezeArgs, GruAfterFreezeArgs, SimpleRnnFreezeArgs>;

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ENGINE_ARGS_H_
