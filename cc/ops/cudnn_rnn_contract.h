// Owns the shape contracts of CudnnRNN and CudnnRNNBackprop in their three
// versions, which depend on the mode and the projection, and the checks that go
// beyond what a contract's text can say.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
#define BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_

#include <string>

#include "absl/status/status.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

// The symbol of the number of elements of reserve_space.
inline constexpr char kReserveSymbol = 'S';

// version: 1, 2 or 3.
const OpContract& CudnnRnnContract(int version, bool backward,
                                   const CudnnRnnAttrs& attrs);

// What the attrs give a contract to begin with.
Bindings CudnnRnnBindings(const CudnnRnnAttrs& attrs);

// Refuses bound sizes that do not go with each other or the attrs, as far as
// they are known; gives the sizes.
absl::Status CheckCudnnRnnSizes(const std::string& op,
                                const CudnnRnnAttrs& attrs,
                                const Bindings& bound, CudnnRnnSizes* sizes);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
