// Declares the passes over a sequence, which are defined cell by cell in this
// folder.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_SEQUENCE_FUNCTIONS_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_SEQUENCE_FUNCTIONS_H_

#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

template <class T, class Activations>
Status LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                           const Executor& executor);
template <class T>
Status LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                            const Executor& executor);

template <class T, class Activations>
Status GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                          const Executor& executor);
template <class T>
Status GruSequenceBackward(const GruSequenceBackwardArgs<T>& args,
                           const Executor& executor);

template <class T, class Activations>
Status GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                               const Executor& executor);
template <class T>
Status GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                                const Executor& executor);

template <class T, class Activations>
Status SimpleRnnForward(const SimpleRnnForwardArgs<T>& args,
                        const Executor& executor);
template <class T>
Status SimpleRnnBackward(const SimpleRnnBackwardArgs<T>& args,
                         const Executor& executor);

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_SEQUENCE_FUNCTIONS_H_
