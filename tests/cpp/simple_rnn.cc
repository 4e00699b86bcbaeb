// Describes the simple RNN over a sequence.

#include <vector>

#include "cc/core/simple_rnn_cell.h"
#include "tests/cpp/sequence_op.h"

namespace blockrnn::test {
namespace {

class SimpleRnn : public FamilyOf<SimpleRnnForwardArgs, SimpleRnnBackwardArgs> {
 public:
  SimpleRnn(const Dims& d, int variant)
      : FamilyOf(d, variant, false), relu_(variant % 3 == 1) {}

  CellSpec Cell() const override {
    CellSpec cell;
    cell.kind = relu_ ? CellKind::kRelu : CellKind::kTanh;
    return cell;
  }
  std::vector<TensorSpec> Inputs() const override {
    return {{"x", StepsOf().InputSize()},
            State("h_prev"),
            InputWeights("w_x", 1),
            StateWeights("w_h", 1),
            {"b", dims.units},
            {"b_h", dims.units, Fill::kState, variant % 2 == 1},
            Dropout()};
  }
  std::vector<TensorSpec> Saved() const override { return {}; }

  template <class Args>
  void SetOptions(Args* args) const {
    args->relu = relu_;
  }

 private:
  const bool relu_;
};

const bool kAdded = AddSequenceOps<SimpleRnn>("RNN", "RNNGrad");

}  // namespace
}  // namespace blockrnn::test
