// Tests frozen weights in bfloat16 and int8 against an oracle, and how weights
// are frozen in any precision.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/cpp/float_layer.h"
#include "tests/cpp/same_bits.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Precision kLowPrecisions[] = {Precision::kBFloat16, Precision::kInt8};

class LowPrecisionCells : public ::testing::TestWithParam<Cell> {
 protected:
  // Runs a call in each precision.
  static void ExpectOracle(const FloatLayer& layer, const LayerCall& inputs) {
    for (const Precision precision : kPrecisions) {
      LayerCall call = inputs;
      FrozenFloatLayer(layer, precision).Run(&call);
      EXPECT_EQ(CompareSteps(layer, precision, call), "")
          << "precision " << static_cast<int>(precision) << " I=" << layer.input
          << " H=" << layer.units << " T=" << call.steps << " B=" << call.batch;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Cells, LowPrecisionCells, ::testing::ValuesIn(kCells));

TEST_P(LowPrecisionCells, Oracle) {
  struct Size {
    int64_t input, units, steps, batch;
  };
  // Depths around a quad and a pair; units around vectors and panels; one block
  // of steps and several.
  constexpr Size kSizes[] = {{1, 1, 3, 1},    {3, 4, 2, 3},   {4, 3, 4, 2},
                             {5, 5, 12, 5},   {2, 33, 5, 17}, {16, 17, 13, 4},
                             {65, 63, 3, 33}, {33, 7, 60, 9}, {2000, 6, 1, 2}};
  for (const Size& size : kSizes) {
    const FloatLayer layer(GetParam(), size.input, size.units);
    ExpectOracle(layer, LayerCall(layer, size.steps, size.batch));
  }
}

TEST_P(LowPrecisionCells, OracleNothing) {
  for (const auto& [input, units] : {std::pair(0, 5), std::pair(5, 0)}) {
    const FloatLayer layer(GetParam(), input, units);
    ExpectOracle(layer, LayerCall(layer, 3, 2));
  }
}

// Rows and columns of zeros, of subnormal numbers, and of very different sizes.
TEST_P(LowPrecisionCells, OracleSizes) {
  constexpr int64_t kDepth = 18;
  FloatLayer layer(GetParam(), kDepth, 20);
  LayerCall call(layer, 3, 6);
  const auto scale = [](float* v, int64_t count, int64_t stride, float by) {
    for (int64_t k = 0; k < count; ++k) v[k * stride] *= by;
  };
  constexpr float kSizes[] = {0, 1e-39f, 1e-31f, 1e-28f, 1e3f, 1e30f};
  for (int64_t b = 0; b < 6; ++b) {
    scale(&call.x[b * kDepth], kDepth, 1, kSizes[b]);
    scale(&call.h_prev[b * layer.Width()], layer.Width(), 1,
          b == 5 ? 0 : kSizes[b]);
  }
  call.x[7 * kDepth + 3] = 1e-39f;  // in rows of ordinary numbers
  call.x[8 * kDepth + 4] = 1e4f;
  int64_t column = 0;
  for (const float size : {0.0f, 1e-39f, 1e-31f, 1e-28f}) {
    scale(&layer.w_x.w[column], kDepth, layer.w_x.columns, size);
    scale(&layer.w_h.w[column + 2], layer.Width(), layer.w_h.columns, size);
    ++column;
  }
  ExpectOracle(layer, call);
}

// One value of one row, or of one column, that is not finite.
TEST_P(LowPrecisionCells, OracleNotFinite) {
  for (const float special : {kNan, kInfinity, -kInfinity}) {
    FloatLayer layer(GetParam(), 18, 20);
    LayerCall call(layer, 3, 5);
    call.x[(call.batch + 1) * layer.input + 4] = special;  // step 1, row 1
    call.h_prev[3 * layer.Width() + 2] = special;
    ExpectOracle(layer, call);
    for (Matrix FloatLayer::*const matrix :
         {&FloatLayer::w_x, &FloatLayer::w_h, &FloatLayer::w_2}) {
      FloatLayer other(GetParam(), 18, 20);
      if ((other.*matrix).w.empty()) continue;
      (other.*matrix).w[5] = special;
      ExpectOracle(other, LayerCall(other, 2, 5));
    }
  }
}

// Such a row leaves the bits of the others as they are.
TEST_P(LowPrecisionCells, NotFiniteRowAlone) {
  for (const Precision precision : kLowPrecisions) {
    const FloatLayer layer(GetParam(), 18, 20);
    const FrozenFloatLayer frozen(layer, precision);
    const LayerCall inputs(layer, 14, 7);
    LayerCall want = inputs;
    frozen.Run(&want);
    for (const float special : {kNan, kInfinity}) {
      LayerCall got = inputs;
      got.x[2 * layer.input] = special;  // of row 2
      frozen.Run(&got);
      for (int64_t b = 0; b < got.batch; ++b) {
        const bool same = RowOf(got.h, got, b, layer.Width()) ==
                          RowOf(want.h, want, b, layer.Width());
        EXPECT_EQ(same, b != 2) << Name(layer.cell) << " row " << b;
      }
    }
  }
}

// The largest sums of int8: with as many terms as int32 is said to hold.
TEST(LowPrecisionSums, Largest) {
  for (const int64_t depth : {int64_t{2000}, int64_t{133000}}) {
    FloatLayer layer(Cell::kRelu, depth, 2);
    LayerCall call(layer, 1, 2);
    for (float& w : layer.w_x.w) w = 0.5f;
    for (int64_t k = 0; k < depth; ++k) {
      layer.w_x.w[2 * k + 1] = -0.25f;
      call.x[k] = 1;
      call.x[depth + k] = -1;
    }
    FrozenFloatLayer(layer, Precision::kInt8).Run(&call);
    EXPECT_EQ(CompareSteps(layer, Precision::kInt8, call), "") << depth;
    EXPECT_GT(call.h[0], 0.4f * static_cast<float>(depth));
    EXPECT_GT(call.h[3], 0.2f * static_cast<float>(depth));
  }
}

// Masks, lengths, layouts and order of steps: near the reference of the op.
TEST(LowPrecisionOps, NearReference) {
  for (const Op& op : Ops()) {
    if (!op.sequence || op.backward) continue;
    for (const Precision precision : kLowPrecisions) {
      for (int variant = 0; variant < op.variants; ++variant) {
        if (kOrders[variant].drops) continue;
        Case c = MakeCase(op, Type::kFloat, {6, 9, 20, 7}, variant);
        c.weights = {WeightForm::kFrozen, false, precision};
        const Outcome outcome = RunCase(c);
        EXPECT_EQ(outcome.problem, "") << Describe(c);
        ASSERT_EQ(outcome.status, cpu::Status::kOk) << Describe(c);
        const std::vector<Tensor> want = Want(c);
        const auto specs = op.outputs(c.dims, c.variant);
        for (std::size_t t = 0; t < specs.size(); ++t) {
          for (std::size_t n = 0; specs[t].used && n < want[t].size(); ++n) {
            const double got =
                Decode(Type::kFloat, outcome.outputs[t].data() + 4 * n);
            ASSERT_LE(std::fabs(got - want[t][n].value),
                      LowPrecisionTolerance(want[t][n].value))
                << Describe(c) << " " << specs[t].name << "[" << n << "]";
          }
        }
      }
    }
  }
}

class Freeze : public ::testing::TestWithParam<Cell> {};
INSTANTIATE_TEST_SUITE_P(Cells, Freeze, ::testing::ValuesIn(kCells));

// Every byte that was measured is written, the same on any number of threads.
TEST_P(Freeze, SameBits) {
  struct Size {
    int64_t input, units;
  };
  constexpr Size kSizes[] = {{0, 5}, {5, 0}, {1, 1}, {7, 33}, {64, 130}};
  for (const Precision precision : kPrecisions) {
    for (const Size& size : kSizes) {
      const FloatLayer layer(GetParam(), size.input, size.units);
      const FrozenFloatLayer frozen(layer, precision, 1, 0);
      const auto expect = [&](int threads) {
        const FrozenFloatLayer other(layer, precision, threads, 0xFF);
        EXPECT_TRUE(frozen.bytes() == other.bytes())
            << Name(layer.cell) << " precision " << static_cast<int>(precision)
            << " I=" << size.input << " H=" << size.units
            << " threads=" << threads;
      };
      expect(1);
      expect(8);
      EXPECT_EQ(frozen.bytes().empty(), size.units == 0);
    }
  }
}

}  // namespace
}  // namespace blockrnn::test
