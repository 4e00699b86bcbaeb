// Owns the signatures and docs of CudnnRNN and CudnnRNNBackprop, each in the
// three versions that TensorFlow has.

#include <string>

#include "absl/strings/str_cat.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/cudnn_rnn_docs.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int kParams = 3;  // the index of that input

absl::Status CheckStaticParams(const std::string& op,
                               const CudnnRnnAttrs& attrs,
                               const CudnnRnnSizes& sizes,
                               InferenceContext* c) {
  const ShapeHandle params = c->input(kParams);
  if (!sizes.known() || !c->RankKnown(params)) return absl::OkStatus();
  const DimensionHandle given = c->Dim(params, 0);
  if (!c->ValueKnown(given)) return absl::OkStatus();
  return CheckParams(op, CudnnRnnGeometry(attrs, sizes), c->Value(given));
}

template <int version, bool backward>
absl::Status Shapes(InferenceContext* c) {
  CudnnRnnAttrs attrs;
  // Of all contracts of an op the name is the same.
  const std::string& op = CudnnRnnContract(version, backward, attrs).op();
  const auto find = [c](const char* name) { return c->GetAttr(name); };
  TF_RETURN_IF_ERROR(ReadCudnnRnnAttrs(op, find, &attrs));
  const OpContract& contract = CudnnRnnContract(version, backward, attrs);
  Bindings bound = CudnnRnnBindings(attrs);
  TF_RETURN_IF_ERROR(CheckStaticShapes(contract, c, &bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(CheckCudnnRnnSizes(op, attrs, bound, &sizes));
  TF_RETURN_IF_ERROR(CheckStaticParams(op, attrs, sizes, c));
  return InferOutputs(contract, c, bound);
}

constexpr char kEquations[] = R"doc(
With T steps, B rows, I inputs, H units, L layers, D directions (1 or 2), and
states of P numbers (num_proj with a projection, else H); `∘` is elementwise, σ the
logistic function, c and h on the right are those of the step before:

    lstm       i = σ(W_i x + bW_i + R_i h + bR_i), so f, o; g with tanh for σ
               c = f ∘ c + i ∘ g      h = o ∘ tanh(c), or proj · (o ∘ tanh(c))
    gru        r = σ(W_r x + bW_r + R_r h + bR_r), so u
               h̃ = tanh(W_h x + bW_h + r ∘ (R_h h + bR_h))
               h = (1 − u) ∘ h̃ + u ∘ h
    rnn_relu   h = max(0, W x + bW + R h + bR)
    rnn_tanh   h = tanh(W x + bW + R h + bR)

A layer's output is the forward direction's h beside the backward one's, and the
next layer's input.
)doc";

constexpr char kReserve[] = R"doc(
Between layers, dropout sets that share of the numbers to 0 and divides the
others by 1 − dropout, if is_training. The mask is drawn with Philox from seed and
seed2, anew in each call; both 0 stand for seeds that differ from run to run.

reserve_space begins with a mark of its call, which the backprop op compares: a
reserve space of another call, or of a GPU, is an error there. On a GPU only
another size is one; the mark is compared there without waiting for it, and the
gradients of a foreign reserve space are NaN. It takes, in bytes, each term rounded
up to 64,

    128 + L·D·k·(N·H·e) + (L−1)·(T·B·D·P·e) + (L−1)·(T·B·D·P/8, with dropout)

where k is 5 for lstm, 4 for gru and 0 for rnn, N the sum of the rows' lengths and
e the bytes of a number.
)doc";

constexpr char kForwardStart[] = R"doc(
input: The input, `[T, B, I]`$0.
input_h: The first state of each layer and direction, `[L·D, B, P]`$1.
input_c: The first cell state of each, `[L·D, B, H]`$2; without lstm
  ignored, whatever its shape.
params: Weights and biases, flat.
)doc";

constexpr char kForwardEnd[] = R"doc(
output: The last layer's output, `[T, B, D·P]`$0.
output_h: The last state of each layer and direction, as input_h.
output_c: The last cell state of each, as input_c; without lstm a scalar 0.
reserve_space: What the backprop op needs, if is_training; else `[0]`.
is_training: Whether to keep what the backprop op needs, and to drop out.
)doc";

constexpr char kBackwardStart[] = R"doc(
input: That of the forward call.
input_h: That of the forward call.
input_c: That of the forward call.
params: Those of the forward call.
)doc";

constexpr char kBackwardEnd[] = R"doc(
output: That of the forward call.
output_h: That of the forward call.
output_c: That of the forward call.
output_backprop: The gradient of output, of its shape.
output_h_backprop: The gradient of output_h, of its shape.
output_c_backprop: The gradient of output_c, of its shape; without lstm ignored.
reserve_space: That of the forward call.
input_backprop: The gradient of input, of its shape.
input_h_backprop: The gradient of input_h, of its shape.
input_c_backprop: The gradient of input_c, of its shape; without lstm zeros.
params_backprop: The gradient of params, of their shape.
)doc";

constexpr char kDropoutAttrs[] =
    R"doc(dropout: The share that is dropped between layers, in [0, 1).
seed: The first half of the seed of dropout.
seed2: The second half of it.
)doc";

constexpr char kVersion3[] = R"doc(
Of a row with a length in sequence_lengths the steps past it do not count: output
is 0 there, the last state is that of the row's last step, and the backward
direction begins at that step. A row of length 0 keeps its first state.
)doc";

constexpr char kVersion3Attrs[] =
    R"doc(num_proj: P of an lstm with a projection, at most H; 0 for none.
time_major: Whether sequences are `[T, B, …]`; else `[B, T, …]`.
)doc";

