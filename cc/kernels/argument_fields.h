// Defines how a kernel fills the pointers of an engine's argument struct: a
// list of {member, name of the op's input or output}. Names become positions by
// the op's row, at compile time where the row is known then; a name that the
// row does not have is a compile error.

#ifndef BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
#define BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "cc/kernels/kernel_util.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

// What a kernel lists.
template <class Args, class T>
struct InputField {
  const T* Args::*member;
  const char* name;
};

template <class Args, class T>
struct OutputField {
  T* Args::*member;
  const char* name;
};

// What becomes of it.
template <class Args, class T, size_t kInputs, size_t kOutputs>
struct ArgumentFields {
  struct Input {
    const T* Args::*member = nullptr;
    int index = 0;
    bool optional = false;  // nullptr where it is left out
  };
  struct Output {
    T* Args::*member = nullptr;
    int index = 0;
    bool saved = false;  // for backward; nullptr without is_training
  };
  std::array<Input, kInputs> inputs = {};
  std::array<Output, kOutputs> outputs = {};

  void Fill(tensorflow::OpKernelContext* ctx, bool is_training,
            Args* args) const {
    for (const Input& input : inputs) {
      args->*input.member = input.optional && LeftOut(ctx, input.index)
                                ? nullptr
                                : blockrnn::Input<T>(ctx, input.index);
    }
    for (const Output& output : outputs) {
      if (output.saved && !is_training) continue;
      args->*output.member = blockrnn::Output<T>(ctx, output.index);
    }
  }
};

// The fields by the row's positions.
template <class Args, class T, size_t kInputs, size_t kOutputs>
constexpr ArgumentFields<Args, T, kInputs, kOutputs> Fields(
    const OpSpec& row, const InputField<Args, T> (&inputs)[kInputs],
    const OutputField<Args, T> (&outputs)[kOutputs]) {
  ArgumentFields<Args, T, kInputs, kOutputs> fields;
  for (size_t i = 0; i < kInputs; ++i) {
    const int index = InputAt(row, inputs[i].name);
    const std::string_view text = ArgumentText(row.inputs, index);
    fields.inputs[i].member = inputs[i].member;
    fields.inputs[i].index = index;
    fields.inputs[i].optional = text.find("]?") != std::string_view::npos;
  }
  for (size_t i = 0; i < kOutputs; ++i) {
    const int index = OutputAt(row, outputs[i].name);
    const std::string_view text = ArgumentText(row.outputs, index);
    fields.outputs[i].member = outputs[i].member;
    fields.outputs[i].index = index;
    fields.outputs[i].saved = text.find("[K*") != std::string_view::npos;
  }
  return fields;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ARGUMENT_FIELDS_H_
