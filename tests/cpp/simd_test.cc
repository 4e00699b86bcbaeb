// Tests the activations that are not Eigen's over their full range.

#include "cc/kernels/cpu/gemm/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cc/core/activations.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

using V = cpu::Vec<float>;

// Off by kSigmoidUnits in the last place at the most.
bool GoodSigmoid(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  const double normal =
      std::max(want, double{std::numeric_limits<float>::min()});
  const double unit = std::ldexp(1, std::ilogb(normal) - 23);
  return std::abs(got - want) <= kSigmoidUnits * unit;
}

TEST(Simd, SigmoidOfFloat) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> inputs = {
      inf,    -inf,   std::nanf(""), 0.0f,   -0.0f,  1e30f,  -1e30f, 88.0f,
      -87.3f, -88.0f, -88.4f,        -89.0f, -90.0f, -104.f, 16.6f,  -16.6f};
  // A sample of all floats, of either sign, infinite and NaN included.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973) {
    const auto pattern = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &pattern, sizeof(value));
    inputs.push_back(value);
  }
  inputs.resize((inputs.size() + V::kSize - 1) / V::kSize * V::kSize);
  for (size_t i = 0; i < inputs.size(); i += V::kSize) {
    float got[V::kSize];
    cpu::Store(got, Sigmoid(cpu::Load<float>(inputs.data() + i)));
    for (int j = 0; j < V::kSize; ++j) {
      const double x = inputs[i + j];
      const double want = 1 / (1 + std::exp(-x));
      ASSERT_TRUE(GoodSigmoid(got[j], want))
          << "of " << x << " it is " << got[j] << ", must be " << want;
    }
  }
}

TEST(Simd, OtherActivations) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  const auto first = [](const V& v) {
    float lanes[V::kSize];
    cpu::Store(lanes, v);
    return lanes[0];
  };
  struct {
    float x, hard_sigmoid, relu;
  } const cases[] = {
      {0, 0.5f, 0}, {1, 0.75f, 1},   {-1, 0.25f, 0}, {2, 1, 2},
      {-2, 0, 0},   {9, 1, 9},       {-1e38f, 0, 0}, {inf, 1, inf},
      {-inf, 0, 0}, {nan, nan, nan},
  };
  const OtherActivations<V> both = {{0.25f, true}};
  for (const auto& c : cases) {
    const float gate = first(both.Gate(V(c.x)));
    const float candidate = first(both.Candidate(V(c.x)));
    EXPECT_TRUE(gate == c.hard_sigmoid || std::isnan(c.x)) << c.x;
    EXPECT_TRUE(candidate == c.relu || std::isnan(c.x)) << c.x;
    EXPECT_EQ(std::isnan(gate), std::isnan(c.x));
    EXPECT_EQ(std::isnan(candidate), std::isnan(c.x));
  }
  const OtherActivations<V> relu = {{0, true}};
  EXPECT_EQ(first(relu.Gate(V(1))), first(Sigmoid(V(1))));
  const OtherActivations<V> hard = {{0.25f, false}};
  EXPECT_EQ(first(hard.Candidate(V(1))), first(Tanh(V(1))));
}

// What is stored must not depend on its position in a row.
template <class T>
void LastLanesAreConvertedAsAll(const char* type) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 9973) {
    const auto pattern = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &pattern, sizeof(value));
    T all[V::kSize] = {};
    T first = T(0);
    cpu::Store(all, V(value));
    cpu::Store(&first, V(value), cpu::FirstLanes{1});
    ASSERT_EQ(std::memcmp(all, &first, sizeof(T)), 0)
        << value << " stored as " << type << " is " << static_cast<float>(*all)
        << ", and in the last lanes of a row " << static_cast<float>(first);
  }
}

TEST(Simd, LastLanes) {
  LastLanesAreConvertedAsAll<Eigen::half>("half");
  LastLanesAreConvertedAsAll<Eigen::bfloat16>("bfloat16");
}

}  // namespace
}  // namespace blockrnn::test
