// Tests the layout of params and of the reserve space, and the random numbers
// of dropout.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cc/core/dropout.h"
#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"

namespace blockrnn::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

RnnGeometry Geometry(RnnMode mode, int64_t layers, int64_t directions,
                     int64_t input, int64_t units) {
  return {mode, layers, directions, input, units, units};
}

std::vector<RnnGeometry> Geometries() {
  std::vector<RnnGeometry> all;
  for (const RnnMode mode :
       {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    for (int64_t layers = 1; layers <= 3; ++layers) {
      for (int64_t directions = 1; directions <= 2; ++directions) {
        all.push_back(Geometry(mode, layers, directions, 3, 5));
        all.push_back(Geometry(mode, layers, directions, 5, 5));
        all.back().skip_input = true;
      }
    }
  }
  const std::size_t without = all.size();
  for (std::size_t n = 0; n < without; ++n) {
    if (all[n].mode != RnnMode::kLstm) continue;
    all.push_back(all[n]);
    all.back().projected = true;
    all.back().proj = 2;
  }
  return all;
}

std::string Describe(const RnnGeometry& g) {
  return "mode " + std::to_string(static_cast<int>(g.mode)) + " L " +
         std::to_string(g.layers) + " D " + std::to_string(g.directions) +
         " P " + std::to_string(g.proj) + (g.skip_input ? " skip_input" : "");
}

// W of the gates, R of the gates and the projection of each layer direction,
// then its biases, with nothing between them.
TEST(Params, Order) {
  constexpr int64_t kGates[] = {1, 1, 4, 3};
  for (const RnnGeometry& g : Geometries()) {
    SCOPED_TRACE(Describe(g));
    const ParamLayout layout(g);
    const int64_t gates = kGates[static_cast<int>(g.mode)];
    int64_t end = 0, weight = 0, bias = 0;
    const auto expect = [&](const ParamLayout::Block& block, int64_t rows,
                            int64_t cols) {
      EXPECT_EQ(block.offset, end);
      EXPECT_EQ(block.rows, rows);
      EXPECT_EQ(block.cols, cols);
      end += rows * cols;
    };
    for (int64_t n = 0; n < g.layers * g.directions; ++n) {
      const bool lowest = n < g.directions;
      const int64_t width =
          lowest ? (g.skip_input ? 0 : g.input) : g.directions * g.proj;
      EXPECT_EQ(layout.Input(n).offset, end);
      EXPECT_EQ(layout.Input(n).rows, gates * g.units);
      for (int64_t gate = 0; gate < gates; ++gate) {
        expect(layout.Weight(weight++), g.units, width);
      }
      EXPECT_EQ(layout.Recurrent(n).offset, end);
      for (int64_t gate = 0; gate < gates; ++gate) {
        expect(layout.Weight(weight++), g.units, g.proj);
      }
      if (!g.projected) continue;
      EXPECT_EQ(layout.Projection(n).offset, end);
      expect(layout.Weight(weight++), g.proj, g.units);
    }
    for (int64_t n = 0; n < g.layers * g.directions; ++n) {
      EXPECT_EQ(layout.InputBias(n).offset, end);
      EXPECT_EQ(layout.RecurrentBias(n).offset, end + gates * g.units);
      for (int64_t gate = 0; gate < 2 * gates; ++gate) {
        expect(layout.Bias(bias++), g.units, 1);
      }
    }
    EXPECT_EQ(layout.num_weights(), weight);
    EXPECT_EQ(layout.num_biases(), bias);
    EXPECT_EQ(layout.size(), end);
    EXPECT_EQ(ParamLayout::Count(g), end);
  }
  EXPECT_EQ(ParamLayout::Count(Geometry(RnnMode::kGru, 0, 2, 3, 5)), 0);
  EXPECT_EQ(ParamLayout::Count(Geometry(RnnMode::kGru, 3, 2, 3, 0)), 0);
}

TEST(Params, Overflow) {
  const auto expect = [&](const RnnGeometry& g, bool fits) {
    EXPECT_EQ(ParamLayout::Count(g).has_value(), fits) << Describe(g);
  };
  constexpr RnnMode kLstm = RnnMode::kLstm;
  expect(Geometry(kLstm, 1, 1, 1, int64_t{1} << 62), false);
  expect(Geometry(kLstm, 1, 1, 1, int64_t{1} << 31), false);
  expect(Geometry(kLstm, 1, 1, 1, int64_t{1} << 30), true);
  expect(Geometry(kLstm, 1, 2, kMax, 1), false);
  expect(Geometry(kLstm, kMax, 2, 1, 1), false);
  expect(Geometry(kLstm, kMax, 1, 1, 1), false);
  expect(Geometry(kLstm, kMax / 2, 2, 0, 0), true);
  // (kMax - 2) · 1 + 3 is just too much.
  expect(Geometry(RnnMode::kTanh, 1, 1, kMax - 3, 1), true);
  expect(Geometry(RnnMode::kTanh, 1, 1, kMax - 2, 1), false);
}

// The vectors that the paper's authors publish with their code.
TEST(Philox, KnownAnswers) {
  struct Known {
    PhiloxState state;
    uint32_t want[4];
  };
  constexpr Known kKnown[] = {
      {{{0, 0}, {0, 0, 0, 0}},
       {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{0xffffffff, 0xffffffff},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0xa4093822, 0x299f31d0},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& known : kKnown) {
    const PhiloxNumbers<1> numbers = Philox4x32<1>(known.state);
    for (int n = 0; n < 4; ++n) {
      EXPECT_EQ(numbers.value[n][0], known.want[n]) << "number " << n;
    }
  }
}

// Many counters at a time give the same numbers as one at a time, also where
// any digit carries.
TEST(Philox, Counters) {
  constexpr int kCounters = 16;
  for (int carries = 0; carries <= 4; ++carries) {
    PhiloxState state = {{1, 2}, {3, 4, 5, 6}};
    for (int digit = 0; digit < carries; ++digit) {
      state.counter[digit] = 0xffffffffu;
    }
    state.counter[0] -= 5;
    const PhiloxNumbers<kCounters> all = Philox4x32<kCounters>(state);
    PhiloxState next = state;
    for (int n = 0; n < kCounters; ++n) {
      const PhiloxState advanced = PhiloxSkip(state, n);
      const PhiloxNumbers<1> one = Philox4x32<1>(next);
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(advanced.counter[k], next.counter[k]) << "digit";
        EXPECT_EQ(all.value[k][n], one.value[k][0]) << "number";
      }
      for (uint32_t& digit : next.counter) {
        if (++digit != 0) break;
      }
    }
  }
  const PhiloxState far = PhiloxSkip({{0, 0}, {1, 0, 0, 0}}, ~uint64_t{0});
  const uint32_t want[] = {0, 0, 1, 0};
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(far.counter[k], want[k]) << "digit";
  }
  EXPECT_EQ(DropoutBlocks(Geometry(RnnMode::kGru, 3, 2, 3, 5), 7, 3), 2 * 53);
  EXPECT_EQ(DropoutBlocks(Geometry(RnnMode::kGru, 1, 2, 3, 5), 7, 3), 0);
}

