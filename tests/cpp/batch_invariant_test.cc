// Tests calls whose rows have the bits of calls with those rows alone.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/cpp/float_layer.h"

namespace blockrnn::test {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The first `batch` rows of a call.
LayerCall FirstRows(const FloatLayer& layer, const LayerCall& all,
                    int64_t batch) {
  LayerCall first(layer, all.steps, batch);
  first.x.clear();
  for (int64_t t = 0; t < all.steps; ++t) {
    const auto from = all.x.begin() + t * all.batch * layer.input;
    first.x.insert(first.x.end(), from, from + batch * layer.input);
  }
  first.h_prev.assign(all.h_prev.begin(),
                      all.h_prev.begin() + batch * layer.Width());
  first.cs_prev.assign(all.cs_prev.begin(),
                       all.cs_prev.begin() + batch * layer.units);
  return first;
}

// For 1 to 20 rows. run(&call, threads, batch_invariant).
template <class Run>
void ExpectRowsAlone(const FloatLayer& layer, int64_t steps, const Run& run) {
  constexpr int64_t kRows = 20;
  const LayerCall all(layer, steps, kRows);
  std::vector<LayerCall> alone;
  for (int64_t b = 0; b < kRows; ++b) {
    alone.push_back(all.Row(layer, b));
    run(&alone.back(), 1, b % 2 == 0);
  }
  for (int64_t batch = 1; batch <= kRows; ++batch) {
    LayerCall together = FirstRows(layer, all, batch);
    run(&together, batch % 3 == 0 ? 3 : 1, true);
    for (int64_t b = 0; b < batch; ++b) {
      EXPECT_TRUE(
          SameBits(RowOf(together.h, together, b, layer.Width()), alone[b].h) &&
          SameBits(RowOf(together.cs, together, b, layer.units), alone[b].cs))
          << Name(layer.cell) << " H=" << layer.units << " T=" << steps
          << " row " << b << " of " << batch;
    }
  }
}

class BatchInvariant : public ::testing::TestWithParam<Cell> {};
INSTANTIATE_TEST_SUITE_P(Cells, BatchInvariant, ::testing::ValuesIn(kCells));

TEST_P(BatchInvariant, Frozen) {
  for (const Precision precision : kPrecisions) {
    for (const int64_t units : {5, 37}) {
      const FloatLayer layer(GetParam(), 19, units);
      const FrozenFloatLayer frozen(layer, precision);
      for (const int64_t steps : {1, 5, 20}) {
        SCOPED_TRACE(static_cast<int>(precision));
        ExpectRowsAlone(
            layer, steps,
            [&](LayerCall* call, int threads, bool batch_invariant) {
              frozen.Run(call, threads, batch_invariant);
            });
      }
    }
  }
}

TEST_P(BatchInvariant, NotFrozen) {
  const FloatLayer layer(GetParam(), 19, 37);
  for (const int64_t steps : {1, 5, 20}) {
    ExpectRowsAlone(layer, steps,
                    [&](LayerCall* call, int threads, bool batch_invariant) {
                      RunInPlace(layer, call, threads, batch_invariant);
                    });
  }
}

}  // namespace
}  // namespace blockrnn::test
