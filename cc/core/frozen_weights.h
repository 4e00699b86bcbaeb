// Defines the weights of a layer direction that an engine packs once, for any
// number of calls: inference with weights that no longer change.
//
// The caller provides the memory and keeps it as long as calls read it. What is
// in it depends on the engine, so it is never stored or sent elsewhere.

#ifndef BLOCKRNN_CORE_FROZEN_WEIGHTS_H_
#define BLOCKRNN_CORE_FROZEN_WEIGHTS_H_

#include <cstdint>
#include <limits>

#include "cc/core/sequence_args.h"

namespace blockrnn {

// Inputs, units and outputs that a layer of int8 may have at most: int32 holds
// any sum of so many products.
inline constexpr int64_t kMostInt8Depth =
    std::numeric_limits<int32_t>::max() / (127 * 127);

// Packs the weights and biases of `layer`, whose shape has the input and the
// units; nothing else of it is read. Precisions other than kStorage are for
// float alone. Forward calls with the packed weights read neither weights nor
// biases of their own, except peepholes and, for bfloat16 in short calls, all.
template <class Forward>
struct FreezeArgs {
  Forward layer;
  Precision precision = Precision::kStorage;
  int64_t* bytes = nullptr;  // of the packed weights; written
  void* packed = nullptr;    // [bytes], aligned to 64 bytes, is written;
                             // nullptr: `bytes` is all that is asked for
};

template <class T>
using LstmFreezeArgs = FreezeArgs<LstmSequenceForwardArgs<T>>;
template <class T>
using GruFreezeArgs = FreezeArgs<GruSequenceForwardArgs<T>>;
template <class T>
using GruAfterFreezeArgs = FreezeArgs<GruAfterSequenceForwardArgs<T>>;
template <class T>
using SimpleRnnFreezeArgs = FreezeArgs<SimpleRnnForwardArgs<T>>;
template <class T>
using LayerNormLstmFreezeArgs = FreezeArgs<LayerNormLstmForwardArgs<T>>;
template <class T>
using LayerNormGruFreezeArgs = FreezeArgs<LayerNormGruForwardArgs<T>>;

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_FROZEN_WEIGHTS_H_
