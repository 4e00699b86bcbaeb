// Declares the reference of a cell over a sequence: row by row and step by
// step, the equations of cell_reference.h.

#ifndef BLOCKRNN_TESTS_CPP_SEQUENCE_REFERENCE_H_
#define BLOCKRNN_TESTS_CPP_SEQUENCE_REFERENCE_H_

#include <cstdint>

#include "tests/cpp/cell_reference.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/storage.h"

namespace blockrnn::test {

// w [rows, columns] as [columns, rows].
Tensor Transposed(const Tensor& w, int64_t rows);

struct SequenceReference {
  CellSpec cell;
  Steps steps;
  int64_t width = 0;  // P, of h
  // Of the state that a simple RNN stores and reads again.
  Type type = Type::kDouble;
  Activations activations;
  // Of frozen weights; and, where it is not the type's, what the engine has
  // computed: each step begins with the state that it has there, and multiplies
  // what it has there.
  Precision precision = Precision::kStorage;
  const NamedTensors* computed = nullptr;

  // in: x, h_prev, cs_prev, recurrent_dropout, weights and biases as in the
  // arguments of the GRU with the reset after the GEMM or of an LSTM, of which
  // b is b_x here. A projection is w_p; without w_x, x is x · w_x of all gates,
  // or of each of them. Gives h, h_last, cs, cs_last and the saved arrays.
  NamedTensors Forward(const NamedTensors& in) const;

  // in: also what Forward gives, and h_grad, h_last_grad, cs_grad and
  // cs_last_grad, of which those that are not there are zeros. Gives the
  // gradients by all inputs; and gates_grad, by the gates' sums.
  NamedTensors Backward(const NamedTensors& in) const;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_SEQUENCE_REFERENCE_H_