// Aligned, in order, without overlap, and as large as the formula says.
TEST(ReserveSpace, NoOverlaps) {
  for (const RnnGeometry& g : Geometries()) {
    for (const bool dropout : {false, true}) {
      constexpr int64_t kSteps = 7, kBatch = 3, kValid = 11, kSize = 4;
      const ReserveLayout layout(g, kSteps, kBatch, kValid, kSize, dropout);
      const std::string what = Describe(g);
      const int64_t elements = kSteps * kBatch * g.directions * g.proj;
      int64_t end = kReserveHeaderBytes;
      const auto expect = [&](int64_t at, int64_t bytes) {
        EXPECT_EQ(at, end) << what + "place";
        EXPECT_EQ(at % kReserveAlignment, 0) << what + "alignment";
        end = at + (bytes + 63) / 64 * 64;
      };
      const int arrays = ReserveLayout::Arrays(g.mode);
      for (int64_t n = 0; n < g.layer_directions(); ++n) {
        for (int k = 0; k < arrays; ++k) {
          expect(layout.Array(n, k), kValid * g.units * kSize);
        }
      }
      for (int64_t layer = 0; layer + 1 < g.layers; ++layer) {
        expect(layout.H(layer), elements * kSize);
      }
      for (int64_t layer = 0; layer + 1 < g.layers && dropout; ++layer) {
        expect(layout.Mask(layer), (elements + 7) / 8);
      }
      EXPECT_EQ(layout.total(), end) << what + "total";
      EXPECT_EQ(ReserveLayout::Bytes(g, kSteps, kBatch, kValid, kSize, dropout)
                    .value_or(-1),
                end)
          << what + "bytes";
    }
  }
  const RnnGeometry tanh = Geometry(RnnMode::kTanh, 1, 2, 3, 5);
  EXPECT_EQ(ReserveLayout(tanh, 7, 3, 21, 4, true).total(), kReserveHeaderBytes)
      << "bytes of an rnn of one layer";
}

TEST(ReserveSpace, Overflow) {
  const RnnGeometry g = Geometry(RnnMode::kLstm, 2, 1, 1, 1 << 10);
  const auto fits = [&](int64_t steps, int64_t batch) {
    return ReserveLayout::Bytes(g, steps, batch, steps * batch, 4, true)
        .has_value();
  };
  EXPECT_TRUE(fits(1 << 20, 1 << 10));
  EXPECT_FALSE(fits(int64_t{1} << 51, 1));
  EXPECT_FALSE(fits(int64_t{1} << 40, int64_t{1} << 22));
  EXPECT_FALSE(
      ReserveLayout::Bytes(g, int64_t{1} << 40, int64_t{1} << 40, 0, 4, false)
          .has_value());
}

