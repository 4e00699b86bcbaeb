// Declares the reference of a stack of recurrent layers: each of its sequences
// by itself, with the parameters, masks and states where cuDNN's manual has
// them. It shares nothing with cc/core but the names of modes.

#ifndef BLOCKRNN_TESTS_CPP_RNN_STACK_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_RNN_STACK_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "tests/cpp/reference.h"
#include "tests/cpp/rnn_stack_variants.h"

namespace blockrnn::test {

// Elements of params.
int64_t StackParams(const Stack& stack);

struct StackInputs {
  const Tensor& input;    // [steps, batch, I]
  const Tensor& input_h;  // [layer directions, batch, P]
  const Tensor& input_c;  // [layer directions, batch, H]
  const Tensor& params;
};

struct StackOutputs {
  Tensor output;    // [steps, batch, D·P]
  Tensor output_h;  // as input_h
  Tensor output_c;  // as input_c
};

StackOutputs StackForward(const Stack& stack, bool drops,
                          const StackInputs& in);

struct StackGradients {
  Tensor input;
  Tensor input_h;
  Tensor input_c;
  Tensor params;
};

// The gradients of Σ grads ∘ outputs; an empty one of them is zeros.
StackGradients StackBackward(const Stack& stack, bool drops,
                             const StackInputs& in, const StackOutputs& grads);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_RNN_STACK_REFERENCE_H_
