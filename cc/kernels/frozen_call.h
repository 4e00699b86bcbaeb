// Implements the calls of a kernel whose op has the attrs `frozen` and
// `precision`: weights that are packed once
// (docs/adr/0019-frozen-weights.md).

#ifndef BLOCKRNN_KERNELS_FROZEN_CALL_H_
#define BLOCKRNN_KERNELS_FROZEN_CALL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/frozen_layer.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {

// The two attrs, checked, and what the op's weights are.
struct FrozenAttrs {
  std::string op;
  std::string frozen;  // empty: not frozen
  Precision precision = Precision::kStorage;
  std::vector<FrozenLayer::Weights> weights;
  int dropout = -1;  // the input recurrent_dropout
  std::string key;   // of the layer, without the shapes
};

FrozenAttrs GetFrozenAttrs(KernelNode* node, const OpSpec& row,
                           int64_t element_bytes);

// Device: as of EngineKernel.
template <class T, class Device>
class FrozenCall {
 public:
  // Reads the attrs.
  void Construct(KernelNode* node, const OpSpec& row) {
    attrs_ = GetFrozenAttrs(node, row, sizeof(T));
    if (!Device::kHostReads && attrs_.precision != Precision::kStorage) {
      node->Check(absl::InvalidArgumentError(absl::StrCat(
          attrs_.op,
          ": precision must be float32 on a GPU, whose engine packs "
          "no weights")));
    }
  }

  // Whether Run is to be called instead of the device's.
  bool used() const { return Device::kHostReads && !attrs_.frozen.empty(); }

  // Runs the engine with packed weights.
  template <class Args>
  absl::Status Run(OpCall* call, const Device& device, Args* args) const {
    if constexpr (Device::kHostReads) {
      if (!LeftOut(*call, attrs_.dropout)) {
        return absl::InvalidArgumentError(
            absl::StrCat(attrs_.op,
                         ": recurrent_dropout must be left out where frozen is "
                         "set, got factors"));
      }
      const int64_t depth = std::max(args->shape.input, args->shape.units);
      if (attrs_.precision == Precision::kInt8 && depth > kMostInt8Depth) {
        return absl::InvalidArgumentError(absl::StrCat(
            attrs_.op, ": precision must not be int8 for more than ",
            kMostInt8Depth, " inputs or units, got ", depth));
      }
      const auto pack = [&](int64_t* bytes, void* packed) {
        FreezeArgs<Args> freeze;
        freeze.layer = *args;
        freeze.precision = attrs_.precision;
        freeze.bytes = bytes;
        freeze.packed = packed;
        return device.Run(call, freeze);
      };
      std::shared_ptr<const PackedLayer> packed;
      TF_RETURN_IF_ERROR(
          Layer(*call)->Use(attrs_.op, call, attrs_.weights, pack, &packed));
      const FrozenWeights frozen = {attrs_.precision, packed->data()};
      args->frozen = &frozen;
      return device.Run(call, *args);
    }
    return absl::InternalError("no packed weights on this device");
  }

 private:
  // The layer of this call, which is that of the last one unless the weights
  // have other shapes.
  std::shared_ptr<FrozenLayer> Layer(const OpCall& call) const {
    std::string key = attrs_.key;
    for (const FrozenLayer::Weights& weights : attrs_.weights) {
      absl::StrAppend(&key, ";");
      for (int d = 0; d < call.rank(weights.input); ++d) {
        absl::StrAppend(&key, ",", call.dim(weights.input, d));
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (layer_ == nullptr || key != key_) {
      layer_ = FrozenLayer::Find(key, attrs_.frozen);
      key_ = key;
    }
    return layer_;
  }

  FrozenAttrs attrs_;
  mutable std::mutex mutex_;
  mutable std::string key_;                     // under mutex_
  mutable std::shared_ptr<FrozenLayer> layer_;  // under mutex_
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_FROZEN_CALL_H_
