// Owns the signatures and docs of CudnnRNNParamsSize and of the converters
// between params and their canonical form.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/core/param_layout.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/cudnn_rnn_docs.h"
#include "cc/ops/cudnn_rnn_params.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The lists of the converters stand outside of the contracts.
const OpContract& kParamsSize = RegisterContract({
    "BlockRNN>CudnnRNNParamsSize",
    "num_layers[] num_units[] input_size[]",
    "params_size[1]",
});
const OpContract& kToCanonical = RegisterContract({
    "BlockRNN>CudnnRNNParamsToCanonical",
    "num_layers[] num_units[] input_size[] params[?]",
    "",
});
const OpContract& kToCanonicalV2 = RegisterContract({
    "BlockRNN>CudnnRNNParamsToCanonicalV2",
    "num_layers[] num_units[] input_size[] params[?]",
    "",
});
const OpContract& kFromCanonical = RegisterContract({
    "BlockRNN>CudnnRNNCanonicalToParams",
    "num_layers[] num_units[] input_size[]",
    "",
});
const OpContract& kFromCanonicalV2 = RegisterContract({
    "BlockRNN>CudnnRNNCanonicalToParamsV2",
    "num_layers[] num_units[] input_size[]",
    "",
});

// Leaves `value` unknown where the input is no constant.
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

absl::Status ParamsSizeShapes(InferenceContext* c) {
  StaticNetwork network;
  TF_RETURN_IF_ERROR(GetStaticNetwork(kParamsSize, c, &network));
  c->set_output(0, c->Vector(1));
  return absl::OkStatus();
}

ShapeHandle Shape(InferenceContext* c, const std::vector<int64_t>& dims) {
  std::vector<DimensionHandle> handles;
  for (int64_t dim : dims) handles.push_back(c->MakeDim(dim));
  return c->MakeShape(handles);
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
    const ShapeHandle params = c->input(kNetworkInputs);
    if (c->RankKnown(params) && c->ValueKnown(c->Dim(params, 0))) {
      TF_RETURN_IF_ERROR(CheckParams(contract.op(), network.geometry,
                                     c->Value(c->Dim(params, 0))));
    }
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

constexpr char kSizesDoc[] =
    R"doc(num_layers: L, the number of layers, at least 1.
num_units: H, the number of units of a layer.
input_size: I, the number of inputs.
)doc";

constexpr char kCanonicalDoc[] = R"doc(
For each layer and direction, weights has the gates' W, then their R, then the
projection; biases has the gates' bW, then their bR. PyTorch's weight_ih_l0 is the
W of layer 0 below one another, weight_hh_l0 the R, and bias_ih_l0 the bW.
)doc";

constexpr char kUnusedAttrsDoc[] =
    R"doc(dropout: Not used; that of the network.
seed: Not used.
seed2: Not used.
)doc";

constexpr char kCountDoc[] =
    R"doc(num_params: The number of weights, and of biases: for each layer and
  direction 8 for lstm, 6 for gru, 2 for rnn_relu and rnn_tanh.
)doc";

constexpr char kCountsDoc[] =
    R"doc(num_params_weights: The number of weights: for each layer and direction 8 for
  lstm (9 with a projection), 6 for gru, 2 for rnn_relu and rnn_tanh.
num_params_biases: The number of biases: for each layer and direction 8 for
  lstm, 6 for gru, 2 for rnn_relu and rnn_tanh.
)doc";

constexpr char kProjDoc[] =
    R"doc(num_proj: P of an lstm with a projection, at most H; 0 for none.
)doc";

std::string ParamsSizeDoc() {
  return absl::StrCat(
      "Computes how many numbers the params of a CudnnRNN have.\n", kParamsDoc,
      "\n", kSizesDoc,
      "params_size: The number of elements of params, `[1]`.\n",
      "T: The type of params; their number does not depend on it.\n",
      "S: The type of params_size.\n", Trimmed(kSharedAttrsDoc),
      kUnusedAttrsDoc, kProjDoc);
}

std::string ToCanonicalDoc(int version) {
  return absl::StrCat(
      "Takes the params of a CudnnRNN apart into matrices and biases.\n",
      kParamsDoc, kCanonicalDoc, "\n", kSizesDoc,
      "params: Weights and biases, flat.\n",
      "weights: The matrices, each `[H, width]`, `[H, P]` or `[P, H]`.\n",
      "biases: The biases, each `[H]`.\n",
      version == 1 ? kCountDoc : kCountsDoc, Trimmed(kSharedAttrsDoc),
      kUnusedAttrsDoc, version == 1 ? "" : kProjDoc);
}

std::string FromCanonicalDoc(int version) {
  return absl::StrCat(
      "Puts matrices and biases together to the params of a CudnnRNN.\n",
      kParamsDoc, kCanonicalDoc, "\n", kSizesDoc,
      "weights: The matrices, each `[H, width]`, `[H, P]` or `[P, H]`.\n",
      "biases: The biases, each `[H]`.\n",
      "params: Weights and biases, flat.\n",
      version == 1 ? kCountDoc : kCountsDoc, Trimmed(kSharedAttrsDoc),
      kUnusedAttrsDoc, version == 1 ? "" : kProjDoc);
}

REGISTER_OP("BlockRNN>CudnnRNNParamsSize")
    .Input("num_layers: int32")
    .Input("num_units: int32")
    .Input("input_size: int32")
    .Output("params_size: S")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("S: {int32, int64}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("num_proj: int = 0")
    .SetShapeFn(ParamsSizeShapes)
    .Doc(ParamsSizeDoc());

REGISTER_OP("BlockRNN>CudnnRNNParamsToCanonical")
    .Input("num_layers: int32")
    .Input("num_units: int32")
    .Input("input_size: int32")
    .Input("params: T")
    .Output("weights: num_params * T")
    .Output("biases: num_params * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_params: int >= 1")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      return ToCanonicalShapes(kToCanonical, c);
    })
    .Doc(ToCanonicalDoc(1));

REGISTER_OP("BlockRNN>CudnnRNNParamsToCanonicalV2")
    .Input("num_layers: int32")
    .Input("num_units: int32")
    .Input("input_size: int32")
    .Input("params: T")
    .Output("weights: num_params_weights * T")
    .Output("biases: num_params_biases * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_params_weights: int >= 1")
    .Attr("num_params_biases: int >= 1")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("num_proj: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      return ToCanonicalShapes(kToCanonicalV2, c);
    })
    .Doc(ToCanonicalDoc(2));

REGISTER_OP("BlockRNN>CudnnRNNCanonicalToParams")
    .Input("num_layers: int32")
    .Input("num_units: int32")
    .Input("input_size: int32")
    .Input("weights: num_params * T")
    .Input("biases: num_params * T")
    .Output("params: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_params: int >= 1")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      return FromCanonicalShapes(kFromCanonical, c);
    })
    .Doc(FromCanonicalDoc(1));

REGISTER_OP("BlockRNN>CudnnRNNCanonicalToParamsV2")
    .Input("num_layers: int32")
    .Input("num_units: int32")
    .Input("input_size: int32")
    .Input("weights: num_params_weights * T")
    .Input("biases: num_params_biases * T")
    .Output("params: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_params_weights: int >= 1")
    .Attr("num_params_biases: int >= 1")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("num_proj: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      return FromCanonicalShapes(kFromCanonicalV2, c);
    })
    .Doc(FromCanonicalDoc(2));

}  // namespace
}  // namespace blockrnn
