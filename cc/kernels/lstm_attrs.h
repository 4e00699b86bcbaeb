// Reads the attrs of the LSTM ops.

#ifndef BLOCKRNN_KERNELS_LSTM_ATTRS_H_
#define BLOCKRNN_KERNELS_LSTM_ATTRS_H_

#include "absl/status/status.h"
#include "cc/core/cell_args.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

// Those that the op has; it has none of a forget bias where that is 0.
inline LstmOptions LstmOptionsOf(tensorflow::OpKernelConstruction* ctx) {
  LstmOptions options;
  const auto read = [ctx](const char* name, auto* value) {
    if (!ctx->HasAttr(name)) return;
    const absl::Status status = ctx->GetAttr(name, value);
    if (!status.ok()) ctx->SetStatus(status);
  };
  read("forget_bias", &options.forget_bias);
  read("cell_clip", &options.cell_clip);
  read("use_peephole", &options.use_peephole);
  return options;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_LSTM_ATTRS_H_
