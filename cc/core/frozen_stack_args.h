// Defines the arguments of a stack of layers whose weights are frozen, as an
// engine takes them: what calls have in common is in the layers.

#ifndef BLOCKRNN_CORE_FROZEN_STACK_ARGS_H_
#define BLOCKRNN_CORE_FROZEN_STACK_ARGS_H_

#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"

namespace blockrnn {

// Forward: the arguments of the cell's forward pass over a sequence.
template <class Forward>
struct StackLayer {
  int64_t directions = 1;  // D, 1 or 2
  int64_t gates = 1;       // matrices with the input, and as many with the
                           // state
  int64_t outputs = 0;     // P, of a direction
  // The options of each direction, its inputs and units. Whatever differs from
  // call to call is not read.
  Forward options[2];
  FrozenWeights weights[2];
};

// Whether the cell has a state cs beside h.
template <class Forward, class = void>
inline constexpr bool kHasCellState = false;
template <class Forward>
inline constexpr bool
    kHasCellState<Forward, std::void_t<decltype(Forward::cs_prev)>> = true;

// What differs from call to call. States are one array: for each layer, for
// each of its directions, h [B, P] and, where the cell has one, cs [B, H].
template <class T>
struct FrozenStackCall {
  const T* x = nullptr;              // [B, T, I]
  int64_t batch = 0;                 // B
  int64_t steps = 0;                 // T
  const int64_t* lengths = nullptr;  // [B], each in 0..T; nullptr: all are T
  const uint8_t* resets = nullptr;   // [B, T], or nullptr
  const T* state = nullptr;          // before the first step; nullptr: zeros
  T* new_state = nullptr;            // after the last step; nullptr where it is
                                     // not wanted; may be `state`
  T* y = nullptr;                    // [B, T, D·P], of the last layer
  bool batch_invariant = false;      // as in SequenceForwardArgs
};

template <class Forward>
struct FrozenStackArgs
    : FrozenStackCall<std::remove_pointer_t<decltype(Forward::h)>> {
  const StackLayer<Forward>* layers = nullptr;
  int64_t num_layers = 0;  // at least 1
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_FROZEN_STACK_ARGS_H_
