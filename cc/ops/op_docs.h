// Declares the docs of the ops. For each op only the summary and the equations
// are written; what is said of its arguments and attrs is generated from its
// row and from texts that all ops share. A missing doc is a compile error.

#ifndef BLOCKRNN_OPS_OP_DOCS_H_
#define BLOCKRNN_OPS_OP_DOCS_H_

#include <string>
#include <string_view>

#include "cc/ops/op_contract.h"

namespace blockrnn {

// The doc of an argument or attr. The shape of an argument comes between `what`
// and `more`.
struct ArgumentDoc {
  std::string_view name;
  std::string_view what;
  std::string_view more = "";
};

struct OpDoc {
  std::string_view op;
  // The first begins with a summary of one line, which gradients do not need.
  // TensorFlow takes a line that begins with `word:` for the doc of an
  // argument, so none does.
  std::string_view paragraphs[5];
};

// The text for TensorFlow's Doc().
std::string DocOf(const OpContract& contract);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_DOCS_H_
