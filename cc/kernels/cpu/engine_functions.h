// Owns the list of the engine's functions for one storage type. Each type is
// instantiated in a source file of its own, so that they compile side by side.

#ifndef BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
#define BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_

#include "cc/core/activations.h"
#include "cc/kernels/cpu/crew.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gru_after_sequence_backward.h"
#include "cc/kernels/cpu/gru_after_sequence_forward.h"
#include "cc/kernels/cpu/gru_cell.h"
#include "cc/kernels/cpu/gru_sequence_backward.h"
#include "cc/kernels/cpu/gru_sequence_forward.h"
#include "cc/kernels/cpu/lstm_cell.h"
#include "cc/kernels/cpu/lstm_sequence_backward.h"
#include "cc/kernels/cpu/lstm_sequence_forward.h"
#include "cc/kernels/cpu/rnn_sequence.h"
#include "cc/kernels/cpu/rnn_stack.h"

namespace blockrnn::cpu {

template <class T>
EngineFunctions<T> MakeEngineFunctions() {
  return {
      &WithCrew<&GruCellForward<T, StandardActivations>>,
      &WithCrew<&GruCellBackward<T>>,
      &WithCrew<&LstmCellForward<T, StandardActivations>>,
      &WithCrew<&LstmCellBackward<T>>,
      &WithCrew<&GruSequenceForward<T, StandardActivations>>,
      &WithCrew<&GruSequenceBackward<T>>,
      &WithCrew<&GruAfterSequenceForward<T, StandardActivations>>,
      &WithCrew<&GruAfterSequenceBackward<T>>,
      &WithCrew<&LstmSequenceForward<T, StandardActivations>>,
      &WithCrew<&LstmSequenceBackward<T>>,
      &WithCrew<&RnnSequenceForward<T, StandardActivations>>,
      &WithCrew<&RnnSequenceBackward<T>>,
      &WithCrew<&RnnStackForward<T, StandardActivations>>,
      &WithCrew<&RnnStackBackward<T>>,
  };
}

extern template EngineFunctions<Eigen::half> MakeEngineFunctions();
extern template EngineFunctions<Eigen::bfloat16> MakeEngineFunctions();
extern template EngineFunctions<float> MakeEngineFunctions();
extern template EngineFunctions<double> MakeEngineFunctions();

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_ENGINE_FUNCTIONS_H_
