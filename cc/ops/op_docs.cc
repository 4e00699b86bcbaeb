#include "cc/ops/op_docs.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cc/ops/cudnn_rnn_docs.h"
#include "cc/ops/gru_docs.h"
#include "cc/ops/layer_norm_docs.h"
#include "cc/ops/lstm_docs.h"
#include "cc/ops/op_table.h"
#include "cc/ops/simple_rnn_docs.h"

namespace blockrnn {
namespace {

// An argument or attr that has the same name in several ops.
constexpr ArgumentDoc kShared[] = {
    {"x", "The input"},
    {"h_prev", "The state before the first step"},
    {"cs_prev", "The cell state before the first step"},
    {"seq_len_max", "How many steps are computed, 0..T", "On the host."},
    {"w", "Weights", "The rows of x come first, then those of h_prev."},
    {"w_ru", "Weights of the gates r, u",
     "The rows of x come first, then those of h_prev."},
    {"w_c", "Weights of the candidate", "Rows as in w_ru."},
    {"w_x", "Weights of the input",
     "Left out where x is x · w_x already, of that width."},
    {"w_h", "Weights of the state", "Columns in the order of w_x."},
    {"w_ru_x", "Weights of the input to the gates r, u",
     "Left out, together with w_c_x, where x is already multiplied by both, "
     "in the order r, u, c."},
    {"w_ru_h", "Weights of the state to the gates r, u"},
    {"w_c_x", "Weights of the input to the candidate"},
    {"w_c_h", "Weights of the state to the candidate"},
    {"w_p", "Weights of the projection", "P is H without one."},
    {"b", "Biases", "In the order of the weights' columns."},
    {"b_ru", "Biases of the gates r, u"},
    {"b_c", "Bias of the candidate"},
    {"b_x", "Biases added to x · w_x", "In the order of w_x."},
    {"b_h", "Biases added to h_prev · w_h", "In the order of w_x."},
    {"wci", "Peephole weights of the input gate"},
    {"wcf", "Peephole weights of the forget gate"},
    {"wco", "Peephole weights of the output gate"},
    {"peepholes",
     "The peephole weights wci, wcf, wco from the cell state to the gates i, "
     "f, o"},
    {"mask", "False where a step of a row is skipped"},
    {"sequence_lengths", "The length of each row, 0..T"},
    {"recurrent_dropout",
     "Factors of the state before a step in its GEMM with each gate's weights, "
     "in their order"},
    {"zoneout_h",
     "True where a step leaves h as it was before. Without it and with "
     "zoneout_rate_h, h is the mean"},
    {"zoneout_c",
     "True where a step leaves cs as it was before. Without it and with "
     "zoneout_rate_c, cs is the mean"},
    {"zoneout_rate_h",
     "The share of the h before a step in the one after it, in 0..1, where "
     "zoneout_h is left out."},
    {"zoneout_rate_c",
     "The share of the cs before a step in the one after it, in 0..1, where "
     "zoneout_c is left out."},
    {"i", "The input gate"},
    {"f", "The forget gate"},
    {"o", "The output gate"},
    {"ci", "The cell input"},
    {"cs", "The cell state after each step"},
    {"co", "The tanh of the cell state"},
    {"r", "The reset gate"},
    {"u", "The update gate"},
    {"c", "The candidate"},
    {"hc", "What the reset gate is applied to, h_prev · w_h,c + b_h,c"},
    {"h", "The state after each step"},
    {"gamma_x", "Scale of the normalised x · w_x"},
    {"beta_x", "Offset of the normalised x · w_x"},
    {"gamma_h", "Scale of the normalised h_prev · w_h"},
    {"beta_h", "Offset of the normalised h_prev · w_h"},
    {"gamma_c", "Scale of the normalised cell state"},
    {"beta_c", "Offset of the normalised cell state"},
    {"x_hat", "x · w_x normalised, before gamma_x and beta_x"},
    {"h_hat", "h_prev · w_h normalised, before gamma_h and beta_h"},
    {"rstd",
     "The reciprocal standard deviations of the rows of x · w_x and of "
     "h_prev · w_h"},
    {"h_last", "The state after the last step done"},
    {"cs_last", "The cell state after the last step done"},
    {"forget_bias", "Added to the forget gate's pre-activation."},
    {"cell_clip",
     "The bound of the cell state; no bound unless it is above 0."},
    {"use_peephole", "Whether the gates see the cell state."},
    {"epsilon", "Added to the variances, above 0."},
    {"norm_output_only",
     "Whether h alone is made of the norm of the cell state."},
    {"gate_order", "The order of the gates in the weights and biases."},
    {"activation", "The activation act."},
    {"time_major",
     "Whether the first dim of sequences is T; otherwise it is B."},
    {"go_backwards", "Whether the last step is done first."},
    {"is_training", "Whether to save what the gradient needs."},
    {"recompute",
     "0, or the least number of steps after which the state is saved for the "
     "gradient instead of the gates of all steps, which the gradient then "
     "computes again; -1 for half the square root of T."},
    {"span_states",
     "The states that are saved with recompute, in the engine's own form"},
    {"frozen",
     "Empty, or for inference the fingerprint of the weights, biases and "
     "peepholes, 32 hex digits for each of these inputs. They are then packed "
     "in the first call and the packed form is kept; inputs of another "
     "fingerprint are an error, so are is_training, recurrent_dropout and a "
     "gradient."},
    {"precision",
     "How frozen weights are packed. Another than float32 is for float alone, "
     "and for CPUs."},
    {"Tlen", "The type of sequence_lengths."},
    {"input", "The input"},
    {"input_h", "The initial state of each layer and direction"},
    {"input_c", "The initial cell state of each layer and direction"},
    {"params", "Weights and biases in one array"},
    {"output", "The output of the last layer"},
    {"output_h", "The final state of each layer and direction"},
    {"output_c", "The final cell state of each layer and direction"},
    {"reserve_space", "What the backprop op needs; empty without is_training"},
    {"host_reserved", "Always empty; only cuDNN needs it"},
    {"rnn_mode", "The cell of all layers."},
    {"input_mode",
     "Whether layer 0 has weights for its input (`linear_input`) or adds the "
     "input to each gate as it is (`skip_input`, where I = H); `auto_select` "
     "skips where I = H."},
    {"direction", "Whether each layer has a backward direction, too."},
    {"dropout", "The share that is dropped between layers, in [0, 1)."},
    {"seed", "The first half of the seed of dropout."},
    {"seed2", "The second half of the seed of dropout."},
    {"num_proj", "P of an lstm with a projection, at most H; 0 for none."},
    {"num_layers", "L, the number of layers, at least 1"},
    {"num_units", "H, the number of units of a layer"},
    {"input_size", "I, the number of inputs"},
    {"params_size", "The number of elements of params"},
    {"weights", "The matrices, each `[H, width]`, `[H, P]` or `[P, H]`"},
    {"biases", "The biases, each `[H]`"},
    {"num_params",
     "The number of weights, and of biases: for each layer and direction 8 for "
     "lstm, 6 for gru, 2 for rnn_relu and rnn_tanh."},
    {"num_params_weights",
     "The number of weights: for each layer and direction 8 for lstm (9 with a "
     "projection), 6 for gru, 2 for rnn_relu and rnn_tanh."},
    {"num_params_biases",
     "The number of biases: for each layer and direction 8 for lstm, 6 for "
     "gru, 2 for rnn_relu and rnn_tanh."},
};

template <size_t N>
const OpDoc* FindIn(const OpDoc (&docs)[N], std::string_view op) {
  for (const OpDoc& doc : docs) {
    if (doc.op == op) return &doc;
  }
  return nullptr;
}

[[noreturn]] void Undocumented(std::string_view op, std::string_view what) {
  std::fprintf(stderr, "no doc for %.*s of the op %.*s\n",
               static_cast<int>(what.size()), what.data(),
               static_cast<int>(op.size()), op.data());
  std::abort();
}

const OpDoc& FindDoc(std::string_view op) {
  for (const OpDoc* doc :
       {FindIn(kGruDocs, op), FindIn(kLstmDocs, op), FindIn(kLayerNormDocs, op),
        FindIn(kSimpleRnnDocs, op), FindIn(kCudnnRnnDocs, op)}) {
    if (doc != nullptr) return *doc;
  }
  Undocumented(op, "the equations");
}

// The row of the op that this one is the gradient of, or nullptr.
const OpSpec* ForwardOf(const OpSpec& row) {
  for (const char* mark : {"Grad", "Backprop"}) {
    std::string name = row.name;
    const size_t at = name.find(mark);
    if (at == std::string::npos) continue;
    return FindRow(name.erase(at, std::string_view(mark).size()));
  }
  return nullptr;
}

// The name that `x_grad`, `d_x` or `x_backprop` is the gradient of, or "".
std::string_view GradientOf(std::string_view name, const OpSpec& forward) {
  std::string_view of;
  for (std::string_view end : {"_grad", "_backprop"}) {
    if (name.size() > end.size() &&
        name.substr(name.size() - end.size()) == end) {
      of = name.substr(0, name.size() - end.size());
    }
  }
  if (name.substr(0, 2) == "d_") of = name.substr(2);
  return HasInput(forward, of) || HasOutput(forward, of) ? of : "";
}

struct Text {
  std::string what;
  std::string more;
};

Text TextOf(const OpSpec& row, const OpDoc& doc, std::string_view name) {
  for (const ArgumentDoc& own : doc.own) {
    if (own.name != nullptr && own.name == name) return {own.what, own.more};
  }
  const OpSpec* const forward = ForwardOf(row);
  if (forward != nullptr) {
    const std::string_view of = GradientOf(name, *forward);
    if (!of.empty()) return {absl::StrCat("The gradient of ", of), ""};
    if (HasOutput(*forward, name)) {
      return {absl::StrCat("The output of ", forward->name, " of this name"),
              ""};
    }
  }
  for (const ArgumentDoc& shared : kShared) {
    if (shared.name == name) return {shared.what, shared.more};
  }
  Undocumented(row.name, name);
}

std::string Dims(const ShapePattern& shape) {
  std::string text;
  for (const DimPattern& dim : shape.dims) {
    if (dim.any) return "of any length";
    absl::StrAppend(&text, text.empty() ? "" : ", ", dim.text);
  }
  // K is explained in words.
  return absl::StrReplaceAll(absl::StrCat("`[", text, "]`"), {{"K*", ""}});
}

// ", `[T, B, I]`, or `[B, T, I]` without time_major; `[0]` for none".
std::string ShapeText(const OpSpec& row, const OpContract& contract,
                      const ArgumentPattern& argument) {
  const bool input = HasInput(row, argument.name);
  const ShapePattern& shape = argument.shape(0);
  if (shape.any) return "";
  if (shape.same_as >= 0) {
    return absl::StrCat(", of the shape of ",
                        contract.inputs()[shape.same_as].name);
  }
  if (shape.dims.empty()) return ", a scalar";
  if (argument.alternatives.size() == 1 && shape.dims[0].any) return ", `[?]`";
  std::string text = absl::StrCat(", ", Dims(shape));
  if (argument.alternatives.size() > 1) {
    absl::StrAppend(&text, ", or ", Dims(argument.alternatives[1]), " without ",
                    row.alternative_attr);
  }
  for (const DimPattern& dim : shape.dims) {
    if (dim.text == "K*T") {
      absl::StrAppend(&text, "; ", input ? "" : "without is_training and ",
                      "with recompute it has no steps");
    }
  }
  if (argument.optional) {
    const bool bias =
        !argument.left_out_if.empty() && argument.left_out_if[0].text == "K";
    absl::StrAppend(
        &text, bias ? "; may be `[0]` without recompute" : "; `[0]` for none");
  }
  return text;
}

// A line of `name: text`, wrapped at 80 columns, continuation lines indented.
void AppendLine(std::string_view name, std::string_view text,
                std::string* doc) {
  absl::StrAppend(doc, name, ":");
  size_t column = name.size() + 1;
  while (!text.empty()) {
    const std::string_view word = NextPart(&text, ' ');
    if (column + 1 + word.size() > 80) {
      absl::StrAppend(doc, "\n ");
      column = 1;
    }
    absl::StrAppend(doc, " ", word);
    column += 1 + word.size();
  }
  absl::StrAppend(doc, "\n");
}

}  // namespace

std::string DocOf(const OpContract& contract) {
  const OpSpec& row = contract.row();
  const OpDoc& doc = FindDoc(row.name);
  std::string text;
  for (const char* paragraph : doc.paragraphs) {
    if (paragraph != nullptr) absl::StrAppend(&text, paragraph, "\n");
  }
  for (const auto* arguments : {&contract.inputs(), &contract.outputs()}) {
    for (const ArgumentPattern& argument : *arguments) {
      const Text said = TextOf(row, doc, argument.name);
      AppendLine(argument.name,
                 absl::StrCat(said.what, ShapeText(row, contract, argument),
                              ".", said.more.empty() ? "" : " ", said.more),
                 &text);
    }
  }
  std::string_view attrs = row.attrs;
  while (!attrs.empty()) {
    std::string_view attr = NextPart(&attrs, ';');
    const std::string_view name = NextPart(&attr, ':');
    // The signature shows that T is the type of the arguments.
    if (name == "T" || name == "S") continue;
    AppendLine(name, TextOf(row, doc, name).what, &text);
  }
  return text;
}

}  // namespace blockrnn
