// Defines a row of the op table: the signature of one op, as plain data. What
// TensorFlow registers, the shape contract, the shape function, the argument
// docs and the kernels' look-up of inputs and outputs all come from it.
//
// Inputs and outputs are listed as `name:type[dims]`, separated by spaces:
//   :type     TensorFlow's type: bool, int64, Tlen, or N*T for a list of N;
//             left out for T
//   @host     after the type: in host memory, whatever the kernel's device
//   [dims]    the shape, in the notation of cc/ops/op_contract.h
// Attrs are TensorFlow's specs, separated by semicolons.

#ifndef BLOCKRNN_OPS_OP_SPEC_H_
#define BLOCKRNN_OPS_OP_SPEC_H_

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

enum OpFlags : unsigned {
  kStateful = 1,
  // TensorFlow has an op of this name without a CPU kernel: ours is registered
  // for it too.
  kServesTensorFlow = 2,
};

struct OpSpec {
  const char* name;  // without our namespace
  const char* inputs;
  const char* outputs;
  const char* attrs;
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

// ------------------------------------------------------- reading a row's text

// The text up to the first separator; `rest` then begins after it.
constexpr std::string_view NextPart(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + 1);
  return part;
}

constexpr std::string_view ArgumentName(std::string_view argument) {
  return argument.substr(0, argument.find_first_of(":@[="));
}

// The index of an argument in a row's list, or -1.
constexpr int FindArgument(std::string_view list, std::string_view name) {
  for (int index = 0; !list.empty(); ++index) {
    if (ArgumentName(NextPart(&list, ' ')) == name) return index;
  }
  return -1;
}

constexpr bool HasInput(const OpSpec& row, std::string_view name) {
  return FindArgument(row.inputs, name) >= 0;
}

constexpr bool HasOutput(const OpSpec& row, std::string_view name) {
  return FindArgument(row.outputs, name) >= 0;
}

// Calling it in a constant expression is a compile error.
[[noreturn]] inline void NoSuchName(std::string_view name) {
  std::fprintf(stderr, "tf_blockrnn's op table has no \"%.*s\" here\n",
               static_cast<int>(name.size()), name.data());
  std::abort();
}

// The index of an argument that must be in the list.
constexpr int IndexIn(std::string_view list, std::string_view name) {
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

// The text of the argument at an index.
constexpr std::string_view ArgumentText(std::string_view list, int index) {
  for (; index > 0; --index) NextPart(&list, ' ');
  return NextPart(&list, ' ');
}

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_SPEC_H_
