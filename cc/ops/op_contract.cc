#include "cc/ops/op_contract.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/ops/op_table.h"

namespace blockrnn {
namespace {

// ---------------------------------------------------------------- the parser

[[noreturn]] void Malformed(const std::string& text, const char* why) {
  std::fprintf(stderr, "malformed contract \"%s\": %s\n", text.c_str(), why);
  std::abort();
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSymbol(char c) { return c >= 'A' && c <= 'Z'; }

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  do {
    parts.emplace_back(NextPart(&text, separator));
  } while (!text.empty());
  return parts;
}

DimPattern::Term ParseTerm(const std::string& text) {
  DimPattern::Term term;
  size_t at = 0;
  while (at < text.size() && IsDigit(text[at])) ++at;
  if (at > 0) term.coefficient = std::stoll(text.substr(0, at));
  for (; at < text.size(); ++at) {
    if (text[at] == '*') continue;
    if (!IsSymbol(text[at])) Malformed(text, "not a symbol");
    term.symbols += text[at];
  }
  if (text.empty()) Malformed(text, "an empty dim");
  return term;
}

DimPattern ParseDim(const std::string& text) {
  DimPattern dim;
  if (text == "?") {
    dim.text = "any";
    dim.any = true;
    return dim;
  }
  dim.text = text;
  for (const std::string& term : Split(text, '+')) {
    dim.terms.push_back(ParseTerm(term));
  }
  return dim;
}

ShapePattern ParseShape(const std::string& text) {
  ShapePattern shape;
  if (text == "*") {
    shape.any = true;
  } else if (!text.empty()) {
    for (const std::string& dim : Split(text, ',')) {
      shape.dims.push_back(ParseDim(dim));
    }
  }
  return shape;
}

int IndexOf(const std::vector<ArgumentPattern>& inputs, std::string_view name) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == name) return static_cast<int>(i);
  }
  Malformed(std::string(name), "no input of this name");
}

// `[dims]` with its marks, or `=x`.
void ParseShapes(const std::string& text,
                 const std::vector<ArgumentPattern>& inputs,
                 ArgumentPattern* argument) {
  if (text.front() == '=') {
    ShapePattern shape;
    shape.same_as = IndexOf(inputs, text.substr(1));
    argument->alternatives.push_back(std::move(shape));
    return;
  }
  const size_t close = text.find(']');
  if (text.front() != '[' || close == std::string::npos) {
    Malformed(text, "expected [dims] or =input");
  }
  for (const std::string& alternative : Split(text.substr(1, close - 1), '|')) {
    argument->alternatives.push_back(ParseShape(alternative));
  }
  if (close + 1 == text.size()) return;
  if (text[close + 1] != '?') Malformed(text, "expected nothing more, or ?");
  argument->optional = true;
  if (close + 2 == text.size()) return;
  for (const std::string& side : Split(text.substr(close + 2), '=')) {
    argument->left_out_if.push_back(ParseDim(side));
  }
  if (argument->left_out_if.size() != 2) Malformed(text, "expected P=H");
}

