// Defines the arguments of a whole stack of layers and directions (the cuDNN
// ops), as an engine takes them. T is the storage type: half and bfloat16 are
// computed in float32. None of the outputs overlaps an input or another output.
//
// Sequences are [steps, batch, …] in the notation of cc/core/sequence_args.h:
// [T, B, …] with time_major, else [B, T, …]. States are [L·D, B, width] with
// time_major, else [B, L·D, width].
//
// An engine trusts these: whoever fills them has checked every size.

#ifndef BLOCKRNN_CORE_RNN_STACK_ARGS_H_
#define BLOCKRNN_CORE_RNN_STACK_ARGS_H_

#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/core/param_layout.h"

namespace blockrnn {

template <class T>
struct RnnStackForwardArgs {
  RnnGeometry geometry;
  int64_t steps = 0;  // T
  int64_t batch = 0;  // B
  bool time_major = true;
  const int64_t* lengths = nullptr;  // [B], each in 0..T; nullptr: all are T
  const T* input = nullptr;          // [steps, batch, I]
  const T* input_h = nullptr;        // [L·D, B, P]
  const T* input_c = nullptr;        // [L·D, B, H]; read only by lstm
  const T* params = nullptr;         // as cc/core/param_layout.h has them
  T* output = nullptr;               // [steps, batch, D·P]
  T* output_h = nullptr;             // [L·D, B, P]
  T* output_c = nullptr;             // [L·D, B, H]; written only by lstm
  // What the backward reads, header included: cc/core/reserve_space.h. nullptr
  // where nobody trains; there is no dropout then.
  void* reserve = nullptr;
  float dropout = 0.0f;  // the part of a layer's output that is dropped, 0..1
  PhiloxState philox;    // of which DropoutBlocks counters are used
};

template <class T>
struct RnnStackBackwardArgs {
  RnnGeometry geometry;
  int64_t steps = 0;  // T
  int64_t batch = 0;  // B
  bool time_major = true;
  const int64_t* lengths = nullptr;  // [B], each in 0..T; nullptr: all are T
  const T* input = nullptr;          // [steps, batch, I]
  const T* input_h = nullptr;        // [L·D, B, P]
  const T* input_c = nullptr;        // [L·D, B, H]; read only by lstm
  const T* params = nullptr;
  const T* output = nullptr;             // [steps, batch, D·P]
  const T* output_backprop = nullptr;    // [steps, batch, D·P]; nullptr: zeros
  const T* output_h_backprop = nullptr;  // [L·D, B, P]; nullptr: zeros
  const T* output_c_backprop = nullptr;  // [L·D, B, H]; nullptr: zeros
  const void* reserve = nullptr;         // the forward's, checked by the caller
  float dropout = 0.0f;                  // the forward's
  T* input_backprop = nullptr;           // [steps, batch, I]
  T* input_h_backprop = nullptr;         // [L·D, B, P]
  T* input_c_backprop = nullptr;         // [L·D, B, H]; written only by lstm
  T* params_backprop = nullptr;          // all of it is written
};

// Counters of Philox4x32 that a forward with dropout uses: one for four
// elements of what goes up from a layer.
inline int64_t DropoutBlocksOfLayer(const RnnGeometry& geometry, int64_t steps,
                                    int64_t batch) {
  const int64_t elements = steps * batch * geometry.OutputWidth();
  return elements / 4 + (elements % 4 != 0 ? 1 : 0);
}
inline int64_t DropoutBlocks(const RnnGeometry& geometry, int64_t steps,
                             int64_t batch) {
  return (geometry.layers - 1) * DropoutBlocksOfLayer(geometry, steps, batch);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RNN_STACK_ARGS_H_
