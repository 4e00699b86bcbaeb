// Declares the selection of the variant of its contract for a call of CudnnRNN
// or CudnnRNNBackprop, by mode and projection, and the checks that a contract
// cannot express.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
#define BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

// The symbol of the number of elements of reserve_space.
inline constexpr char kReserveSymbol = 'S';

// op: without our namespace.
const OpContract* CudnnRnnContract(const std::string& op,
                                   const CudnnRnnAttrs& attrs);

// The symbols that the attrs bind.
Bindings CudnnRnnBindings(const CudnnRnnAttrs& attrs);

// Refuses bound sizes that are incompatible with each other or the attrs, as
// far as they are known; returns the sizes.
absl::Status CheckCudnnRnnSizes(const std::string& op,
                                const CudnnRnnAttrs& attrs,
                                const Bindings& bound, CudnnRnnSizes* sizes);

// The elements of reserve_space if all rows have all steps.
absl::Status LargestReserveElements(const std::string& op,
                                    const CudnnRnnAttrs& attrs,
                                    const InputShapes& shapes,
                                    int64_t element_size, int64_t* elements);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
