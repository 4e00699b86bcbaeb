// Tests the references of the LSTM against published numbers and against finite
// differences of themselves, and the sequence's against the cell's.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/lstm_sequence_variants.h"
#include "tests/cpp/reference_checks.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

// One row, so that the gradient of a bias is that of its pre-activation.
constexpr Dims kCellDims = {1, 3, 4};
constexpr Dims kStepDims = {3, 4, 5, 3};

// `above` over `below`: the cells' weights have x and h stacked.
Tensor Stacked(const Tensor& above, const Tensor& below) {
  Tensor stacked = above;
  stacked.insert(stacked.end(), below.begin(), below.end());
  return stacked;
}

// The plain variant of the LSTM has peepholes and a forget bias of 1; the cell
// has the same, without a clip, in its variant 4.
constexpr int kLstmCellVariant = 4;

// Two layers of size 2; the second reads the first one's h.
TEST(LstmReference, PublishedNumbers) {
  const Op& op = FindOp("LSTMBlockCell");
  const double want_cs[] = {0.68967271, 0.39897051};
  const double want_h[] = {0.44848421, 0.24024698};
  const Dims dims = {1, 2, 2};
  // Variant 0: forget_bias 1, no clip, no peepholes.
  const double values[] = {1, 0.1, 0.1, 0.5, 0, 0, 0, 0};
  double x = values[0];
  for (int layer = 0; layer < 2; ++layer) {
    Values in;
    const auto specs = op.inputs(dims, 0);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      in.emplace_back(specs[t].count, Real(t == 0 ? x : values[t]));
    }
    const Values out = op.reference(dims, 0, Activations(), in);
    EXPECT_NEAR(out[1][0].value, want_cs[layer], kGolden8);
    EXPECT_NEAR(out[6][0].value, want_h[layer], kGolden8);
    x = out[6][0].value;
  }
}

TEST(LstmReference, GradientOfCell) {
  for (const bool peephole : {false, true}) {
    Random random(6);
    // Forward variants 0 and 2 do not clip; 2 has peepholes.
    Gradient g = {FindOp("LSTMBlockCell"),
                  kCellDims,
                  peephole ? 2 : 0,
                  {1, 6},
                  {RandomTensor(kCellDims.units, &random),
                   RandomTensor(kCellDims.units, &random)},
                  {}};
    g.in = RandomInputs(g.forward, g.dims, g.variant, &random);
    const Values out =
        g.forward.reference(g.dims, g.variant, Activations(), g.in);
    const Values grads =
        FindOp("LSTMBlockCellGrad")
            .reference(
                g.dims, peephole ? 1 : 0, Activations(),
                {g.in[1], g.in[4], g.in[5], g.in[6], out[0], out[1], out[2],
                 out[3], out[4], out[5], g.cotangents[0], g.cotangents[1]});
    ExpectNear("cs_prev", grads[0], g.Differences(1), kDifferenceTolerance);
    ExpectNear("b", grads[1], g.Differences(7), kDifferenceTolerance);
    if (!peephole) continue;
    for (int t = 0; t < 3; ++t)
      ExpectNear("peephole gradient", grads[2 + t], g.Differences(4 + t),
                 kDifferenceTolerance);
  }
}

TEST(LstmReference, SequenceIsCells) {
  const Dims& d = kStepDims;
  Random random(7);
  const Op& op = FindOp("LSTM");
  const Values in = RandomInputs(op, d, kPlainOrder, &random);
  const Values out = op.reference(d, kPlainOrder, Activations(), in);
  Tensor cs = in[1], h = in[2];
  for (int64_t t = 0; t < d.steps; ++t) {
    const Values cell =
        FindOp("LSTMBlockCell")
            .reference({d.batch, d.input, d.units}, kLstmCellVariant,
                       Activations(),
                       {Part(in[0], t, d.batch * d.input), cs, h,
                        Stacked(in[3], in[4]), in[5], in[6], in[7], in[8]});
    for (std::size_t n = 0; n < cell.size(); ++n) {
      ExpectNear("output " + std::to_string(n),
                 Part(out[n], t, d.batch * d.units), cell[n], kSameEquations);
    }
    cs = cell[1];
    h = cell[6];
  }
  ExpectNear("cs_last", out[7], cs, kSameEquations);
  ExpectNear("h_last", out[8], h, kSameEquations);
}

TEST(LstmReference, GradientOfSequence) {
  const GradientOp op = {"LSTM",
                         "LSTMGrad",
                         {0, 1, 2, 3, 4, 5, 6, 7, 9, 10},
                         {0, 1, 2, 3, 4, 5, 6},
                         {1, 6, 7, 8},
                         {0, 1, 2, 3, 4, 5, 6, 7, 8, 10}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    // A clip's derivative is taken as 1: no difference shows that.
    const float clip = LstmVariant(variant).options.cell_clip;
    if (clip > 0 && !std::isinf(clip)) continue;
    CheckGradient(op, variant);
  }
}

}  // namespace
}  // namespace blockrnn::test
