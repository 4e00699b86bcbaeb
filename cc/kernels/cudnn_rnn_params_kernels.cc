// Implements the kernels of CudnnRNNParamsSize and of the converters between
// params and their canonical form, under our names on every device and, on
// CPUs, under TensorFlow's.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/core/param_layout.h"
#include "cc/kernels/cudnn_rnn_util.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/cudnn_rnn_params.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status ToShape(const std::vector<int64_t>& dims, TensorShape* shape) {
  return TensorShape::BuildTensorShape(absl::MakeConstSpan(dims), shape);
}

// A kernel whose first inputs are the sizes of a network.
class NetworkKernel : public ContractKernel {
 protected:
  explicit NetworkKernel(OpKernelConstruction* ctx) : ContractKernel(ctx) {
    const absl::StatusOr<CudnnRnnAttrs> attrs = CudnnRnnAttrsOf(ctx);
    OP_REQUIRES_OK(ctx, attrs.status());
    attrs_ = *attrs;
  }

  // The network and the number of elements of its params.
  absl::Status GetNetwork(OpKernelContext* ctx, RnnGeometry* geometry,
                          int64_t* params) const {
    Bindings bound;
    TF_RETURN_IF_ERROR(CheckInputs(ctx, &bound));
    CudnnRnnSizes sizes;
    TF_RETURN_IF_ERROR(GetSize(ctx, kNumLayers, &sizes.layers));
    TF_RETURN_IF_ERROR(GetSize(ctx, kNumUnits, &sizes.units));
    TF_RETURN_IF_ERROR(GetSize(ctx, kInputSize, &sizes.input));
    TF_RETURN_IF_ERROR(CheckNetworkSizes(op(), attrs_, sizes));
    *geometry = CudnnRnnGeometry(attrs_, sizes);
    return CountParams(op(), *geometry, params);
  }

 private:
  absl::Status GetSize(OpKernelContext* ctx, int input, int64_t* size) const {
    *size = *Input<int32_t>(ctx, input);
    return CheckNetworkInput(op(), input, *size);
  }

  CudnnRnnAttrs attrs_;
};

template <class T, class Device>
class CudnnRnnParamsSizeOp : public NetworkKernel {
 public:
  explicit CudnnRnnParamsSizeOp(OpKernelConstruction* ctx)
      : NetworkKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    RnnGeometry geometry;
    int64_t params = 0;
    OP_REQUIRES_OK(ctx, GetNetwork(ctx, &geometry, &params));
    const bool small = output_type(0) == tensorflow::DT_INT32;
    OP_REQUIRES(ctx, !small || params <= std::numeric_limits<int32_t>::max(),
                absl::InvalidArgumentError(absl::StrCat(
                    op(), ": params_size is ", params,
                    ", which is too large for int32; S must be int64")));
    Tensor* size = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({1}), &size));
    if (small) {
      *Output<int32_t>(ctx, 0) = static_cast<int32_t>(params);
    } else {
      *Output<int64_t>(ctx, 0) = params;
    }
  }
};

// A kernel that has the weights and biases as lists.
class CanonicalKernel : public NetworkKernel {
 protected:
  explicit CanonicalKernel(OpKernelConstruction* ctx) : NetworkKernel(ctx) {
    if (!ctx->status().ok()) return;
    const tensorflow::AttrSlice node(ctx->def());
    counts_ = GetCanonicalCounts(
        [&node](const char* name) { return node.Find(name); });
  }

  // The network, whose number of weights and biases is that of the node.
  absl::Status GetCanonicalNetwork(OpKernelContext* ctx, RnnGeometry* geometry,
                                   int64_t* params) const {
    TF_RETURN_IF_ERROR(GetNetwork(ctx, geometry, params));
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
  explicit CudnnRnnParamsToCanonicalOp(OpKernelConstruction* ctx)
      : CanonicalKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    RnnGeometry geometry;
    int64_t params = 0;
    OP_REQUIRES_OK(ctx, GetCanonicalNetwork(ctx, &geometry, &params));
    OP_REQUIRES_OK(ctx, CheckParams(op(), geometry,
                                    ctx->input(kNetworkInputs).NumElements()));
    const T* const from = Input<T>(ctx, kNetworkInputs);
    OP_REQUIRES_OK(
        ctx,
        ForEach(ParamLayout(geometry), [&](const char*, int64_t, int64_t output,
                                           const ParamLayout::Block& block,
                                           const std::vector<int64_t>& dims) {
          TensorShape shape;
          TF_RETURN_IF_ERROR(ToShape(dims, &shape));
          Tensor* to = nullptr;
          TF_RETURN_IF_ERROR(ctx->allocate_output(output, shape, &to));
          return device_.Copy(ctx, from + block.offset, to->TotalBytes(),
                              to->data());
        }));
  }

 private:
  Device device_;
};

template <class T, class Device>
class CudnnRnnCanonicalToParamsOp : public CanonicalKernel {
 public:
  explicit CudnnRnnCanonicalToParamsOp(OpKernelConstruction* ctx)
      : CanonicalKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    RnnGeometry geometry;
    int64_t params = 0;
    OP_REQUIRES_OK(ctx, GetCanonicalNetwork(ctx, &geometry, &params));
    const ParamLayout layout(geometry);
    // Checks all shapes before the allocation, which a wrong size could make
    // huge.
    OP_REQUIRES_OK(
        ctx, ForEach(layout, [&](const char* name, int64_t index, int64_t input,
                                 const ParamLayout::Block&,
                                 const std::vector<int64_t>& dims) {
          return CheckShape(ctx, name, index, kNetworkInputs + input, dims);
        }));
    Tensor* to = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({params}), &to));
    OP_REQUIRES_OK(ctx, ForEach(layout, [&](const char*, int64_t, int64_t input,
                                            const ParamLayout::Block& block,
                                            const std::vector<int64_t>&) {
                     return device_.Copy(
                         ctx, Input<T>(ctx, kNetworkInputs + input),
                         block.size() * sizeof(T),
                         static_cast<T*>(to->data()) + block.offset);
                   }));
  }

 private:
  absl::Status CheckShape(OpKernelContext* ctx, const char* name, int64_t index,
                          int input, const std::vector<int64_t>& dims) const {
    TensorShape expected;
    TF_RETURN_IF_ERROR(ToShape(dims, &expected));
    const TensorShape& given = ctx->input(input).shape();
    if (given == expected) return absl::OkStatus();
    return CanonicalShapeError(op(), name, index, dims, given.DebugString());
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