// The text with `$0`, `$1`, `$2` as the batch-major shapes of version 3.
std::string WithShapes(const char* text, int version, const char* first,
                       const char* second = "", const char* third = "") {
  std::string result = Trimmed(text);
  const char* const shapes[] = {first, second, third};
  for (int i = 0; i < 3; ++i) {
    const size_t at = result.find(absl::StrCat("$", i));
    if (at == std::string::npos) continue;
    result.replace(
        at, 2,
        version == 3 ? absl::StrCat(", or `", shapes[i], "` without time_major")
                     : "");
  }
  return result;
}

std::string ForwardDoc(int version) {
  return absl::StrCat(
      "Computes a stack of recurrent layers as cuDNN does.\n", kEquations,
      version == 3 ? kVersion3 : "", kParamsDoc, kReserve,
      "\nA sequence, batch, input or state of size 0 is allowed. half and "
      "bfloat16 are\ncomputed in float32.\n\n",
      WithShapes(kForwardStart, version, "[B, T, I]", "[B, L·D, P]",
                 "[B, L·D, H]"),
      version == 3
          ? "sequence_lengths: The length of each row, `[B]`, in 0..T.\n"
          : "",
      WithShapes(kForwardEnd, version, "[B, T, D·P]"),
      version > 1 ? "host_reserved: Empty, `[0]`; cuDNN alone needs it.\n" : "",
      Trimmed(kSharedAttrsDoc), kDropoutAttrs,
      version == 3 ? kVersion3Attrs : "");
}

std::string BackwardDoc(int version) {
  const std::string forward = version == 1 ? "" : absl::StrCat("V", version);
  return absl::StrCat(
      "Computes the gradient of CudnnRNN", forward,
      ", given those of output, output_h and output_c.\n\n",
      "The forward call must have had is_training and the same attrs. "
      "Gradients "
      "past a\nrow's length are 0.\n\n",
      Trimmed(kBackwardStart),
      version == 3 ? "sequence_lengths: Those of the forward call.\n" : "",
      Trimmed(kBackwardEnd),
      version > 1 ? "host_reserved: That of the forward call, `[0]`.\n" : "",
      Trimmed(kSharedAttrsDoc), kDropoutAttrs,
      version == 3 ? kVersion3Attrs : "");
}

REGISTER_OP("BlockRNN>CudnnRNN")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Output("output: T")
    .Output("output_h: T")
    .Output("output_c: T")
    .Output("reserve_space: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("is_training: bool = true")
    .SetIsStateful()
    .SetShapeFn(Shapes<1, false>)
    .Doc(ForwardDoc(1));

REGISTER_OP("BlockRNN>CudnnRNNV2")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Output("output: T")
    .Output("output_h: T")
    .Output("output_c: T")
    .Output("reserve_space: T")
    .Output("host_reserved: int8")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("is_training: bool = true")
    .SetIsStateful()
    .SetShapeFn(Shapes<2, false>)
    .Doc(ForwardDoc(2));

REGISTER_OP("BlockRNN>CudnnRNNV3")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Input("sequence_lengths: int32")
    .Output("output: T")
    .Output("output_h: T")
    .Output("output_c: T")
    .Output("reserve_space: T")
    .Output("host_reserved: int8")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("num_proj: int = 0")
    .Attr("is_training: bool = true")
    .Attr("time_major: bool = true")
    .SetIsStateful()
    .SetShapeFn(Shapes<3, false>)
    .Doc(ForwardDoc(3));

REGISTER_OP("BlockRNN>CudnnRNNBackprop")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Input("output: T")
    .Input("output_h: T")
    .Input("output_c: T")
    .Input("output_backprop: T")
    .Input("output_h_backprop: T")
    .Input("output_c_backprop: T")
    .Input("reserve_space: T")
    .Output("input_backprop: T")
    .Output("input_h_backprop: T")
    .Output("input_c_backprop: T")
    .Output("params_backprop: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .SetIsStateful()
    .SetShapeFn(Shapes<1, true>)
    .Doc(BackwardDoc(1));

REGISTER_OP("BlockRNN>CudnnRNNBackpropV2")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Input("output: T")
    .Input("output_h: T")
    .Input("output_c: T")
    .Input("output_backprop: T")
    .Input("output_h_backprop: T")
    .Input("output_c_backprop: T")
    .Input("reserve_space: T")
    .Input("host_reserved: int8")
    .Output("input_backprop: T")
    .Output("input_h_backprop: T")
    .Output("input_c_backprop: T")
    .Output("params_backprop: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .SetIsStateful()
    .SetShapeFn(Shapes<2, true>)
    .Doc(BackwardDoc(2));

REGISTER_OP("BlockRNN>CudnnRNNBackpropV3")
    .Input("input: T")
    .Input("input_h: T")
    .Input("input_c: T")
    .Input("params: T")
    .Input("sequence_lengths: int32")
    .Input("output: T")
    .Input("output_h: T")
    .Input("output_c: T")
    .Input("output_backprop: T")
    .Input("output_h_backprop: T")
    .Input("output_c_backprop: T")
    .Input("reserve_space: T")
    .Input("host_reserved: int8")
    .Output("input_backprop: T")
    .Output("input_h_backprop: T")
    .Output("input_c_backprop: T")
    .Output("params_backprop: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr(kModeAttr)
    .Attr(kInputModeAttr)
    .Attr(kDirectionAttr)
    .Attr("dropout: float = 0.0")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("num_proj: int = 0")
    .Attr("time_major: bool = true")
    .SetIsStateful()
    .SetShapeFn(Shapes<3, true>)
    .Doc(BackwardDoc(3));

}  // namespace
}  // namespace blockrnn
