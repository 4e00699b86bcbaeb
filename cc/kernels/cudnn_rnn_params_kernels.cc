// Implements the kernels of CudnnRNNParamsSize and of the converters between
// params and their canonical form, under our names on every device and, on
// CPUs, under TensorFlow's.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/core/param_layout.h"
#include "cc/kernels/devices.h"
#include "cc/kernels/kernel.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

// A kernel whose first inputs are the sizes of a network.
class NetworkKernel : public ContractKernel {
 protected:
  explicit NetworkKernel(KernelNode* node) : ContractKernel(node) {
    const auto find = [node](const char* name) { return node->FindAttr(name); };
    node->Check(ReadCudnnRnnAttrs(node->op(), find, &attrs_));
  }

  // The network and the number of elements of its params.
  absl::Status GetNetwork(const OpCall& call, RnnGeometry* geometry,
                          int64_t* params) const {
    Bindings bound;
    TF_RETURN_IF_ERROR(CheckInputs(call, &bound));
    NetworkInputs inputs;
    for (int i = 0; i < kNetworkInputs; ++i) {
      inputs[i] = *Input<int32_t>(call, i);
    }
    return blockrnn::GetNetwork(op(), attrs_, inputs, geometry, params);
  }

 private:
  CudnnRnnAttrs attrs_;
};

template <class T, class Device>
class CudnnRnnParamsSizeOp : public NetworkKernel {
 public:
  explicit CudnnRnnParamsSizeOp(KernelNode* node) : NetworkKernel(node) {
    node->GetAttr("S", &type_);
  }

  absl::Status Run(OpCall* call) override {
    RnnGeometry geometry;
    int64_t params = 0;
    TF_RETURN_IF_ERROR(GetNetwork(*call, &geometry, &params));
    TF_RETURN_IF_ERROR(CheckParamsSize(op(), type_, params));
    TF_RETURN_IF_ERROR(call->AllocateOutput(0, {1}));
    if (type_ == tensorflow::DT_INT32) {
      *Output<int32_t>(*call, 0) = static_cast<int32_t>(params);
    } else {
      *Output<int64_t>(*call, 0) = params;
    }
    return absl::OkStatus();
  }

 private:
  tensorflow::DataType type_ = tensorflow::DT_INT32;
};

// A kernel that has the weights and biases as lists.
class CanonicalKernel : public NetworkKernel {
 protected:
  explicit CanonicalKernel(KernelNode* node)
      : NetworkKernel(node),
        counts_(GetCanonicalCounts(
            [node](const char* name) { return node->FindAttr(name); })) {}

  // The network, whose number of weights and biases is that of the node.
  absl::Status GetCanonicalNetwork(const OpCall& call, RnnGeometry* geometry,
                                   int64_t* params) const {
    TF_RETURN_IF_ERROR(GetNetwork(call, geometry, params));
    return CheckCanonicalCounts(op(), *geometry, counts_);
  }

  // Calls body(name, index in its list, index in both lists, block, shape) for
  // all weights, then for all biases, until a status is not ok.
  template <class Body>
  absl::Status ForEach(const ParamLayout& layout, const Body& body) const {
    for (int64_t i = 0; i < counts_.weights; ++i) {
      const ParamLayout::Block block = layout.Weight(i);
      TF_RETURN_IF_ERROR(body("weights", i, i, block, WeightShape(block)));
    }
    for (int64_t i = 0; i < counts_.biases; ++i) {
      const ParamLayout::Block block = layout.Bias(i);
      TF_RETURN_IF_ERROR(
          body("biases", i, counts_.weights + i, block, BiasShape(block)));
    }
    return absl::OkStatus();
  }

 private:
  CanonicalCounts counts_ = {};
};

template <class T, class Device>
class CudnnRnnParamsToCanonicalOp : public CanonicalKernel {
 public:
  explicit CudnnRnnParamsToCanonicalOp(KernelNode* node)
      : CanonicalKernel(node), device_(node) {}

  absl::Status Run(OpCall* call) override {
    RnnGeometry geometry;
    int64_t params = 0;
    TF_RETURN_IF_ERROR(GetCanonicalNetwork(*call, &geometry, &params));
    TF_RETURN_IF_ERROR(
        CheckParams(op(), geometry, InputElements(*call, kNetworkInputs)));
    const T* const from = Input<T>(*call, kNetworkInputs);
    return ForEach(
        ParamLayout(geometry),
        [&](const char*, int64_t, int64_t output,
            const ParamLayout::Block& block, const std::vector<int64_t>& dims) {
          TF_RETURN_IF_ERROR(call->AllocateOutput(output, dims));
          return device_.Copy(call, from + block.offset,
                              call->output_bytes(output), call->output(output));
        });
  }

 private:
  Device device_;
};

template <class T, class Device>
class CudnnRnnCanonicalToParamsOp : public CanonicalKernel {
 public:
  explicit CudnnRnnCanonicalToParamsOp(KernelNode* node)
      : CanonicalKernel(node), device_(node) {}

  absl::Status Run(OpCall* call) override {
    RnnGeometry geometry;
    int64_t params = 0;
    TF_RETURN_IF_ERROR(GetCanonicalNetwork(*call, &geometry, &params));
    const ParamLayout layout(geometry);
    // Checks all shapes before the allocation, which a wrong size could make
    // huge.
    TF_RETURN_IF_ERROR(ForEach(
        layout,
        [&](const char* name, int64_t index, int64_t input,
            const ParamLayout::Block&, const std::vector<int64_t>& dims) {
          return CheckShape(*call, name, index, kNetworkInputs + input, dims);
        }));
    TF_RETURN_IF_ERROR(call->AllocateOutput(0, {params}));
    T* const to = Output<T>(*call, 0);
    return ForEach(layout, [&](const char*, int64_t, int64_t input,
                               const ParamLayout::Block& block,
                               const std::vector<int64_t>&) {
      return device_.Copy(call, Input<T>(*call, kNetworkInputs + input),
                          block.size() * sizeof(T), to + block.offset);
    });
  }

 private:
  absl::Status CheckShape(const OpCall& call, const char* name, int64_t index,
                          int input,
                          const std::vector<int64_t>& expected) const {
    std::vector<int64_t> given(call.rank(input));
    for (size_t d = 0; d < given.size(); ++d) given[d] = call.dim(input, d);
    if (given == expected) return absl::OkStatus();
    return CanonicalShapeError(
        op(), name, index, expected,
        absl::StrCat("[", absl::StrJoin(given, ","), "]"));
  }

  Device device_;
};

[[maybe_unused]] const bool cudnn_rnn_params_registered =
    RegisterKernels<CudnnRnnParamsSizeOp>(Row("CudnnRNNParamsSize")) &&
    RegisterKernels<CudnnRnnParamsToCanonicalOp>(
        Row("CudnnRNNParamsToCanonical")) &&
    RegisterKernels<CudnnRnnParamsToCanonicalOp>(
        Row("CudnnRNNParamsToCanonicalV2")) &&
    RegisterKernels<CudnnRnnCanonicalToParamsOp>(
        Row("CudnnRNNCanonicalToParams")) &&
    RegisterKernels<CudnnRnnCanonicalToParamsOp>(
        Row("CudnnRNNCanonicalToParamsV2"));

}  // namespace
}  // namespace blockrnn
