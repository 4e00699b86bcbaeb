// Tests calls whose rows have the bits of calls with those rows alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

class BatchInvariant : public OpTest {
 protected:
  // A call of some rows of another one, time-major.
  static Case RowsOf(const Case& all, int64_t first, int64_t count) {
    Case c = all;
    c.dims.batch = count;
    c.edit = [=](const std::vector<TensorSpec>& specs,
                 std::vector<Tensor>* in) {
      const std::vector<Tensor> whole = DrawInputs(all);
      for (std::size_t t = 0; t < specs.size(); ++t) {
        const bool x = specs[t].name == "x";
        if (!x && specs[t].name.find("_prev") == std::string::npos) {
          if (specs[t].used) (*in)[t] = whole[t];
          continue;
        }
        const int64_t steps = x ? c.dims.steps : 1;
        const int64_t width = specs[t].count / steps / count;
        for (int64_t step = 0; step < steps; ++step) {
          std::copy_n(
              whole[t].begin() + (step * all.dims.batch + first) * width,
              count * width, (*in)[t].begin() + step * count * width);
        }
      }
    };
    return c;
  }

  // The bytes of row b in all outputs that are sequences or states.
  static std::vector<unsigned char> RowOf(const Case& c, const Outcome& outcome,
                                          int64_t b) {
    std::vector<unsigned char> row;
    const auto specs = c.op->outputs(c.dims, c.variant);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      const bool last = specs[t].name.find("_last") != std::string::npos;
      const auto& bytes = outcome.outputs[t];
      const std::size_t rows = c.dims.batch * (last ? 1 : c.dims.steps);
      const std::size_t width = bytes.size() / rows;
      for (std::size_t at = b; at < rows; at += c.dims.batch) {
        row.insert(row.end(), bytes.begin() + at * width,
                   bytes.begin() + (at + 1) * width);
      }
    }
    return row;
  }

  // For 1 to 20 rows.
  void ExpectRowsAlone(Case all) const {
    constexpr int64_t kRows = 20;
    all.dims.batch = kRows;
    std::vector<std::vector<unsigned char>> alone;
    for (int64_t b = 0; b < kRows; ++b) {
      Case c = RowsOf(all, b, 1);
      c.batch_invariant = b % 2 == 0;
      alone.push_back(RowOf(c, RunCase(c), 0));
    }
    for (int64_t batch = 1; batch <= kRows; ++batch) {
      Case c = RowsOf(all, 0, batch);
      c.batch_invariant = true;
      c.host.num_threads = batch % 3 == 0 ? 3 : 1;
      const Outcome together = RunCase(c);
      for (int64_t b = 0; b < batch; ++b) {
        EXPECT_TRUE(RowOf(c, together, b) == alone[b])
            << Describe(c) << " row " << b;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(ForwardSequences, BatchInvariant,
                         ::testing::ValuesIn(OpsAndTypes(&IsForwardOfFloat)),
                         OpAndTypeName);

TEST_P(BatchInvariant, Frozen) {
  for (const Precision precision :
       {Precision::kStorage, Precision::kBFloat16, Precision::kInt8}) {
    for (const int64_t steps : {1, 5, 20}) {
      Case c = MakeCase({0, 19, 37, steps}, kPlainOrder);
      c.weights = {WeightForm::kFrozen, precision};
      ExpectRowsAlone(c);
      c.dims.units = 5;
      if (steps == 5) ExpectRowsAlone(c);
    }
  }
}

TEST_P(BatchInvariant, NotFrozen) {
  for (const int64_t steps : {1, 5, 20}) {
    ExpectRowsAlone(MakeCase({0, 19, 37, steps}, kPlainOrder));
  }
}

}  // namespace
}  // namespace blockrnn::test
