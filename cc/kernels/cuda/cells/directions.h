// Declares the calls over a whole sequence that the two directions of a layer
// make together, with common launches for their steps, each on half of the
// device that `host` has. Both have the same shape, but for the direction, and
// the same lengths; backward they have what forward saved (no spans).

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_DIRECTIONS_H_
#define BLOCKRNN_KERNELS_CUDA_CELLS_DIRECTIONS_H_

#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

// For the types of the engine's functions.
template <class T>
Error RunDirections(const LstmSequenceForwardArgs<T>& first,
                    const LstmSequenceForwardArgs<T>& second,
                    const HostInterface& host);
template <class T>
Error RunDirections(const LstmSequenceBackwardArgs<T>& first,
                    const LstmSequenceBackwardArgs<T>& second,
                    const HostInterface& host);
template <class T>
Error RunDirections(const GruAfterSequenceForwardArgs<T>& first,
                    const GruAfterSequenceForwardArgs<T>& second,
                    const HostInterface& host);
template <class T>
Error RunDirections(const GruAfterSequenceBackwardArgs<T>& first,
                    const GruAfterSequenceBackwardArgs<T>& second,
                    const HostInterface& host);
template <class T>
Error RunDirections(const SimpleRnnForwardArgs<T>& first,
                    const SimpleRnnForwardArgs<T>& second,
                    const HostInterface& host);
template <class T>
Error RunDirections(const SimpleRnnBackwardArgs<T>& first,
                    const SimpleRnnBackwardArgs<T>& second,
                    const HostInterface& host);

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_DIRECTIONS_H_
