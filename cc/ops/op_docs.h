// Declares the docs of the ops. For each op only the summary and the equations
// are written; the lines on its arguments and attrs are generated from its row
// and from fragments that all ops share.

#ifndef BLOCKRNN_OPS_OP_DOCS_H_
#define BLOCKRNN_OPS_OP_DOCS_H_

#include <string>

#include "cc/ops/op_contract.h"

namespace blockrnn {

// The doc of an argument or attr. The shape of an argument comes between `what`
// and `more`.
struct ArgumentDoc {
  const char* name;
  const char* what;
  const char* more = "";
};

struct OpDoc {
  const char* op;
  // The first begins with a summary of one line. TensorFlow takes a line that
  // begins with `word:` for the doc of an argument, so none does.
  const char* paragraphs[7];
  // The docs that differ from the shared fragments.
  ArgumentDoc own[4] = {};
};

// The text for TensorFlow's Doc(). Aborts if an argument or attr has no doc.
std::string DocOf(const OpContract& contract);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_DOCS_H_
