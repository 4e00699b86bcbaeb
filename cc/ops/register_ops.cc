// Registers every op of the table with TensorFlow.

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "cc/ops/contract_rules.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_docs.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace blockrnn {
namespace {

using tensorflow::shape_inference::InferenceContext;

// "mask: bool", from "mask:bool[T,B]?"; the type is T where there is none.
std::string TensorFlowSpec(std::string_view argument) {
  const std::string_view name = ArgumentName(argument);
  argument.remove_prefix(name.size());
  if (argument.front() != ':') return absl::StrCat(name, ": T");
  argument.remove_prefix(1);
  return absl::StrCat(name, ": ",
                      argument.substr(0, argument.find_first_of("@[=")));
}

// What REGISTER_OP expands to; as a macro it cannot be given a row.
void RegisterOp(const OpSpec& row) {
  const OpContract& contract = *FindContract(row.name);
  const std::string name = absl::StrCat(kNamespace, row.name);
  tensorflow::register_op::OpDefBuilderWrapper op(name.c_str());
  for (std::string_view input : row.inputs) op.Input(TensorFlowSpec(input));
  for (std::string_view output : row.outputs) op.Output(TensorFlowSpec(output));
  for (std::string_view attr : row.attrs) op.Attr(std::string(attr));
  if ((row.flags & kStateful) != 0) op.SetIsStateful();
  const ShapeFn shape_fn =
      row.shape_fn == nullptr ? &InferShapes : row.shape_fn;
  op.SetShapeFn([shape_fn, &contract](InferenceContext* c) {
    return shape_fn(contract, c);
  });
  op.Doc(DocOf(contract));
  op();
}

[[maybe_unused]] const bool ops_registered = [] {
  for (const OpSpec& row : kOpTable) RegisterOp(row);
  return true;
}();

}  // namespace
}  // namespace blockrnn