constexpr int64_t kLengths[] = {2, 0, 5};

RnnStackForwardArgs<float> ReserveCall() {
  RnnStackForwardArgs<float> args;
  args.geometry = Geometry(RnnMode::kLstm, 2, 2, 3, 5);
  args.steps = 5;
  args.batch = 3;
  args.lengths = kLengths;
  args.dropout = 0.25f;
  return args;
}

// Of a call, as the forward op leaves it but for the arrays.
std::vector<char> MakeReserve(const RnnStackForwardArgs<float>& args) {
  const ReserveHeader header = MakeReserveHeader(args, 4, ReserveDevice::kCpu);
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             header.valid_rows, 4, args.dropout > 0);
  std::vector<char> reserve(layout.total());
  std::memcpy(reserve.data(), &header, sizeof(header));
  return reserve;
}

// A call that is given this reserve space reports a mismatch that has `word` in
// it.
void ExpectMismatch(const char* word, const std::vector<char>& reserve,
                    const RnnStackForwardArgs<float>& args,
                    int64_t element_size = 4) {
  const ReserveHeader header =
      MakeReserveHeader(args, element_size, ReserveDevice::kCpu);
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             header.valid_rows, element_size, args.dropout > 0);
  const std::string message = ReserveMismatch(
      reserve.data(), static_cast<int64_t>(reserve.size()), header, layout);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, word, message);
  EXPECT_EQ(message.empty(), *word == 0) << message;
}

// Everything that differs is reported by its name.
TEST(ReserveSpace, OfAnotherCall) {
  const std::vector<char> reserve = MakeReserve(ReserveCall());
  ExpectMismatch("", reserve, ReserveCall());
  const auto expect = [&](const char* word, const auto& change) {
    RnnStackForwardArgs<float> args = ReserveCall();
    change(&args);
    ExpectMismatch(word, reserve, args);
  };
  using Args = RnnStackForwardArgs<float>;
  expect("rnn_mode", [](Args* a) { a->geometry.mode = RnnMode::kGru; });
  expect("layers is 2, this call's 3", [](Args* a) { a->geometry.layers = 3; });
  expect("directions", [](Args* a) { a->geometry.directions = 1; });
  expect("input size", [](Args* a) { a->geometry.input = 4; });
  expect("units", [](Args* a) { a->geometry.units = 6; });
  expect("projection", [](Args* a) { a->geometry.projected = true; });
  expect("projected size", [](Args* a) { a->geometry.proj = 4; });
  expect("steps", [](Args* a) { a->steps = 6; });
  expect("batch", [](Args* a) { a->batch = 2; });
  expect("input_mode", [](Args* a) { a->geometry.skip_input = true; });
  expect("time_major", [](Args* a) { a->time_major = false; });
  expect("dropout", [](Args* a) { a->dropout = 0.5f; });
  expect("sum of sequence_lengths", [](Args* a) { a->lengths = nullptr; });
  expect("hash of sequence_lengths", [](Args* a) {
    static constexpr int64_t kOthers[] = {2, 1, 4};
    a->lengths = kOthers;
  });
  ExpectMismatch("element", reserve, ReserveCall(), 8);
  // The same lengths, given in two forms, count as the same.
  constexpr int64_t kAll[] = {5, 5, 5};
  RnnStackForwardArgs<float> full = ReserveCall();
  full.lengths = nullptr;
  const std::vector<char> of_full = MakeReserve(full);
  full.lengths = kAll;
  ExpectMismatch("", of_full, full);
}

TEST(ReserveSpace, NotAReserveSpace) {
  const std::vector<char> reserve = MakeReserve(ReserveCall());
  const auto resized = [&](std::size_t size) {
    std::vector<char> changed = reserve;
    changed.resize(size);
    return changed;
  };
  const auto with = [&](std::size_t at, char byte) {
    std::vector<char> changed = reserve;
    changed[at] = byte;
    return changed;
  };
  ExpectMismatch("0 bytes", {}, ReserveCall());
  ExpectMismatch("127 bytes, fewer", resized(127), ReserveCall());
  ExpectMismatch("bytes", resized(reserve.size() - 64), ReserveCall());
  ExpectMismatch("bytes", resized(reserve.size() + 64), ReserveCall());
  ExpectMismatch("mark", std::vector<char>(reserve.size()), ReserveCall());
  ExpectMismatch("version", with(8, 99), ReserveCall());
  ExpectMismatch("device", with(12, 2), ReserveCall());
}

}  // namespace
}  // namespace blockrnn::test
