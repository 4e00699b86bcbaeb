// Defines the table of the engine's functions for one storage type. Each type
// is instantiated in a source file of its own, so that they compile in
// parallel.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_

#include "cc/core/activations.h"
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
#include "cc/kernels/cpu/sequence/sequence_backward.h"
#include "cc/kernels/cpu/stack/rnn_stack.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

// An engine function as its caller sees it.
template <auto kFunction, class Args>
Status WithExecutor(const Args& args, const HostInterface& host) {
  const Executor executor(host);
  return kFunction(args, executor);
}

template <class T>
EngineFunctions<T> MakeEngineFunctions() {
  return {
      {&WithExecutor<&GruCellForward<T, StandardActivations>>},
      {&WithExecutor<&GruCellBackward<T>>},
      {&WithExecutor<&LstmCellForward<T, StandardActivations>>},
      {&WithExecutor<&LstmCellBackward<T>>},
      {&WithExecutor<&GruSequenceForward<T, StandardActivations>>},
      {&WithExecutor<&BackwardOrRecomputed<
          GruForwardCell<T, StandardActivations>, GruBackwardCell<T>>>},
      {&WithExecutor<&GruAfterSequenceForward<T, StandardActivations>>},
      {&WithExecutor<
          &BackwardOrRecomputed<GruAfterForwardCell<T, StandardActivations>,
                                GruAfterBackwardCell<T>>>},
      {&WithExecutor<&LstmSequenceForward<T, StandardActivations>>},
      {&WithExecutor<&BackwardOrRecomputed<
          LstmForwardCell<T, StandardActivations>, LstmBackwardCell<T>>>},
      {&WithExecutor<&SimpleRnnForward<T, StandardActivations>>},
      {&WithExecutor<&SimpleRnnBackward<T>>},
      {&WithExecutor<&RnnStackForward<T, StandardActivations>>},
      {&WithExecutor<&RnnStackBackward<T>>},
      {&WithExecutor<&LayerNormLstmForward<T, StandardActivations>>},
      {&WithExecutor<&BackwardOrRecomputed<
          LayerNormLstmForwardCell<T, StandardActivations>,
          LayerNormLstmBackwardCell<T>>>},
      {&WithExecutor<&LayerNormGruForward<T, StandardActivations>>},
      {&WithExecutor<
          &BackwardOrRecomputed<LayerNormGruForwardCell<T, StandardActivations>,
                                LayerNormGruBackwardCell<T>>>},
      {&WithExecutor<&FreezeLstm<T>>},
      {&WithExecutor<&FreezeGru<T>>},
      {&WithExecutor<&FreezeGruAfter<T>>},
      {&WithExecutor<&FreezeSimpleRnn<T>>},
      {&WithExecutor<&FreezeLayerNormLstm<T>>},
      {&WithExecutor<&FreezeLayerNormGru<T>>},
  };
}

extern template EngineFunctions<Eigen::half> MakeEngineFunctions();
extern template EngineFunctions<Eigen::bfloat16> MakeEngineFunctions();
extern template EngineFunctions<float> MakeEngineFunctions();
extern template EngineFunctions<double> MakeEngineFunctions();

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
