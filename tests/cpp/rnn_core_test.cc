// What stands where: params, the reserve space, the random numbers of dropout.

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cc/core/param_layout.h"
#include "cc/core/philox.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_geometry.h"
#include "cc/core/rnn_stack_args.h"
#include "tests/cpp/check.h"

namespace blockrnn::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

void ExpectEqual(const std::string& what, int64_t got, int64_t want,
                 Failures* failures) {
  failures->Expect(got == want, what + " is " + std::to_string(got) +
                                    ", must be " + std::to_string(want));
}

RnnGeometry Geometry(RnnMode mode, int64_t layers, int64_t directions,
                     int64_t input, int64_t units) {
  RnnGeometry g;
  g.mode = mode;
  g.layers = layers;
  g.directions = directions;
  g.input = input;
  g.units = units;
  g.proj = units;
  return g;
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
         " P " + std::to_string(g.proj) +
         (g.skip_input ? " skip_input: " : ": ");
}

// The canonical blocks stand one after another, with nothing between them.
void ParamsHaveNoGaps(Failures* failures) {
  for (const RnnGeometry& g : Geometries()) {
    const ParamLayout layout(g);
    const std::string what = Describe(g);
    int64_t end = 0;
    for (int64_t n = 0; n < layout.num_weights(); ++n) {
      const ParamLayout::Block block = layout.Weight(n);
      ExpectEqual(what + "offset of a weight", block.offset, end, failures);
      end += block.rows * block.cols;
    }
    for (int64_t n = 0; n < layout.num_biases(); ++n) {
      const ParamLayout::Block block = layout.Bias(n);
      ExpectEqual(what + "offset of a bias", block.offset, end, failures);
      ExpectEqual(what + "rows of a bias", block.rows, g.units, failures);
      ExpectEqual(what + "columns of a bias", block.cols, 1, failures);
      end += block.rows;
    }
    ExpectEqual(what + "size", layout.size(), end, failures);
    ExpectEqual(what + "count", ParamLayout::Count(g).value_or(-1), end,
                failures);
  }
}

// W of the gates, R of the gates, the projection, with their widths.
void ParamsAreInOrder(Failures* failures) {
  for (const RnnGeometry& g : Geometries()) {
    const ParamLayout layout(g);
    const std::string what = Describe(g);
    const int gates[] = {1, 1, 4, 3};
    const int64_t count = gates[static_cast<int>(g.mode)];
    ExpectEqual(what + "weights", layout.num_weights(),
                g.layers * g.directions * (2 * count + (g.projected ? 1 : 0)),
                failures);
    ExpectEqual(what + "biases", layout.num_biases(),
                g.layers * g.directions * 2 * count, failures);
    int64_t weight = 0;
    int64_t bias = 0;
    const auto expect = [&](int64_t rows, int64_t cols) {
      const ParamLayout::Block block = layout.Weight(weight++);
      ExpectEqual(what + "rows", block.rows, rows, failures);
      ExpectEqual(what + "columns", block.cols, cols, failures);
    };
    for (int64_t n = 0; n < g.layers * g.directions; ++n) {
      const bool lowest = n < g.directions;
      const int64_t width =
          lowest ? (g.skip_input ? 0 : g.input) : g.directions * g.proj;
      ExpectEqual(what + "W of all gates", layout.Input(n).offset,
                  layout.Weight(weight).offset, failures);
      for (int64_t gate = 0; gate < count; ++gate) expect(g.units, width);
      ExpectEqual(what + "rows of all gates", layout.Input(n).rows,
                  count * g.units, failures);
      ExpectEqual(what + "R of all gates", layout.Recurrent(n).offset,
                  layout.Weight(weight).offset, failures);
      for (int64_t gate = 0; gate < count; ++gate) expect(g.units, g.proj);
      if (g.projected) {
        ExpectEqual(what + "projection", layout.Projection(n).offset,
                    layout.Weight(weight).offset, failures);
        expect(g.proj, g.units);
      }
      ExpectEqual(what + "bW", layout.InputBias(n).offset,
                  layout.Bias(bias).offset, failures);
      ExpectEqual(what + "bR", layout.RecurrentBias(n).offset,
                  layout.Bias(bias + count).offset, failures);
      bias += 2 * count;
    }
  }
}

