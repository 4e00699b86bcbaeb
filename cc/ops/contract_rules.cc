#include "cc/ops/contract_rules.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

absl::Status CheckProjection(const OpContract& contract,
                             const InputShapes& shapes, const Bindings& bound,
                             int w_p) {
  if (shapes.rank(w_p) != 2 || bound['P'] != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(contract.op(), ": ", contract.inputs()[w_p].name,
                   " must have shape [P, H] with P above 0, got [0, ",
                   DimText(bound['H']), "]"));
}

absl::Status CheckLeftOutTogether(const OpContract& contract,
                                  const InputShapes& shapes, int first,
                                  int second) {
  if (shapes.rank(first) == kUnknown || shapes.rank(second) == kUnknown) {
    return absl::OkStatus();
  }
  const bool left_out = shapes.rank(first) == 1;
  if (left_out == (shapes.rank(second) == 1)) return absl::OkStatus();
  const auto& inputs = contract.inputs();
  return absl::InvalidArgumentError(absl::StrCat(
      contract.op(), ": ", inputs[first].name, " and ", inputs[second].name,
      " must be left out together, got [0] for ",
      inputs[left_out ? first : second].name, " alone"));
}

absl::Status CheckEpsilon(const std::string& op, float epsilon) {
  if (std::isfinite(epsilon) && epsilon > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": epsilon must be a finite number above 0, got ", epsilon));
}

}  // namespace blockrnn
