// Implements reading the attrs of the LSTM ops.

#ifndef BLOCKRNN_KERNELS_LSTM_ATTRS_H_
#define BLOCKRNN_KERNELS_LSTM_ATTRS_H_

#include "cc/core/lstm_cell.h"
#include "cc/kernels/engine_kernel.h"

namespace blockrnn {

struct LstmMapping : OpMapping {
  // Reads the attrs that the op has; the others have their defaults.
  explicit LstmMapping(KernelNode* node) {
    node->GetAttrIfAny("forget_bias", &options.forget_bias);
    node->GetAttrIfAny("cell_clip", &options.cell_clip);
    node->GetAttrIfAny("use_peephole", &options.use_peephole);
  }

  LstmOptions options;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_LSTM_ATTRS_H_