// inputs: those that `name=x` in a list of outputs may refer to; nullptr in a
// list of inputs.
std::vector<ArgumentPattern> ParseArguments(
    const ArgumentList& list, Variant variant,
    const std::vector<ArgumentPattern>* inputs) {
  std::vector<ArgumentPattern> arguments;
  for (std::string_view spec : list) {
    const std::string part(spec);
    ArgumentPattern argument;
    argument.name = ArgumentName(part);
    const size_t shapes = part.find_first_of("[=");
    if (shapes == std::string::npos) Malformed(part, "expected name[dims]");
    std::string text = part.substr(shapes);
    if (variant != Variant::kAllGiven) {
      std::replace(text.begin(), text.end(), 'P', 'H');
    }
    if (text.back() == '!') {
      text.pop_back();
      if (variant == Variant::kNoCellState) {
        text = inputs == nullptr ? "[*]" : "[]";
      }
    }
    ParseShapes(text, inputs == nullptr ? arguments : *inputs, &argument);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

// --------------------------------------------------------------- arithmetic

// A sum of products, of which at most one factor is unknown:
// known + factor · unknown.
struct Value {
  bool overflow = false;
  int unknowns = 0;
  char unknown = 0;
  int64_t known = 0;
  int64_t factor = 0;
};

Value Evaluate(const DimPattern& dim, const Bindings& bound) {
  Value value;
  for (const DimPattern::Term& term : dim.terms) {
    int64_t product = term.coefficient;
    char unknown = 0;
    for (char symbol : term.symbols) {
      if (bound[symbol] == kUnknown) {
        unknown = symbol;
        ++value.unknowns;
      } else if (__builtin_mul_overflow(product, bound[symbol], &product)) {
        value.overflow = true;
      }
    }
    if (unknown != 0) {
      value.unknown = unknown;
      value.factor = product;
    } else if (__builtin_add_overflow(value.known, product, &value.known)) {
      value.overflow = true;
    }
  }
  return value;
}

enum class Match { kYes, kNo, kLater, kBound, kOverflow };

Match MatchDim(const DimPattern& dim, int64_t given, Bindings* bound) {
  if (dim.any) return Match::kYes;
  const Value value = Evaluate(dim, *bound);
  if (value.overflow) return Match::kOverflow;
  if (value.unknowns == 0) {
    return value.known == given ? Match::kYes : Match::kNo;
  }
  const int64_t rest = given - value.known;  // both >= 0
  if (rest < 0) return Match::kNo;
  if (value.unknowns > 1) return Match::kLater;
  if (value.factor == 0) return rest == 0 ? Match::kYes : Match::kNo;
  if (rest % value.factor != 0) return Match::kNo;
  (*bound)[value.unknown] = rest / value.factor;
  return Match::kBound;
}

// ----------------------------------------------------------------- messages

std::string Join(const std::vector<std::string>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

std::string Symbolic(const ShapePattern& shape) {
  std::vector<std::string> dims;
  for (const DimPattern& dim : shape.dims) dims.push_back(dim.text);
  return Join(dims);
}

// " = [45, 68]", or nothing when no dim is known.
std::string Numeric(const ShapePattern& shape, const Bindings& bound) {
  std::vector<std::string> dims;
  bool any_known = false;
  for (const DimPattern& dim : shape.dims) {
    const Value value = Evaluate(dim, bound);
    const bool known = !dim.any && value.unknowns == 0 && !value.overflow;
    dims.push_back(dim.any ? dim.text
                           : DimText(known ? value.known : kUnknown));
    any_known = any_known || known;
  }
  return any_known ? " = " + Join(dims) : "";
}

// " with D = 2": the symbols that are known, of dims that are not.
std::string KnownFactors(const ShapePattern& shape, const Bindings& bound) {
  std::string text;
  for (const DimPattern& dim : shape.dims) {
    if (Evaluate(dim, bound).unknowns == 0) continue;
    for (const DimPattern::Term& term : dim.terms) {
      for (char symbol : term.symbols) {
        if (bound[symbol] == kUnknown) continue;
        text += text.empty() ? " with " : ", ";
        text += std::string(1, symbol) + " = " + DimText(bound[symbol]);
      }
    }
  }
  return text;
}

// Whether the input is left out (shape [0]) or, of an unknown shape, may be.
bool LeftOut(const InputShapes& shapes, int input) {
  return shapes.rank(input) == 1 &&
         (shapes.dim(input, 0) == 0 || shapes.dim(input, 0) == kUnknown);
}

// " or [0]", with the condition where there is one.
std::string OrLeftOut(const ArgumentPattern& input) {
  if (!input.optional) return "";
  if (input.left_out_if.empty()) return " or [0]";
  return ", or [0] where " + input.left_out_if[0].text + " = " +
         input.left_out_if[1].text;
}

// The meaning of K, which is no size, where a message has it.
std::string SavedMeaning(const std::string& message) {
  return message.find(kSavedSymbol) == std::string::npos
             ? ""
             : " (K is 0 with recompute, else 1)";
}

std::string Given(const InputShapes& shapes, int input) {
  std::vector<std::string> dims;
  for (int d = 0; d < shapes.rank(input); ++d) {
    dims.push_back(DimText(shapes.dim(input, d)));
  }
  return Join(dims);
}

}  // namespace

OpContract::OpContract(const OpSpec& row, Variant variant)
    : row_(&row),
      op_(row.name),
      inputs_(ParseArguments(row.inputs, variant, nullptr)),
      outputs_(ParseArguments(row.outputs, variant, &inputs_)) {
  for (const ArgumentPattern& input : inputs_) {
    if (input.alternatives.size() > 1 && row.alternative_attr == nullptr) {
      Malformed(op_, "alternatives without an attr to pick one");
    }
  }
}

int OpContract::InputAt(std::string_view name) const {
  return IndexOf(inputs_, name);
}

absl::Status OpContract::Check(const InputShapes& shapes, int alternative,
                               Bindings* bound) const {
  const Bindings preset = *bound;
  // Every symbol of a fully known call is bound in the first pass. Further
  // passes are for shape functions, where a later input may determine what an
  // earlier one leaves unknown.
  bool again;
  do {
    bool later = false;
    bool progress = false;
    for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
      const ShapePattern& shape = inputs_[i].shape(alternative);
      if (shape.any) continue;
      const int rank = shapes.rank(i);
      if (rank == kUnknown) continue;
      if (inputs_[i].optional && LeftOut(shapes, i)) continue;
      if (rank != static_cast<int>(shape.dims.size())) {
        return Mismatch(shapes, i, alternative, *bound);
      }
      for (int d = 0; d < rank; ++d) {
        const int64_t given = shapes.dim(i, d);
        if (given == kUnknown) continue;
        switch (MatchDim(shape.dims[d], given, bound)) {
          case Match::kYes:
            break;
          case Match::kNo:
            return Mismatch(shapes, i, alternative,
                            BoundBefore(shapes, i, alternative, preset));
          case Match::kLater:
            later = true;
            break;
          case Match::kBound:
            progress = true;
            break;
          case Match::kOverflow:
            return absl::InvalidArgumentError(
                Overflow(inputs_[i], alternative, shape.dims[d], *bound) +
                ", got " + Given(shapes, i));
        }
      }
    }
    again = later && progress;
  } while (again);
  const absl::Status status = CheckLeftOut(shapes, alternative, *bound);
  if (!status.ok() || row_->rule == nullptr) return status;
  return row_->rule(*this, shapes, *bound);
}

Bindings OpContract::BoundBefore(const InputShapes& shapes, int input,
                                 int alternative, Bindings bound) const {
  for (int i = 0; i < input; ++i) {
    const ShapePattern& shape = inputs_[i].shape(alternative);
    if (shape.any || shapes.rank(i) == kUnknown) continue;
    if (inputs_[i].optional && LeftOut(shapes, i)) continue;
    for (int d = 0; d < shapes.rank(i); ++d) {
      const int64_t given = shapes.dim(i, d);
      if (given != kUnknown) MatchDim(shape.dims[d], given, &bound);
    }
  }
  return bound;
}

absl::Status OpContract::CheckLeftOut(const InputShapes& shapes,
                                      int alternative,
                                      const Bindings& bound) const {
  for (int i = 0; i < static_cast<int>(inputs_.size()); ++i) {
    const std::vector<DimPattern>& equal = inputs_[i].left_out_if;
    if (equal.empty() || shapes.rank(i) != 1 || shapes.dim(i, 0) != 0) continue;
    const Value left = Evaluate(equal[0], bound);
    const Value right = Evaluate(equal[1], bound);
    if (left.unknowns > 0 || right.unknowns > 0) continue;
    if (left.overflow || right.overflow || left.known != right.known) {
      return Mismatch(shapes, i, alternative, bound);
    }
  }
  return absl::OkStatus();
}

absl::Status OpContract::OutputDim(const ArgumentPattern& output,
                                   int alternative, const DimPattern& dim,
                                   const Bindings& bound,
                                   int64_t* value) const {
  *value = kUnknown;
  if (dim.any) return absl::OkStatus();
  const Value evaluated = Evaluate(dim, bound);
  if (evaluated.overflow) {
    return absl::InvalidArgumentError(
        Overflow(output, alternative, dim, bound));
  }
  if (evaluated.unknowns == 0) *value = evaluated.known;
  return absl::OkStatus();
}

absl::Status OpContract::Mismatch(const InputShapes& shapes, int input,
                                  int alternative,
                                  const Bindings& bound) const {
  const ShapePattern& shape = inputs_[input].shape(alternative);
  const std::string expected = Symbolic(shape) + Numeric(shape, bound) +
                               KnownFactors(shape, bound) +
                               OrLeftOut(inputs_[input]);
  return absl::InvalidArgumentError(
      op_ + ": " + inputs_[input].name + " must have shape " + expected +
      SavedMeaning(expected) + ", got " + Given(shapes, input));
}

std::string OpContract::Overflow(const ArgumentPattern& argument,
                                 int alternative, const DimPattern& dim,
                                 const Bindings& bound) const {
  std::string values;
  for (const DimPattern::Term& term : dim.terms) {
    for (char symbol : term.symbols) {
      values += values.empty() ? " with " : ", ";
      values += std::string(1, symbol) + " = " + DimText(bound[symbol]);
    }
  }
  return op_ + ": " + argument.name + " must have shape " +
         Symbolic(argument.shape(alternative)) + ", where " + dim.text +
         " overflows int64" + values;
}

std::string DimText(int64_t dim) {
  return dim == kUnknown ? "?" : std::to_string(dim);
}

const OpContract* FindContract(std::string_view op, Variant variant) {
  // Never destroyed: kernels may outlive this library's static objects.
  static const auto* const contracts = [] {
    auto* const all = new std::vector<OpContract>();
    for (const OpSpec& row : kOpTable) {
      for (int v = 0; v < kVariants; ++v) {
        all->emplace_back(row, static_cast<Variant>(v));
      }
    }
    return all;
  }();
  const OpSpec* const row = FindRow(op);
  if (row == nullptr) return nullptr;
  return &(
      *contracts)[(row - kOpTable) * kVariants + static_cast<int>(variant)];
}

}  // namespace blockrnn
