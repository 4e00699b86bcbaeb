// Declares the meaning of the attrs and sizes of a call in the cuDNN RNN family
// and which of them are compatible. Shape functions and kernels both use this,
// so they refuse the same calls with the same messages.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_ATTRS_H_
#define BLOCKRNN_OPS_CUDNN_RNN_ATTRS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cc/core/param_layout.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/attr_value.pb.h"

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

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_ATTRS_H_
