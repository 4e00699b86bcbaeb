#include "cc/ops/op_docs.h"

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cc/ops/argument_docs.h"
#include "cc/ops/cell_docs.h"
#include "cc/ops/cudnn_rnn_docs.h"
#include "cc/ops/op_table.h"

namespace blockrnn {
namespace {

// A later version of an op may have the doc of the first.
constexpr const OpDoc& FindDoc(std::string_view op) {
  for (std::string_view name : {op, op.substr(0, op.rfind('V'))}) {
    for (const OpDoc& doc : kCellDocs) {
      if (doc.op == name) return doc;
    }
    for (const OpDoc& doc : kCudnnRnnDocs) {
      if (doc.op == name) return doc;
    }
  }
  NoSuchName(op);
}

// The row of the op that this one is the gradient of, or nullptr.
constexpr const OpSpec* ForwardOf(const OpSpec& row) {
  const std::string_view name = row.name;
  for (std::string_view mark : {"Grad", "Backprop"}) {
    const size_t at = name.find(mark);
    if (at == std::string_view::npos) continue;
    for (const OpSpec& other : kOpTable) {
      const std::string_view forward = other.name;
      if (forward.substr(0, at) == name.substr(0, at) && forward.size() >= at &&
          forward.substr(at) == name.substr(at + mark.size())) {
        return &other;
      }
    }
  }
  return nullptr;
}

// The name that `x_grad`, `d_x` or `x_backprop` is the gradient of, or "".
constexpr std::string_view GradientOf(std::string_view name,
                                      const OpSpec& forward) {
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

// What is written of an argument or attr: the two parts of a doc, around its
// shape. The first is `before`, `name` and `after` in one.
struct Text {
  std::string_view before = "";
  std::string_view name = "";
  std::string_view after = "";
  std::string_view more = "";
};

constexpr Text TextOf(const OpSpec* forward, std::string_view name) {
  if (forward != nullptr) {
    const std::string_view of = GradientOf(name, *forward);
    if (!of.empty()) return {"The gradient of ", of};
    if (HasOutput(*forward, name)) {
      return {"The output of ", forward->name, " of this name"};
    }
  }
  for (const ArgumentDoc& shared : kArgumentDocs) {
    if (shared.name == name) return {shared.what, "", "", shared.more};
  }
  return {};
}

// The signature shows that T is the type of the arguments.
constexpr bool IsType(std::string_view attr) {
  return attr == "T" || attr == "S";
}

// Whether an attr is a number that the op has as text. type: with its default.
bool IsNumberInText(std::string_view attr, std::string_view type) {
  for (const NumberAttr& number : kNumberAttrs) {
    if (attr == number.name) return absl::StartsWith(type, " string");
  }
  return false;
}

// The first argument or attr of a row that has no doc, or "".
constexpr std::string_view UndocumentedIn(const OpSpec& row) {
  FindDoc(row.name);
  const OpSpec* const forward = ForwardOf(row);
  for (const ArgumentList* list : {&row.inputs, &row.outputs}) {
    for (std::string_view argument : *list) {
      const std::string_view name = ArgumentName(argument);
      if (TextOf(forward, name).before.empty()) return name;
    }
  }
  for (std::string_view attr : row.attrs) {
    const std::string_view name = NextPart(&attr, ':');
    if (!IsType(name) && TextOf(forward, name).before.empty()) return name;
  }
  return "";
}

// A constant for each row: compilers limit the steps of one evaluation.
template <size_t kRow>
constexpr std::string_view kUndocumentedIn = UndocumentedIn(kOpTable[kRow]);

template <size_t... kRows>
constexpr std::string_view FirstUndocumented(std::index_sequence<kRows...>) {
  for (std::string_view name : {kUndocumentedIn<kRows>...}) {
    if (!name.empty()) return name;
  }
  return "";
}
constexpr std::string_view kUndocumented =
    FirstUndocumented(std::make_index_sequence<std::size(kOpTable)>());

// A compile error that names it.
template <char... kName>
struct Documented {
  static_assert(sizeof...(kName) == 0, "this argument or attr has no doc");
};
template <size_t... kAt>
constexpr Documented<kUndocumented[kAt]...> Check(std::index_sequence<kAt...>) {
  return {};
}
[[maybe_unused]] constexpr auto kChecked =
    Check(std::make_index_sequence<kUndocumented.size()>());

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
    if (dim.text != "K*T") continue;
    absl::StrAppend(
        &text, HasAttr(row, "is_training") ? "; without is_training and" : ";",
        " with recompute it has no steps");
  }
  if (!argument.optional) return text;
  const std::vector<DimPattern>& condition = argument.left_out_if;
  const bool unread = !condition.empty() && condition[0].text == "K";
  return absl::StrCat(
      text, unread ? "; may be `[0]` without recompute" : "; `[0]` for none");
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

// "Computes the gradient of GRUSequence, given those of h and h_last."
std::string SummaryOfGradient(const OpSpec& row, const OpSpec& forward) {
  std::vector<std::string_view> given;
  for (std::string_view input : row.inputs) {
    const std::string_view of = GradientOf(ArgumentName(input), forward);
    if (!of.empty()) given.push_back(of);
  }
  const std::string_view last = given.back();
  given.pop_back();
  return absl::StrCat("Computes the gradient of ", forward.name,
                      given.empty() ? ", given that of " : ", given those of ",
                      absl::StrJoin(given, ", "), given.empty() ? "" : " and ",
                      last, ".\n");
}

}  // namespace

std::string DocOf(const OpContract& contract) {
  const OpSpec& row = contract.row();
  const OpDoc& doc = FindDoc(row.name);
  const OpSpec* const forward = ForwardOf(row);
  std::string text;
  const auto append = [&text](std::string_view paragraph) {
    if (!paragraph.empty()) absl::StrAppend(&text, paragraph, "\n");
  };
  if (forward != nullptr) append(SummaryOfGradient(row, *forward));
  for (std::string_view paragraph : doc.paragraphs) append(paragraph);
  for (const InputParagraphs& one : kInputParagraphs) {
    if (!HasInput(row, one.input)) continue;
    append(forward == nullptr ? one.forward : one.gradient);
  }
  for (const auto* arguments : {&contract.inputs(), &contract.outputs()}) {
    for (const ArgumentPattern& argument : *arguments) {
      const Text said = TextOf(forward, argument.name);
      AppendLine(argument.name,
                 absl::StrCat(said.before, said.name, said.after,
                              ShapeText(row, contract, argument), ".",
                              said.more.empty() ? "" : " ", said.more),
                 &text);
    }
  }
  for (std::string_view attr : row.attrs) {
    const std::string_view name = NextPart(&attr, ':');
    if (IsType(name)) continue;
    AppendLine(name,
               absl::StrCat(TextOf(forward, name).before,
                            IsNumberInText(name, attr) ? kNumberDoc : ""),
               &text);
  }
  return text;
}

}  // namespace blockrnn
