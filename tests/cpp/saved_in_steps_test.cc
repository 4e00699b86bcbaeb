// Tests SequenceShape::saved_in_steps on the engine's interface: what is saved
// for backward is stored in the order of steps, and nothing else changes by a
// bit. In particular cs_grad, the gradient of the output cs, stays in the order
// of memory.

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/row_order.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "gtest/gtest.h"
#include "tests/cpp/test_host.h"

extern "C" const blockrnn::cpu::Engine* blockrnn_cpu_engine();

namespace blockrnn {
namespace {

constexpr int64_t kSteps = 6;
constexpr int64_t kBatch = 5;
constexpr int64_t kInput = 3;
constexpr int64_t kUnits = 7;
constexpr int64_t kRows = kSteps * kBatch;

using Array = std::vector<float>;

Array Random(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Array values(size);
  for (float& value : values) value = uniform(random);
  return values;
}

// Unwritten elements are NaN, which equals nothing.
Array Unwritten(int64_t size) {
  return Array(size, std::numeric_limits<float>::quiet_NaN());
}

struct Layout {
  const char* name;
  bool time_major;
  bool backwards;
  bool lengths;
  bool mask;
};

class SavedInSteps : public testing::TestWithParam<Layout> {
 protected:
  SavedInSteps() {
    const Layout& layout = GetParam();
    shape_.steps = kSteps;
    shape_.batch = kBatch;
    shape_.input = kInput;
    shape_.units = kUnits;
    shape_.time_major = layout.time_major;
    shape_.backwards = layout.backwards;
    shape_.lengths = layout.lengths ? lengths_ : nullptr;
    if (!layout.mask) return;
    mask_.assign(kRows, 1);
    for (const int64_t t : {0, 1, 3, 5}) mask_[shape_.TimeRow(t, 1)] = 0;
    mask_[shape_.TimeRow(5, 3)] = 0;
    mask_[shape_.TimeRow(2, 4)] = 0;
  }

  const uint8_t* mask() const { return mask_.empty() ? nullptr : mask_.data(); }

  // Compares the active rows of an array that was saved in the order of memory
  // with those saved in the order of steps, which has no other rows.
  void ExpectSameSaved(const Array& in_memory, const Array& in_steps,
                       const char* name) const {
    SequenceShape shape = shape_;
    shape.saved_in_steps = true;
    std::vector<int64_t> storage(RowOrderStorage(shape, mask()));
    const RowOrder order = MakeRowOrder(shape, mask(), storage.data());
    for (int64_t step = 0; step < order.longest_steps; ++step) {
      for (int64_t b = 0; b < order.ActiveRows(step); ++b) {
        const int64_t saved_row = order.SavedRow(step, b) * kUnits;
        const int64_t memory_row = order.MemoryRow(step, b) * kUnits;
        for (int64_t unit = 0; unit < kUnits; ++unit) {
          ASSERT_EQ(in_steps[saved_row + unit], in_memory[memory_row + unit])
              << name << " of step " << step << ", row " << order.BatchRow(b);
        }
      }
    }
  }

  template <class Args>
  static void Run(const Args& args) {
    test::TestHost host({});
    ASSERT_EQ(blockrnn_cpu_engine()->f32.Run(args, host.host()),
              cpu::Status::kOk);
    host.FreeScratch();
    host.FinishClosures();
    EXPECT_EQ(host.Problems(), "");
  }

  SequenceShape shape_;

