// Declares the checks of a call of CudnnRNNParamsSize and of the converters
// between params and their canonical form. Shape functions and kernels both use
// them.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_PARAMS_H_
#define BLOCKRNN_OPS_CUDNN_RNN_PARAMS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/core/param_layout.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/types.pb.h"

namespace blockrnn {

// The first inputs of all ops here, and their number.
inline constexpr int kNumLayers =
    InputAt(Row("CudnnRNNParamsSize"), "num_layers");
inline constexpr int kNumUnits =
    InputAt(Row("CudnnRNNParamsSize"), "num_units");
inline constexpr int kInputSize =
    InputAt(Row("CudnnRNNParamsSize"), "input_size");
inline constexpr int kNetworkInputs =
    InputAt(Row("CudnnRNNParamsToCanonical"), "params");
static_assert(kNetworkInputs ==
              InputAt(Row("CudnnRNNCanonicalToParams"), "weights"));

// Refuses a value of such an input that is invalid for any network.
absl::Status CheckNetworkInput(const std::string& op, int input, int64_t value);

// Refuses sizes that are incompatible with each other or the attrs, as far as
// they are known.
absl::Status CheckNetworkSizes(const std::string& op,
                               const CudnnRnnAttrs& attrs,
                               const CudnnRnnSizes& sizes);

// The first inputs, in their order.
using NetworkInputs = std::array<int64_t, kNetworkInputs>;

// The network that they describe and the number of elements of its params, or
// the reason why there is none.
absl::Status GetNetwork(const std::string& op, const CudnnRnnAttrs& attrs,
                        const NetworkInputs& inputs, RnnGeometry* geometry,
                        int64_t* params);

// Refuses a params_size that its type, int32 or int64, can't hold.
absl::Status CheckParamsSize(const std::string& op, tensorflow::DataType type,
                             int64_t params);

// The numbers of weights and biases of a node, and the attrs that give them.
struct CanonicalCounts {
  const char* weights_attr;
  const char* biases_attr;
  int64_t weights;
  int64_t biases;
};

CanonicalCounts GetCanonicalCounts(FindAttr find);

// Refuses counts other than the network's.
absl::Status CheckCanonicalCounts(const std::string& op,
                                  const RnnGeometry& geometry,
                                  const CanonicalCounts& counts);

// The shape of a canonical weight or bias: [rows, cols] or [rows].
std::vector<int64_t> WeightShape(const ParamLayout::Block& block);
std::vector<int64_t> BiasShape(const ParamLayout::Block& block);

// `name` is weights or biases.
absl::Status CanonicalShapeError(const std::string& op, const char* name,
                                 int64_t index,
                                 const std::vector<int64_t>& expected,
                                 const std::string& given);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_PARAMS_H_
