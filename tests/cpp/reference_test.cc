// Tests the references: those of cells against published numbers, and those of
// gradients against finite differences of the forward references.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

using Values = std::vector<Tensor>;

// Every element of the t-th input is the t-th value.
Values Outputs(const Op& op, const Dims& dims,
               const std::vector<double>& values) {
  Values in;
  for (const TensorSpec& spec : op.inputs(dims, 0)) {
    in.emplace_back(spec.count, Real(values[in.size()]));
  }
  return op.reference({dims}, in);
}

// From tests of TensorFlow's contrib kernels: weights .5, states .1, inputs 1.
TEST(GruReference, PublishedNumbers) {
  const double want[] = {0.175991, 0.156736};
  for (int64_t input = 2; input <= 3; ++input) {
    const Values out = Outputs(FindOp("GRUBlockCell"), {1, input, 2},
                               {1, 0.1, 0.5, 0.5, 1, 0});
    EXPECT_NEAR(out[3][0].value, want[input - 2], kGolden6);
  }
}

// Two layers of size 2; the second reads the first one's h. Variant 0:
// forget_bias 1, no clip, no peepholes.
TEST(LstmReference, PublishedNumbers) {
  const double want_cs[] = {0.68967271, 0.39897051};
  const double want_h[] = {0.44848421, 0.24024698};
  double x = 1;
  for (int layer = 0; layer < 2; ++layer) {
    const Values out = Outputs(FindOp("LSTMBlockCell"), {1, 2, 2},
                               {x, 0.1, 0.1, 0.5, 0, 0, 0, 0});
    EXPECT_NEAR(out[1][0].value, want_cs[layer], kGolden8);
    EXPECT_NEAR(out[6][0].value, want_h[layer], kGolden8);
    x = out[6][0].value;
  }
}

int Find(const std::vector<TensorSpec>& specs, const std::string& name) {
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (specs[t].name == name) return static_cast<int>(t);
  }
  return -1;
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t n = 0; n < a.size(); ++n) sum += a[n].value * b[n].value;
  return sum;
}

// An op and its gradient in one variant, with random numbers. What the gradient
// op reads has the name that the forward op gives it, and gradients have it
// with a suffix. The loss is Σ cotangent · output.
class Gradient {
 public:
  Gradient(const Op& forward, int variant)
      : forward_(forward),
        backward_(FindOp(std::string(forward.name) + "Grad")),
        call_{{4, 2, 3, 4}, variant},
        inputs_(forward.inputs(call_.dims, variant)),
        outputs_(forward.outputs(call_.dims, variant)) {
    for (const TensorSpec& spec : inputs_) {
      in_.push_back(RandomTensor(spec.count, &random_));
    }
  }

  // Along a random direction of each input.
  void Check() {
    const Values out = forward_.reference(call_, in_);
    Values cotangents(out.size());
    Values given;
    for (const auto& spec : backward_.inputs(call_.dims, call_.variant)) {
      const int input = Find(inputs_, spec.name);
      const int output = Find(outputs_, spec.name);
      if (input >= 0 || output >= 0) {
        given.push_back(input >= 0 ? in_[input] : out[output]);
        continue;
      }
      // What is there instead of one that is not given must not matter.
      given.push_back(RandomTensor(spec.count, &random_));
      if (spec.used) cotangents[Find(outputs_, Of(spec))] = given.back();
    }
    const Values grads = backward_.reference(call_, given);
    const auto specs = backward_.outputs(call_.dims, call_.variant);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      if (!specs[t].used) continue;
      Tensor direction = RandomTensor(specs[t].count, &random_);
      const double length = std::sqrt(Dot(direction, direction));
      for (Real& element : direction) element = element.value / length;
      EXPECT_NEAR(
          Dot(grads[t], direction),
          Difference(cotangents, Find(inputs_, Of(specs[t])), direction),
          kDifferenceTolerance)
          << backward_.name << " " << specs[t].name << " of variant "
          << call_.variant;
    }
  }

 private:
  // What it is the gradient of.
  static std::string Of(const TensorSpec& gradient) {
    return gradient.name.substr(0, gradient.name.rfind('_'));
  }

  double Difference(const Values& cotangents, int input,
                    const Tensor& direction) {
    const auto loss = [&](double step) {
      Values in = in_;
      for (std::size_t n = 0; n < direction.size(); ++n) {
        in[input][n].value += step * direction[n].value;
      }
      const Values out = forward_.reference(call_, in);
      double sum = 0;
      for (std::size_t t = 0; t < out.size(); ++t) {
        if (!cotangents[t].empty()) sum += Dot(cotangents[t], out[t]);
      }
      return sum;
    };
    const auto across = [&](double step) { return loss(step) - loss(-step); };
    return (8 * across(kDifferenceStep) - across(2 * kDifferenceStep)) /
           (12 * kDifferenceStep);
  }

  const Op& forward_;
  const Op& backward_;
  const ReferenceCall call_;
  const std::vector<TensorSpec> inputs_;
  const std::vector<TensorSpec> outputs_;
  Random random_{9};
  Values in_;
};

TEST(References, GradientsOfSequences) {
  for (const Op& op : Ops()) {
    if (!op.sequence || op.backward) continue;
    for (int variant = 0; variant < op.variants; ++variant) {
      if (op.no_derivative != nullptr && op.no_derivative(variant)) continue;
      Gradient(op, variant).Check();
    }
  }
}

}  // namespace
}  // namespace blockrnn::test