// Sizes as cuDNN's users know them: 4(HI + H² + 2H) and so on.
void ParamsHaveKnownSizes(Failures* failures) {
  const auto expect = [&](const RnnGeometry& g, int64_t want) {
    ExpectEqual(Describe(g) + "size", ParamLayout::Count(g).value_or(-1), want,
                failures);
  };
  expect(Geometry(RnnMode::kLstm, 4, 1, 200, 200), 1286400);
  expect(Geometry(RnnMode::kLstm, 1, 2, 3, 5), 2 * (4 * (15 + 25) + 40));
  expect(Geometry(RnnMode::kGru, 2, 2, 3, 5),
         2 * (3 * (15 + 25) + 30) + 2 * (3 * (50 + 25) + 30));
  expect(Geometry(RnnMode::kTanh, 2, 1, 3, 5), 15 + 25 + 25 + 25 + 2 * 10);
  RnnGeometry projected = Geometry(RnnMode::kLstm, 2, 2, 3, 5);
  projected.projected = true;
  projected.proj = 2;
  expect(projected, 2 * (60 + 40 + 10 + 40) + 2 * (80 + 40 + 10 + 40));
  RnnGeometry skip = Geometry(RnnMode::kGru, 1, 1, 5, 5);
  skip.skip_input = true;
  expect(skip, 75 + 30);
  expect(Geometry(RnnMode::kGru, 0, 2, 3, 5), 0);
  expect(Geometry(RnnMode::kGru, 3, 2, 3, 0), 0);
}

void ParamsOverflow(Failures* failures) {
  const auto expect = [&](const RnnGeometry& g, bool fits) {
    failures->Expect(ParamLayout::Count(g).has_value() == fits,
                     Describe(g) + (fits ? "must fit" : "must overflow"));
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
void PhiloxKnownAnswers(Failures* failures) {
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
      ExpectEqual("number " + std::to_string(n), numbers.value[n][0],
                  known.want[n], failures);
    }
  }
}

// Many counters at a time are the same as one at a time, over every carry.
void PhiloxCounters(Failures* failures) {
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
      const PhiloxState skipped = PhiloxSkip(state, n);
      const PhiloxNumbers<1> one = Philox4x32<1>(next);
      for (int k = 0; k < 4; ++k) {
        ExpectEqual("digit", skipped.counter[k], next.counter[k], failures);
        ExpectEqual("number", all.value[k][n], one.value[k][0], failures);
      }
      for (uint32_t& digit : next.counter) {
        if (++digit != 0) break;
      }
    }
  }
  const PhiloxState far = PhiloxSkip({{0, 0}, {1, 0, 0, 0}}, ~uint64_t{0});
  const uint32_t want[] = {0, 0, 1, 0};
  for (int k = 0; k < 4; ++k) {
    ExpectEqual("digit", far.counter[k], want[k], failures);
  }
}

void DropoutCounters(Failures* failures) {
  RnnGeometry g = Geometry(RnnMode::kGru, 3, 2, 3, 5);
  ExpectEqual("counters", DropoutBlocks(g, 7, 3), 2 * 53, failures);
  g.layers = 1;
  ExpectEqual("counters", DropoutBlocks(g, 7, 3), 0, failures);
}

