// Implements reading the attrs of the LSTM ops.

#ifndef BLOCKRNN_KERNELS_LSTM_ATTRS_H_
#define BLOCKRNN_KERNELS_LSTM_ATTRS_H_

#include "absl/status/status.h"
#include "cc/core/cell_args.h"
#include "cc/kernels/engine_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

struct LstmMapping : OpMapping {
  // Reads the attrs that the op has; the others have their defaults.
  explicit LstmMapping(tensorflow::OpKernelConstruction* ctx) {
    const auto read = [ctx](const char* name, auto* value) {
      if (!ctx->HasAttr(name)) return;
      OP_REQUIRES_OK(ctx, ctx->GetAttr(name, value));
    };
    read("forget_bias", &options.forget_bias);
    read("cell_clip", &options.cell_clip);
    read("use_peephole", &options.use_peephole);
  }

  LstmOptions options;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_LSTM_ATTRS_H_
