// Describes the LSTM and the GRU with layer normalisation over a sequence.

#include "cc/core/layer_norm.h"

#include <cstdint>
#include <vector>

#include "tests/cpp/sequence_op.h"

namespace blockrnn::test {
namespace {

template <template <class> class Forward, template <class> class Backward>
class LayerNorm : public FamilyOf<Forward, Backward, false> {
 public:
  LayerNorm(const Dims& d, int variant)
      : FamilyOf<Forward, Backward, false>(d, variant, false) {}

  CellSpec Cell() const override {
    CellSpec cell;
    cell.normed = true;
    cell.epsilon = this->variant % 3 == 1 ? 1e-3 : 1;
    return cell;
  }

 protected:
  bool Odd() const { return this->variant % 2 == 1; }
  // What norms of `gates` gates have, and the arrays of norms.
  std::vector<TensorSpec> Norms(int64_t gates) const {
    const int64_t width = gates * this->dims.units;
    return {{"gamma_x", width},
            {"beta_x", width},
            {"gamma_h", width},
            {"beta_h", width}};
  }
  std::vector<TensorSpec> SavedNorms(int64_t gates) const {
    return {this->Array("x_hat", Fill::kState, gates),
            this->Array("h_hat", Fill::kState, gates),
            {"rstd", this->rows * 2, Fill::kGate}};
  }
};

class LayerNormLstm
    : public LayerNorm<LayerNormLstmForwardArgs, LayerNormLstmBackwardArgs> {
 public:
  using LayerNorm::LayerNorm;

  CellSpec Cell() const override {
    CellSpec cell = LayerNorm::Cell();
    if (Odd()) cell.places = {0, 2, 1, 3};
    cell.norm_output_only = variant / 2 % 2 == 1;
    return cell;
  }
  std::vector<TensorSpec> Inputs() const override {
    std::vector<TensorSpec> specs = {{"x", StepsOf().InputSize()},
                                     State("cs_prev"),
                                     State("h_prev"),
                                     InputWeights("w_x", 4),
                                     StateWeights("w_h", 4),
                                     {"b", 4 * dims.units},
                                     {"gamma_c", dims.units},
                                     {"beta_c", dims.units},
                                     Dropout()};
    for (const TensorSpec& spec : Norms(4)) specs.push_back(spec);
    return specs;
  }
  std::vector<TensorSpec> Saved() const override {
    std::vector<TensorSpec> specs = SavedNorms(4);
    specs.push_back(Array("cs"));
    return specs;
  }

  template <class Args>
  void SetOptions(Args* args) const {
    args->layout = Odd() ? kLstmIfco : kLstmIcfo;
    args->epsilon = Cell().epsilon;
    args->norm_output_only = Cell().norm_output_only;
  }
};

class LayerNormGru
    : public LayerNorm<LayerNormGruForwardArgs, LayerNormGruBackwardArgs> {
 public:
  using LayerNorm::LayerNorm;

  CellSpec Cell() const override {
    CellSpec cell = LayerNorm::Cell();
    SetGruAfter(&cell);
    return cell;
  }
  std::vector<TensorSpec> Inputs() const override {
    std::vector<TensorSpec> specs = GruAfterInputs();
    for (const TensorSpec& spec : Norms(3)) specs.push_back(spec);
    return specs;
  }
  std::vector<TensorSpec> Saved() const override { return SavedNorms(3); }

  template <class Args>
  void SetOptions(Args* args) const {
    args->layout = Odd() ? kGruUrc : kGruRuc;
    args->epsilon = Cell().epsilon;
  }
};

const bool kAdded =
    AddSequenceOps<LayerNormLstm>("LayerNormLSTM", "LayerNormLSTMGrad") &&
    AddSequenceOps<LayerNormGru>("LayerNormGRU", "LayerNormGRUGrad");

}  // namespace
}  // namespace blockrnn::test