// Aligned, in order, without overlap, and as large as the formula says.
void ReserveHasNoOverlaps(Failures* failures) {
  for (const RnnGeometry& g : Geometries()) {
    for (const bool dropout : {false, true}) {
      constexpr int64_t kSteps = 7, kBatch = 3, kValid = 11, kSize = 4;
      const ReserveLayout layout(g, kSteps, kBatch, kValid, kSize, dropout);
      const std::string what = Describe(g);
      const int64_t elements = kSteps * kBatch * g.directions * g.proj;
      int64_t end = kReserveHeaderBytes;
      const auto expect = [&](int64_t at, int64_t bytes) {
        ExpectEqual(what + "place", at, end, failures);
        ExpectEqual(what + "alignment", at % kReserveAlignment, 0, failures);
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
      ExpectEqual(what + "total", layout.total(), end, failures);
      ExpectEqual(
          what + "bytes",
          ReserveLayout::Bytes(g, kSteps, kBatch, kValid, kSize, dropout)
              .value_or(-1),
          end, failures);
    }
  }
  const RnnGeometry tanh = Geometry(RnnMode::kTanh, 1, 2, 3, 5);
  ExpectEqual("bytes of an rnn of one layer",
              ReserveLayout(tanh, 7, 3, 21, 4, true).total(),
              kReserveHeaderBytes, failures);
}

void ReserveOverflows(Failures* failures) {
  const RnnGeometry g = Geometry(RnnMode::kLstm, 2, 1, 1, 1 << 10);
  const auto fits = [&](int64_t steps, int64_t batch) {
    return ReserveLayout::Bytes(g, steps, batch, steps * batch, 4, true)
        .has_value();
  };
  failures->Expect(fits(1 << 20, 1 << 10), "must fit");
  failures->Expect(!fits(int64_t{1} << 51, 1), "must overflow");
  failures->Expect(!fits(int64_t{1} << 40, int64_t{1} << 22), "must overflow");
  failures->Expect(
      !ReserveLayout::Bytes(g, int64_t{1} << 40, int64_t{1} << 40, 0, 4, false)
           .has_value(),
      "must overflow");
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

std::string Mismatch(const std::vector<char>& reserve,
                     const RnnStackForwardArgs<float>& args,
                     int64_t element_size = 4) {
  const ReserveHeader header =
      MakeReserveHeader(args, element_size, ReserveDevice::kCpu);
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             header.valid_rows, element_size, args.dropout > 0);
  return ReserveMismatch(reserve.data(), static_cast<int64_t>(reserve.size()),
                         header, layout);
}

std::vector<char> MakeReserve(const RnnStackForwardArgs<float>& args) {
  const ReserveHeader header = MakeReserveHeader(args, 4, ReserveDevice::kCpu);
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             header.valid_rows, 4, args.dropout > 0);
  std::vector<char> reserve(layout.total());
  std::memcpy(reserve.data(), &header, sizeof(header));
  return reserve;
}

void ExpectTold(const std::string& told, const std::string& word,
                Failures* failures) {
  failures->Expect(told.find(word) != std::string::npos,
                   "\"" + told + "\" does not say \"" + word + "\"");
}

// Each thing that differs is told by its name.
void ReserveOfAnotherCall(Failures* failures) {
  const std::vector<char> reserve = MakeReserve(ReserveCall());
  failures->Add(Mismatch(reserve, ReserveCall()));
  const auto expect = [&](const char* word, const auto& change) {
    RnnStackForwardArgs<float> args = ReserveCall();
    change(&args);
    ExpectTold(Mismatch(reserve, args), word, failures);
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
  ExpectTold(Mismatch(reserve, ReserveCall(), 8), "element", failures);
}

void ReserveThatIsNone(Failures* failures) {
  const std::vector<char> reserve = MakeReserve(ReserveCall());
  const auto expect = [&](const char* word, std::vector<char> changed) {
    ExpectTold(Mismatch(changed, ReserveCall()), word, failures);
  };
  const auto with = [&](std::size_t at, char byte) {
    std::vector<char> changed = reserve;
    changed[at] = byte;
    return changed;
  };
  expect("0 bytes", {});
  expect("127 bytes", {reserve.begin(), reserve.begin() + 127});
  expect("bytes", {reserve.begin(), reserve.end() - 64});
  std::vector<char> longer = reserve;
  longer.resize(reserve.size() + 64);
  expect("bytes", longer);
  expect("mark", std::vector<char>(reserve.size()));
  expect("version", with(8, 99));
  expect("device", with(12, 2));
}

// The same lengths said in two ways are the same.
void ReserveOfFullLengths(Failures* failures) {
  constexpr int64_t kAll[] = {5, 5, 5};
  RnnStackForwardArgs<float> args = ReserveCall();
  args.lengths = nullptr;
  const std::vector<char> reserve = MakeReserve(args);
  args.lengths = kAll;
  failures->Add(Mismatch(reserve, args));
}

const bool kTests[] = {
    AddTest("params/no_gaps", &ParamsHaveNoGaps),
    AddTest("params/order", &ParamsAreInOrder),
    AddTest("params/known_sizes", &ParamsHaveKnownSizes),
    AddTest("params/overflow", &ParamsOverflow),
    AddTest("philox/known_answers", &PhiloxKnownAnswers),
    AddTest("philox/counters", &PhiloxCounters),
    AddTest("philox/dropout_counters", &DropoutCounters),
    AddTest("reserve_space/no_overlaps", &ReserveHasNoOverlaps),
    AddTest("reserve_space/overflow", &ReserveOverflows),
    AddTest("reserve_space/of_another_call", &ReserveOfAnotherCall),
    AddTest("reserve_space/that_is_none", &ReserveThatIsNone),
    AddTest("reserve_space/full_lengths", &ReserveOfFullLengths),
};

}  // namespace
}  // namespace blockrnn::test
