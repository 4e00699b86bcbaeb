// Declares the contract of a call in the cuDNN RNN family: the meaning of its
// attrs and sizes, which of them are compatible, and the variant of the op's
// contract that they select. Shape functions and kernels both use this, so they
// refuse the same calls with the same messages.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
#define BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cc/core/param_layout.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/types.pb.h"

namespace blockrnn {

enum class RnnInputMode { kLinear, kSkip, kAuto };

// The attrs of all ops of the family; one that an op lacks has its default.
struct CudnnRnnAttrs {
  RnnMode mode = RnnMode::kLstm;
  RnnInputMode input_mode = RnnInputMode::kLinear;
  int64_t directions = 1;  // D
  float dropout = 0.0f;
  int64_t num_proj = 0;  // P of a projected lstm, else 0
  bool is_training = true;
  bool time_major = true;

  bool lstm() const { return mode == RnnMode::kLstm; }
  bool projected() const { return num_proj > 0; }
};

// A node's attr by its name; nullptr where it has none.
using FindAttr =
    absl::FunctionRef<const tensorflow::AttrValue*(const char* name)>;

// Reads the attrs and refuses values that are invalid for any input: a dropout
// outside [0, 1), a projection that is negative or not of an lstm. `op` is for
// messages.
absl::Status ReadCudnnRnnAttrs(const std::string& op, FindAttr find,
                               CudnnRnnAttrs* attrs);

// The sizes of a network; kUnknown for one that a shape function cannot know.
struct CudnnRnnSizes {
  int64_t layers = kUnknown;  // L
  int64_t input = kUnknown;   // I
  int64_t units = kUnknown;   // H

  bool known() const {
    return layers != kUnknown && input != kUnknown && units != kUnknown;
  }
};

// Of known sizes that are compatible with the attrs.
RnnGeometry CudnnRnnGeometry(const CudnnRnnAttrs& attrs,
                             const CudnnRnnSizes& sizes);

// The number of elements of params, or the reason why there is none.
absl::Status CountParams(const std::string& op, const RnnGeometry& geometry,
                         int64_t* count);

// Refuses params of a size other than CountParams'; the message lists their
// parts.
absl::Status CheckParams(const std::string& op, const RnnGeometry& geometry,
                         int64_t given);

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

// ------------------------------- sizes and layout of params, as ops take them

// The first inputs of CudnnRNNParamsSize and of the converters between params
// and their canonical form, and their number.
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

#endif  // BLOCKRNN_OPS_CUDNN_RNN_CONTRACT_H_
