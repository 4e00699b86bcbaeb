// Defines checks of the references themselves: against finite differences of a
// loss, and against another reference.

#ifndef BLOCKRNN_TESTS_CPP_REFERENCE_CHECKS_H_
#define BLOCKRNN_TESTS_CPP_REFERENCE_CHECKS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {

using Values = std::vector<Tensor>;

inline Values RandomInputs(const Op& op, const Dims& dims, int variant,
                           Random* random) {
  Values in;
  for (const TensorSpec& spec : op.inputs(dims, variant)) {
    in.push_back(RandomTensor(spec.count, random));
  }
  return in;
}

inline void ExpectNear(const std::string& what, const Tensor& got,
                       const Tensor& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_NEAR(got[n].value, want[n].value, tolerance)
        << what << "[" << n << "]";
  }
}

// Step `index` of a sequence whose steps have `size` elements.
inline Tensor Part(const Tensor& tensor, int64_t index, int64_t size) {
  return Tensor(tensor.begin() + index * size,
                tensor.begin() + (index + 1) * size);
}

// The loss is Σ cotangent ∘ output over some of the forward op's outputs.
struct Gradient {
  const Op& forward;
  Dims dims;
  int variant;
  std::vector<int> outputs;
  Values cotangents;
  Values in;

  double Loss() const {
    const Values out = forward.reference(dims, variant, Activations(), in);
    double loss = 0;
    for (std::size_t t = 0; t < outputs.size(); ++t) {
      for (std::size_t n = 0; n < cotangents[t].size(); ++n) {
        loss += cotangents[t][n].value * out[outputs[t]][n].value;
      }
    }
    return loss;
  }

  Tensor Differences(int input) {
    Tensor differences;
    for (Real& element : in[input]) {
      const double before = element.value;
      element = before + kDifferenceStep;
      const double above = Loss();
      element = before - kDifferenceStep;
      const double below = Loss();
      element = before;
      differences.push_back(Real((above - below) / (2 * kDifferenceStep)));
    }
    return differences;
  }
};

inline constexpr Dims kSequenceGradientDims = {4, 2, 3, 4};

// What a gradient op reads of the forward op, and the gradients that it gives.
struct GradientOp {
  const char* forward;
  const char* backward;
  std::vector<int> inputs;      // of the forward op, that the backward op has
  std::vector<int> saved;       // outputs of the forward op, the same
  std::vector<int> cotangents;  // outputs of the forward op, with a gradient
  std::vector<int> gradients;   // for each output of the backward op, the input
};

inline void CheckGradient(const GradientOp& which, int variant) {
  const Op& backward = FindOp(which.backward);
  const Dims& dims = kSequenceGradientDims;
  Random random(9);
  Gradient g = {FindOp(which.forward), dims, variant, which.cotangents, {}, {}};
  g.in = RandomInputs(g.forward, dims, variant, &random);
  const Values out = g.forward.reference(dims, variant, Activations(), g.in);
  const auto specs = backward.inputs(dims, variant);
  Values in;
  for (const int input : which.inputs) in.push_back(g.in[input]);
  for (const int output : which.saved) in.push_back(out[output]);
  for (const int output : which.cotangents) {
    // One that is not given is zeros; what is there instead must not matter.
    const bool used = specs[in.size()].used;
    const std::size_t count = out[output].size();
    in.push_back(RandomTensor(count, &random));
    g.cotangents.push_back(used ? in.back() : Tensor(count));
  }
  const Values grads = backward.reference(dims, variant, Activations(), in);
  const auto grad_specs = backward.outputs(dims, variant);
  for (std::size_t t = 0; t < grads.size(); ++t) {
    if (!grad_specs[t].used) continue;
    ExpectNear(std::string(grad_specs[t].name) + " of variant " +
                   std::to_string(variant),
               grads[t], g.Differences(which.gradients[t]),
               kDifferenceTolerance);
  }
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_REFERENCE_CHECKS_H_
