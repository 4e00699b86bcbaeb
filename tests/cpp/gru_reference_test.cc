// Tests the references of the GRUs against published numbers and against finite
// differences of themselves, and the sequence's against the cell's.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/gru_sequence_variants.h"
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

// From tests of TensorFlow's contrib kernels: weights .5, states .1, inputs 1.
TEST(GruReference, PublishedNumbers) {
  const Op& op = FindOp("GRUBlockCell");
  const double want[] = {0.175991, 0.156736};
  for (int64_t input = 2; input <= 3; ++input) {
    const Dims dims = {1, input, 2};
    Values in;
    const double values[] = {1, 0.1, 0.5, 0.5, 1, 0};
    const auto specs = op.inputs(dims, 0);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      in.emplace_back(specs[t].count, Real(values[t]));
    }
    const Values out = op.reference(dims, 0, Activations(), in);
    EXPECT_NEAR(out[3][0].value, want[input - 2], kGolden6);
  }
}

TEST(GruReference, GradientOfCell) {
  Random random(5);
  Gradient g = {FindOp("GRUBlockCell"),
                kCellDims,
                0,
                {3},
                {RandomTensor(kCellDims.units, &random)},
                {}};
  g.in = RandomInputs(g.forward, g.dims, 0, &random);
  const Values out = g.forward.reference(g.dims, 0, Activations(), g.in);
  const Values grads = FindOp("GRUBlockCellGrad")
                           .reference(g.dims, 0, Activations(),
                                      {g.in[1], g.in[2], g.in[3], out[0],
                                       out[1], out[2], g.cotangents[0]});
  ExpectNear("x", grads[0], g.Differences(0), kDifferenceTolerance);
  ExpectNear("h_prev", grads[1], g.Differences(1), kDifferenceTolerance);
  ExpectNear("b_c", grads[2], g.Differences(5), kDifferenceTolerance);
  ExpectNear("b_ru", grads[3], g.Differences(4), kDifferenceTolerance);
}

TEST(GruReference, SequenceIsCells) {
  const Dims& d = kStepDims;
  Random random(8);
  const Op& op = FindOp("GRU");
  const Values in = RandomInputs(op, d, kPlainOrder, &random);
  const Values out = op.reference(d, kPlainOrder, Activations(), in);
  Tensor h = in[1];
  for (int64_t t = 0; t < d.steps; ++t) {
    const Values cell =
        FindOp("GRUBlockCell")
            .reference(
                {d.batch, d.input, d.units}, 0, Activations(),
                {Part(in[0], t, d.batch * d.input), h, Stacked(in[2], in[3]),
                 Stacked(in[4], in[5]), in[6], in[7]});
    for (std::size_t n = 0; n < cell.size(); ++n) {
      ExpectNear("output " + std::to_string(n),
                 Part(out[n], t, d.batch * d.units), cell[n], kSameEquations);
    }
    h = cell[3];
  }
  ExpectNear("h_last", out[4], h, kSameEquations);
}

TEST(GruReference, GradientOfSequence) {
  const GradientOp op = {"GRU",        "GRUGrad", {0, 1, 2, 3, 4, 5, 8},
                         {0, 1, 2, 3}, {3, 4},    {0, 1, 2, 3, 4, 5, 6, 7}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant);
  }
}

TEST(GruReference, GradientOfSequenceWithResetAfter) {
  const GradientOp op = {"GRUAfter",      "GRUAfterGrad", {0, 1, 2, 3, 6},
                         {0, 1, 2, 3, 4}, {4, 5},         {0, 1, 2, 3, 4, 5}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant);
  }
}

}  // namespace
}  // namespace blockrnn::test
