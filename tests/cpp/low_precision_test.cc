// Tests frozen weights in bfloat16 and int8 against the references in that
// precision, and how weights are frozen in any precision.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Precision kLowPrecisions[] = {Precision::kBFloat16, Precision::kInt8};

// Of those that give all that the references in low precision read. Among them
// are an LSTM with a projection, both layouts of gates, a relu and a tanh.
constexpr int kVariants[] = {1, 6, 8, 12, 13, 14};

Case FrozenCase(const Op& op, const Dims& dims, int variant,
                Precision precision) {
  Case c = MakeCase(op, Type::kFloat, dims, variant);
  c.weights = {WeightForm::kFrozen, precision};
  return c;
}

// An input of a call, by name.
template <class F>
void EditInput(const std::vector<TensorSpec>& specs, std::vector<Tensor>* in,
               const std::string& name, const F& edit) {
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (specs[t].name == name && specs[t].used) edit(&(*in)[t]);
  }
}

class LowPrecisionOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, LowPrecisionOps,
                         ::testing::ValuesIn(OpsAndTypes(&IsForwardOfFloat)),
                         OpAndTypeName);

TEST_P(LowPrecisionOps, AgreeWithTheReference) {
  // Depths around a quad and a pair; units around vectors and panels; one block
  // of steps and several; nothing.
  constexpr Dims kDims[] = {{1, 1, 1, 3},    {3, 3, 4, 2},   {2, 4, 3, 4},
                            {5, 5, 5, 12},   {17, 2, 33, 5}, {4, 16, 17, 13},
                            {33, 65, 63, 3}, {9, 33, 7, 60}, {2, 2000, 6, 1},
                            {2, 0, 5, 3},    {2, 5, 0, 3}};
  for (const Precision precision : kLowPrecisions) {
    for (const Dims& dims : kDims) {
      for (const int variant : kVariants) {
        EXPECT_EQ(RunAndCompare(FrozenCase(op(), dims, variant, precision)),
                  "");
        if (EnoughFailures()) return;
      }
    }
  }
}

// Rows and columns of zeros, of subnormal numbers, and of very different sizes.
TEST_P(LowPrecisionOps, RowsAndColumnsOfAllSizes) {
  const auto edit = [](const std::vector<TensorSpec>& specs,
                       std::vector<Tensor>* in) {
    constexpr float kSizes[] = {0, 1e-39f, 1e-31f, 1e-28f, 1e3f, 1e30f};
    constexpr std::size_t kRows = 6;
    for (const char* const rows : {"x", "h_prev"}) {
      EditInput(specs, in, rows, [&](Tensor* x) {
        const std::size_t steps = rows[0] == 'x' ? 3 : 1;
        const std::size_t width = x->size() / steps / kRows;
        for (std::size_t n = 0; n < kRows * width; ++n) {
          const float size = kSizes[n / width];
          (*x)[n] = (*x)[n].value * (steps == 1 && size > 1e3f ? 0 : size);
        }
        if (steps == 1) return;
        (*x)[7 * width + 3] = 1e-39f;  // in rows of ordinary numbers
        (*x)[8 * width + 4] = 1e4f;
      });
    }
    for (const char* const weights : {"w_x", "w_h"}) {
      EditInput(specs, in, weights, [&](Tensor* w) {
        const std::size_t columns = w->size() / (w->size() % 18 == 0 ? 18 : 20);
        for (std::size_t n = 0; n < w->size(); ++n) {
          const std::size_t column = n % columns;
          if (column < 4) (*w)[n] = (*w)[n].value * kSizes[column];
        }
      });
    }
  };
  for (const Precision precision : kLowPrecisions) {
    Case c = FrozenCase(op(), {6, 18, 20, 3}, kPlainOrder, precision);
    c.edit = edit;
    EXPECT_EQ(RunAndCompare(c), "");
  }
}

// One value of one row, or of one column, that is not finite.
TEST_P(LowPrecisionOps, NotFinite) {
  constexpr float kSpecials[] = {kNan, kInfinity, -kInfinity};
  int counter = 0;
  for (const Precision precision : kLowPrecisions) {
    for (const char* const name :
         {"x", "h_prev", "w_x", "w_h", "w_p", "w_c_h"}) {
      for (const int variant : {8, 12, 1}) {
        const float special = kSpecials[counter++ % 3];
        Case c = FrozenCase(op(), {5, 18, 20, 3}, variant, precision);
        c.edit = [&](const auto& specs, std::vector<Tensor>* in) {
          EditInput(specs, in, name, [&](Tensor* tensor) {
            (*tensor)[tensor->size() / 2] = special;
          });
        };
        EXPECT_EQ(RunAndCompare(c), "") << name;
      }
      ++counter;  // so that each variant gets each of them
    }
  }
}

// The largest sums of int8: with as many terms as int32 is said to hold.
TEST(LowPrecisionSums, Largest) {
  constexpr int kReluWithoutMask = 7;
  for (const int64_t depth : {int64_t{2000}, int64_t{133000}}) {
    Case c = FrozenCase(FindOp("RNN"), {2, depth, 2, 1}, kReluWithoutMask,
                        Precision::kInt8);
    c.edit = [&](const auto& specs, std::vector<Tensor>* in) {
      EditInput(specs, in, "w_x", [](Tensor* w) {
        for (std::size_t n = 0; n < w->size(); ++n) {
          (*w)[n] = n % 2 == 0 ? 0.5 : -0.25;
        }
      });
      EditInput(specs, in, "x", [&](Tensor* x) {
        for (int64_t k = 0; k < depth; ++k) {
          (*x)[k] = 1;
          (*x)[depth + k] = -1;
        }
      });
    };
    EXPECT_EQ(RunAndCompare(c), "");
    const Outcome outcome = RunCase(c);
    const auto h = [&](int at) {
      return Decode(Type::kFloat, outcome.outputs[0].data() + 4 * at);
    };
    EXPECT_GT(h(0), 0.4 * static_cast<double>(depth));
    EXPECT_GT(h(3), 0.2 * static_cast<double>(depth));
  }
}

// Every byte that was measured is written, the same on any number of threads.
TEST_P(LowPrecisionOps, PackedSameBits) {
  for (const Precision precision :
       {Precision::kStorage, Precision::kBFloat16, Precision::kInt8}) {
    for (const auto& [input, units] :
         {std::pair{0, 5}, {5, 0}, {1, 1}, {7, 33}, {64, 130}}) {
      for (const int variant : {8, 12}) {
        Case c = FrozenCase(op(), {1, input, units, 1}, variant, precision);
        c.weights.filled = 0;
        const Outcome alone = RunCase(c);
        EXPECT_EQ(alone.packed.empty(), units == 0);
        for (const int threads : {1, 8}) {
          c.weights.filled = 0xFF;
          c.host.num_threads = threads;
          EXPECT_TRUE(RunCase(c).packed == alone.packed) << Describe(c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace blockrnn::test
