// Defines a row of the op table: the signature of one op, as plain data. What
// TensorFlow registers, the shape contract, the shape function, the argument
// docs and the kernels' look-up of inputs and outputs all come from it.
//
// Inputs and outputs are listed as `name:type[dims]`, separated by spaces:
//   :type     TensorFlow's type: bool, int64, Tlen, or N*T for a list of N;
//             left out for T
//   @host     after the type: in host memory, whatever the kernel's device
//   [dims]    the shape, in the notation of cc/ops/op_contract.h
// Attrs are TensorFlow's specs, separated by semicolons. A list is written in
// one or more strings, so that rows share groups of arguments by name.

#ifndef BLOCKRNN_OPS_OP_SPEC_H_
#define BLOCKRNN_OPS_OP_SPEC_H_

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tensorflow::shape_inference {
class InferenceContext;
}  // namespace tensorflow::shape_inference

namespace blockrnn {

class Bindings;
class InputShapes;
class OpContract;

// A check that the contract's notation cannot express, of inputs whose shapes
// fit it; shapes and symbols as far as they are known.
using ContractRule = absl::Status (*)(const OpContract& contract,
                                      const InputShapes& shapes,
                                      const Bindings& bound);
using ShapeFn =
    absl::Status (*)(const OpContract& contract,
                     tensorflow::shape_inference::InferenceContext* c);

// The text up to the first separator; `rest` then begins after it.
constexpr std::string_view NextPart(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return part;
}

// The parts of one or more strings that are not empty.
template <char kSeparator>
class SpecList {
 public:
  class Iterator {
   public:
    constexpr Iterator(const std::string_view* group,
                       const std::string_view* end)
        : group_(group), end_(end), rest_(group == end ? "" : *group) {}
    constexpr std::string_view operator*() const {
      return rest_.substr(0, rest_.find(kSeparator));
    }
    constexpr Iterator& operator++() {
      NextPart(&rest_, kSeparator);
      if (rest_.empty() && ++group_ != end_) rest_ = *group_;
      return *this;
    }
    constexpr bool operator!=(const Iterator& other) const {
      return group_ != other.group_;
    }

   private:
    const std::string_view* group_;
    const std::string_view* end_;
    std::string_view rest_;  // of the group
  };

  template <class... Groups>
  constexpr SpecList(const Groups&... groups)  // NOLINT: braces in a row
      : groups_{std::string_view(groups)...}, size_(sizeof...(Groups)) {}

  constexpr Iterator begin() const {
    return Iterator(groups_.data(), groups_.data() + size_);
  }
  constexpr Iterator end() const {
    return Iterator(groups_.data() + size_, groups_.data() + size_);
  }

 private:
  std::array<std::string_view, 12> groups_;
  size_t size_;
};

using ArgumentList = SpecList<' '>;
using AttrList = SpecList<';'>;

enum OpFlags : unsigned {
  kStateful = 1,
  // TensorFlow has an op of this name without a CPU kernel: ours is registered
  // for it too.
  kServesTensorFlow = 2,
};

struct OpSpec {
  const char* name;  // without our namespace
  ArgumentList inputs;
  ArgumentList outputs;
  AttrList attrs;
  // The bool attr that selects among alternative shapes; nullptr if there are
  // none.
  const char* alternative_attr = nullptr;
  ContractRule rule = nullptr;
  ShapeFn shape_fn = nullptr;  // nullptr: derived from the contract alone
  unsigned flags = 0;
};

inline constexpr char kNamespace[] = "BlockRNN>";

// Whether to register the kernels that TensorFlow's own ops lack. The same
// switch controls gradients in tf_blockrnn/__init__.py.
inline bool ExtendsTensorFlow() {
  const char* const set = std::getenv("TF_BLOCKRNN_EXTEND_TF");
  return set == nullptr || std::string(set) != "0";
}

// ------------------------------------------------------------ reading a row

constexpr std::string_view ArgumentName(std::string_view argument) {
  return argument.substr(0, argument.find_first_of(":@[="));
}

constexpr bool IsOnHost(std::string_view argument) {
  return argument.find("@host") != std::string_view::npos;
}

// The index of an argument in a row's list, or -1.
constexpr int FindArgument(const ArgumentList& list, std::string_view name) {
  int index = 0;
  for (std::string_view argument : list) {
    if (ArgumentName(argument) == name) return index;
    ++index;
  }
  return -1;
}

constexpr bool HasInput(const OpSpec& row, std::string_view name) {
  return FindArgument(row.inputs, name) >= 0;
}

constexpr bool HasOutput(const OpSpec& row, std::string_view name) {
  return FindArgument(row.outputs, name) >= 0;
}

constexpr bool HasAttr(const OpSpec& row, std::string_view name) {
  for (std::string_view attr : row.attrs) {
    if (NextPart(&attr, ':') == name) return true;
  }
  return false;
}

// Calling it in a constant expression is a compile error.
[[noreturn]] inline void NoSuchName(std::string_view name) {
  std::fprintf(stderr, "tf_blockrnn's op table has no \"%.*s\" here\n",
               static_cast<int>(name.size()), name.data());
  std::abort();
}

// The index of an argument that must be in the list.
constexpr int IndexIn(const ArgumentList& list, std::string_view name) {
  const int index = FindArgument(list, name);
  if (index < 0) NoSuchName(name);
  return index;
}

constexpr int InputAt(const OpSpec& row, std::string_view name) {
  return IndexIn(row.inputs, name);
}

constexpr int OutputAt(const OpSpec& row, std::string_view name) {
  return IndexIn(row.outputs, name);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_SPEC_H_
