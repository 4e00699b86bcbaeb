// Owns the list of the engine's functions for one storage type. Each type is
// instantiated in a source file of its own, so that they compile side by side.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_

#include "cc/core/activations.h"
#include "cc/kernels/cpu/cells/gru_after_backward.h"
#include "cc/kernels/cpu/cells/gru_after_forward.h"
#include "cc/kernels/cpu/cells/gru_backward.h"
#include "cc/kernels/cpu/cells/gru_block_cell.h"
#include "cc/kernels/cpu/cells/gru_forward.h"
#include "cc/kernels/cpu/cells/lstm_backward.h"
#include "cc/kernels/cpu/cells/lstm_block_cell.h"
#include "cc/kernels/cpu/cells/lstm_forward.h"
#include "cc/kernels/cpu/cells/simple_rnn.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/stack/rnn_stack.h"
#include "cc/kernels/cpu/threads/worker_pool.h"

namespace blockrnn::cpu {

template <class T>
EngineFunctions<T> MakeEngineFunctions() {
  return {
      {&WithCrew<&GruCellForward<T, StandardActivations>>},
      {&WithCrew<&GruCellBackward<T>>},
      {&WithCrew<&LstmCellForward<T, StandardActivations>>},
      {&WithCrew<&LstmCellBackward<T>>},
      {&WithCrew<&GruSequenceForward<T, StandardActivations>>},
      {&WithCrew<&GruSequenceBackward<T>>},
      {&WithCrew<&GruAfterSequenceForward<T, StandardActivations>>},
      {&WithCrew<&GruAfterSequenceBackward<T>>},
      {&WithCrew<&LstmSequenceForward<T, StandardActivations>>},
      {&WithCrew<&LstmSequenceBackward<T>>},
      {&WithCrew<&SimpleRnnForward<T, StandardActivations>>},
      {&WithCrew<&SimpleRnnBackward<T>>},
      {&WithCrew<&RnnStackForward<T, StandardActivations>>},
      {&WithCrew<&RnnStackBackward<T>>},
  };
}

extern template EngineFunctions<Eigen::half> MakeEngineFunctions();
extern template EngineFunctions<Eigen::bfloat16> MakeEngineFunctions();
extern template EngineFunctions<float> MakeEngineFunctions();
extern template EngineFunctions<double> MakeEngineFunctions();

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
