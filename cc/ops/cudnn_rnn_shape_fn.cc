// Implements the shape functions of the cuDNN RNN family.

#include <string>
#include <vector>

#include "cc/core/param_layout.h"
#include "cc/ops/contract_rules.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The same in all versions of both ops.
constexpr int kParams = InputAt(Row("CudnnRNN"), "params");
static_assert(kParams == InputAt(Row("CudnnRNNV3"), "params"));

absl::Status CheckStaticParams(const std::string& op,
                               const RnnGeometry& geometry,
                               const ShapeHandle& params, InferenceContext* c) {
  if (!c->RankKnown(params)) return absl::OkStatus();
  const DimensionHandle given = c->Dim(params, 0);
  if (!c->ValueKnown(given)) return absl::OkStatus();
  return CheckParams(op, geometry, c->Value(given));
}

// Leaves `value` unknown unless the input is a constant.
absl::Status GetConstant(const std::string& op, int input, InferenceContext* c,
                         int64_t* value) {
  const tensorflow::Tensor* given = c->input_tensor(input);
  if (given == nullptr || given->NumElements() != 1) return absl::OkStatus();
  *value = *static_cast<const int32_t*>(given->data());
  return CheckNetworkInput(op, input, *value);
}

// What is known of a network when a graph is built.
struct StaticNetwork {
  bool known = false;
  RnnGeometry geometry;  // when known
  int64_t params = kUnknown;
};

absl::Status GetStaticNetwork(const OpContract& contract, InferenceContext* c,
                              StaticNetwork* network) {
  const auto find = [c](const char* name) { return c->GetAttr(name); };
  const std::string& op = contract.op();
  CudnnRnnAttrs attrs;
  TF_RETURN_IF_ERROR(ReadCudnnRnnAttrs(op, find, &attrs));
  Bindings bound;
  TF_RETURN_IF_ERROR(CheckStaticShapes(contract, c, &bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(GetConstant(op, kNumLayers, c, &sizes.layers));
  TF_RETURN_IF_ERROR(GetConstant(op, kNumUnits, c, &sizes.units));
  TF_RETURN_IF_ERROR(GetConstant(op, kInputSize, c, &sizes.input));
  TF_RETURN_IF_ERROR(CheckNetworkSizes(op, attrs, sizes));
  network->known = sizes.known();
  if (!network->known) return absl::OkStatus();
  network->geometry = CudnnRnnGeometry(attrs, sizes);
  return CountParams(op, network->geometry, &network->params);
}

ShapeHandle Shape(InferenceContext* c, const std::vector<int64_t>& dims) {
  std::vector<DimensionHandle> handles;
  for (int64_t dim : dims) handles.push_back(c->MakeDim(dim));
  return c->MakeShape(handles);
}

// Refuses an input that cannot have the expected shape.
absl::Status CheckStatic(const std::string& op, const char* name, int64_t index,
                         const std::vector<int64_t>& expected,
                         const ShapeHandle& given, InferenceContext* c) {
  ShapeHandle merged;
  if (c->Merge(given, Shape(c, expected), &merged).ok()) {
    return absl::OkStatus();
  }
  return CanonicalShapeError(op, name, index, expected, c->DebugString(given));
}

}  // namespace

absl::Status CudnnRnnShapes(const OpContract& any, InferenceContext* c) {
  const std::string& op = any.op();
  CudnnRnnAttrs attrs;
  const auto find = [c](const char* name) { return c->GetAttr(name); };
  TF_RETURN_IF_ERROR(ReadCudnnRnnAttrs(op, find, &attrs));
  const OpContract& contract = *CudnnRnnContract(op, attrs);
  Bindings bound = CudnnRnnBindings(attrs);
  TF_RETURN_IF_ERROR(CheckStaticShapes(contract, c, &bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(CheckCudnnRnnSizes(op, attrs, bound, &sizes));
  if (sizes.known()) {
    TF_RETURN_IF_ERROR(CheckStaticParams(op, CudnnRnnGeometry(attrs, sizes),
                                         c->input(kParams), c));
  }
  return InferOutputs(contract, c, bound);
}

absl::Status ParamsSizeShapes(const OpContract& contract, InferenceContext* c) {
  StaticNetwork network;
  TF_RETURN_IF_ERROR(GetStaticNetwork(contract, c, &network));
  c->set_output(0, c->Vector(1));
  return absl::OkStatus();
}

absl::Status ToCanonicalShapes(const OpContract& contract,
                               InferenceContext* c) {
  StaticNetwork network;
  TF_RETURN_IF_ERROR(GetStaticNetwork(contract, c, &network));
  const CanonicalCounts counts =
      GetCanonicalCounts([c](const char* name) { return c->GetAttr(name); });
  if (network.known) {
    TF_RETURN_IF_ERROR(
        CheckCanonicalCounts(contract.op(), network.geometry, counts));
    TF_RETURN_IF_ERROR(CheckStaticParams(contract.op(), network.geometry,
                                         c->input(kNetworkInputs), c));
  }
  const ParamLayout layout(network.geometry);
  const ShapeHandle matrix = c->UnknownShapeOfRank(2);
  const ShapeHandle vector = c->UnknownShapeOfRank(1);
  for (int64_t i = 0; i < counts.weights; ++i) {
    c->set_output(
        i, network.known ? Shape(c, WeightShape(layout.Weight(i))) : matrix);
  }
  for (int64_t i = 0; i < counts.biases; ++i) {
    c->set_output(counts.weights + i,
                  network.known ? Shape(c, BiasShape(layout.Bias(i))) : vector);
  }
  return absl::OkStatus();
}

absl::Status FromCanonicalShapes(const OpContract& contract,
                                 InferenceContext* c) {
  StaticNetwork network;
  TF_RETURN_IF_ERROR(GetStaticNetwork(contract, c, &network));
  c->set_output(
      0, c->Vector(network.params == kUnknown ? c->UnknownDim()
                                              : c->MakeDim(network.params)));
  if (!network.known) return absl::OkStatus();
  const CanonicalCounts counts =
      GetCanonicalCounts([c](const char* name) { return c->GetAttr(name); });
  TF_RETURN_IF_ERROR(
      CheckCanonicalCounts(contract.op(), network.geometry, counts));
  const ParamLayout layout(network.geometry);
  for (int64_t i = 0; i < counts.weights; ++i) {
    TF_RETURN_IF_ERROR(CheckStatic(contract.op(), "weights", i,
                                   WeightShape(layout.Weight(i)),
                                   c->input(kNetworkInputs + i), c));
  }
  for (int64_t i = 0; i < counts.biases; ++i) {
    TF_RETURN_IF_ERROR(
        CheckStatic(contract.op(), "biases", i, BiasShape(layout.Bias(i)),
                    c->input(kNetworkInputs + counts.weights + i), c));
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