 private:
  const int64_t lengths_[kBatch] = {4, 6, 0, 6, 3};
  std::vector<uint8_t> mask_;
};

INSTANTIATE_TEST_SUITE_P(
    EveryLayout, SavedInSteps,
    testing::Values(Layout{"Plain", true, false, false, false},
                    Layout{"Lengths", true, false, true, false},
                    Layout{"LengthsBackwards", true, true, true, false},
                    Layout{"LengthsBatchMajor", false, false, true, false},
                    Layout{"Mask", true, false, false, true},
                    Layout{"All", false, true, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

struct Lstm {
  Array i = Unwritten(kRows * kUnits), cs = i, f = i, o = i, ci = i, h = i;
  Array cs_last = Unwritten(kBatch * kUnits), h_last = cs_last;
  Array x_grad = Unwritten(kRows * kInput);
  Array cs_prev_grad = Unwritten(kBatch * kUnits), h_prev_grad = cs_prev_grad;
  Array w_x_grad = Unwritten(kInput * 4 * kUnits);
  Array w_h_grad = Unwritten(kUnits * 4 * kUnits);
  Array b_grad = Unwritten(4 * kUnits);
};

TEST_P(SavedInSteps, ChangesNoOtherBitOfAnLstm) {
  const Array x = Random(kRows * kInput, 1);
  const Array cs_prev = Random(kBatch * kUnits, 2);
  const Array h_prev = Random(kBatch * kUnits, 3);
  const Array w_x = Random(kInput * 4 * kUnits, 4);
  const Array w_h = Random(kUnits * 4 * kUnits, 5);
  const Array bias = Random(4 * kUnits, 6);
  const Array cs_grad = Random(kRows * kUnits, 7);
  const Array h_grad = Random(kRows * kUnits, 8);
  const auto run = [&](bool saved_in_steps) {
    Lstm l;
    LstmSequenceForwardArgs<float> forward;
    forward.shape = shape_;
    forward.shape.saved_in_steps = saved_in_steps;
    forward.mask = mask();
    forward.x = x.data();
    forward.cs_prev = cs_prev.data();
    forward.h_prev = h_prev.data();
    forward.w_x = w_x.data();
    forward.w_h = w_h.data();
    forward.b = bias.data();
    forward.i = l.i.data();
    forward.cs = l.cs.data();
    forward.f = l.f.data();
    forward.o = l.o.data();
    forward.ci = l.ci.data();
    forward.h = l.h.data();
    forward.cs_last = l.cs_last.data();
    forward.h_last = l.h_last.data();
    Run(forward);
    LstmSequenceBackwardArgs<float> backward;
    backward.shape = forward.shape;
    backward.mask = mask();
    backward.x = x.data();
    backward.cs_prev = cs_prev.data();
    backward.h_prev = h_prev.data();
    backward.w_x = w_x.data();
    backward.w_h = w_h.data();
    backward.i = l.i.data();
    backward.cs = l.cs.data();
    backward.f = l.f.data();
    backward.o = l.o.data();
    backward.ci = l.ci.data();
    backward.h = l.h.data();
    backward.cs_grad = cs_grad.data();
    backward.h_grad = h_grad.data();
    backward.x_grad = l.x_grad.data();
    backward.cs_prev_grad = l.cs_prev_grad.data();
    backward.h_prev_grad = l.h_prev_grad.data();
    backward.w_x_grad = l.w_x_grad.data();
    backward.w_h_grad = l.w_h_grad.data();
    backward.b_grad = l.b_grad.data();
    Run(backward);
    return l;
  };
  const Lstm want = run(false);
  const Lstm got = run(true);
  EXPECT_EQ(got.h, want.h);
  EXPECT_EQ(got.cs_last, want.cs_last);
  EXPECT_EQ(got.h_last, want.h_last);
  ExpectSameSaved(want.i, got.i, "i");
  ExpectSameSaved(want.cs, got.cs, "cs");
  ExpectSameSaved(want.f, got.f, "f");
  ExpectSameSaved(want.o, got.o, "o");
  ExpectSameSaved(want.ci, got.ci, "ci");
  EXPECT_EQ(got.x_grad, want.x_grad);
  EXPECT_EQ(got.cs_prev_grad, want.cs_prev_grad);
  EXPECT_EQ(got.h_prev_grad, want.h_prev_grad);
  EXPECT_EQ(got.w_x_grad, want.w_x_grad);
  EXPECT_EQ(got.w_h_grad, want.w_h_grad);
  EXPECT_EQ(got.b_grad, want.b_grad);
}

struct Gru {
  Array r = Unwritten(kRows * kUnits), u = r, c = r, hc = r, h = r;
  Array h_last = Unwritten(kBatch * kUnits);
  Array x_grad = Unwritten(kRows * kInput);
  Array h_prev_grad = Unwritten(kBatch * kUnits);
  Array w_x_grad = Unwritten(kInput * 3 * kUnits);
  Array w_h_grad = Unwritten(kUnits * 3 * kUnits);
  Array b_x_grad = Unwritten(3 * kUnits), b_h_grad = b_x_grad;
};

TEST_P(SavedInSteps, ChangesNoOtherBitOfAGru) {
  const Array x = Random(kRows * kInput, 1);
  const Array h_prev = Random(kBatch * kUnits, 2);
  const Array w_x = Random(kInput * 3 * kUnits, 3);
  const Array w_h = Random(kUnits * 3 * kUnits, 4);
  const Array b_x = Random(3 * kUnits, 5);
  const Array b_h = Random(3 * kUnits, 6);
  const Array h_grad = Random(kRows * kUnits, 7);
  const auto run = [&](bool saved_in_steps) {
    Gru g;
    GruAfterSequenceForwardArgs<float> forward;
    forward.shape = shape_;
    forward.shape.saved_in_steps = saved_in_steps;
    forward.mask = mask();
    forward.x = x.data();
    forward.h_prev = h_prev.data();
    forward.w_x = w_x.data();
    forward.w_h = w_h.data();
    forward.b_x = b_x.data();
    forward.b_h = b_h.data();
    forward.r = g.r.data();
    forward.u = g.u.data();
    forward.c = g.c.data();
    forward.hc = g.hc.data();
    forward.h = g.h.data();
    forward.h_last = g.h_last.data();
    Run(forward);
    GruAfterSequenceBackwardArgs<float> backward;
    backward.shape = forward.shape;
    backward.mask = mask();
    backward.x = x.data();
    backward.h_prev = h_prev.data();
    backward.w_x = w_x.data();
    backward.w_h = w_h.data();
    backward.r = g.r.data();
    backward.u = g.u.data();
    backward.c = g.c.data();
    backward.hc = g.hc.data();
    backward.h = g.h.data();
    backward.h_grad = h_grad.data();
    backward.x_grad = g.x_grad.data();
    backward.h_prev_grad = g.h_prev_grad.data();
    backward.w_x_grad = g.w_x_grad.data();
    backward.w_h_grad = g.w_h_grad.data();
    backward.b_x_grad = g.b_x_grad.data();
    backward.b_h_grad = g.b_h_grad.data();
    Run(backward);
    return g;
  };
  const Gru want = run(false);
  const Gru got = run(true);
  EXPECT_EQ(got.h, want.h);
  EXPECT_EQ(got.h_last, want.h_last);
  ExpectSameSaved(want.r, got.r, "r");
  ExpectSameSaved(want.u, got.u, "u");
  ExpectSameSaved(want.c, got.c, "c");
  ExpectSameSaved(want.hc, got.hc, "hc");
  EXPECT_EQ(got.x_grad, want.x_grad);
  EXPECT_EQ(got.h_prev_grad, want.h_prev_grad);
  EXPECT_EQ(got.w_x_grad, want.w_x_grad);
  EXPECT_EQ(got.w_h_grad, want.w_h_grad);
  EXPECT_EQ(got.b_x_grad, want.b_x_grad);
  EXPECT_EQ(got.b_h_grad, want.b_h_grad);
}

}  // namespace
}  // namespace blockrnn
