// Tests what the tests of every op do not cover for stacks of layers: every
// combination of modes and options, published sums, half and bfloat16, dropout
// masks, the memory of many layers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"
#include "tests/cpp/rnn_stack_reference.h"
#include "tests/cpp/rnn_stack_variants.h"
#include "tests/cpp/test_host.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

using StackAndMode = std::tuple<OpAndType, RnnMode>;

std::string StackAndModeName(
    const ::testing::TestParamInfo<StackAndMode>& info) {
  constexpr const char* kModes[] = {"relu", "tanh", "lstm", "gru"};
  const auto& [tested, mode] = info.param;
  return std::string(tested.op->name) + "_" + Name(tested.type) + "_" +
         kModes[static_cast<int>(mode)];
}

class EveryStack : public ::testing::TestWithParam<StackAndMode> {};
INSTANTIATE_TEST_SUITE_P(
    EveryOp, EveryStack,
    ::testing::Combine(::testing::ValuesIn(OpsAndTypes(&AnyOp)),
                       ::testing::Values(RnnMode::kRelu, RnnMode::kTanh,
                                         RnnMode::kLstm, RnnMode::kGru)),
    StackAndModeName);

// Every combination, on a shape with lengths of 0 to T; in the short form half
// of them, in which any two options come in all ways.
TEST_P(EveryStack, AgreesWithTheReference) {
  const auto [tested, mode] = GetParam();
  Case c;
  c.op = tested.op;
  c.type = tested.type;
  c.dims = {7, 3, 5, 5};
  const std::vector<StackChoice> choices = AllStackChoices();
  for (int n = 0; n < static_cast<int>(choices.size()); ++n) {
    const StackChoice& choice = choices[n];
    if (choice.mode != mode) continue;
    const int odd = choice.projected + choice.dropout + choice.skip_input +
                    choice.lengths + choice.time_major + choice.directions;
    if (!FullLength() && odd % 2 != 0) continue;
    c.variant = kStackSamples + n;
    c.seed = n + 1;
    c.host.num_threads = 1 + n % 3;
    EXPECT_EQ(RunAndCompare(c), "");
    if (EnoughFailures()) return;
  }
}

std::vector<OpAndType> NarrowOps() {
  std::vector<OpAndType> all;
  for (const char* name : {"RNNStack", "RNNStackGrad"}) {
    for (const Type type : {Type::kHalf, Type::kBfloat16}) {
      if (IsTested(type)) all.push_back({&FindOp(name), type});
    }
  }
  return all;
}

class NarrowStacks : public OpTest {};
// Neither type may be under test.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NarrowStacks);
INSTANTIATE_TEST_SUITE_P(EveryOp, NarrowStacks,
                         ::testing::ValuesIn(NarrowOps()), OpAndTypeName);

// What passes between layers and to the backward pass is rounded, so for these
// types the largest error of a tensor is compared with its largest element.
TEST_P(NarrowStacks, AgreeWithTheReference) {
  Case c;
  c.op = &op();
  c.type = type();
  c.dims = {7, 3, 5, 4};
  for (int variant = 0; variant < kStackSamples; ++variant) {
    // Its slope depends on which side of 0 a rounded number is.
    if (StackChoiceOf(variant).mode == RnnMode::kRelu) continue;
    c.variant = variant;
    const Outcome outcome = RunCase(c);
    EXPECT_EQ(outcome.problem, "") << Describe(c);
    EXPECT_EQ(outcome.status, cpu::Status::kOk) << Describe(c);
    const auto specs = c.op->outputs(c.dims, variant);
    const std::vector<Tensor> want = Want(c);
    for (std::size_t t = 0; t < want.size(); ++t) {
      if (!specs[t].used) continue;
      double largest = 0, error = 0;
      for (std::size_t n = 0; n < want[t].size(); ++n) {
        const double got =
            Decode(type(), outcome.outputs[t].data() + n * SizeOf(type()));
        largest = std::max(largest, std::fabs(want[t][n].value));
        const double difference = std::fabs(got - want[t][n].value);
        // A NaN is larger than any error.
        if (!(difference <= error)) error = difference;
      }
      EXPECT_LE(error, RoundedBetween(type()) * largest)
          << Describe(c) << ": " << specs[t].name;
    }
  }
}

// One call in float, with everything that it needs.
struct Call {
  Call(const RnnGeometry& geometry, int64_t steps, int64_t batch, bool trains,
       float dropout = 0)
      : input(steps * batch * geometry.input, 1),
        h(geometry.layer_directions() * batch * geometry.proj, 1),
        c(geometry.layer_directions() * batch * geometry.units, 1),
        params(ParamLayout(geometry).size(), 1),
        output(steps * batch * geometry.OutputWidth()),
        output_h(h.size()),
        output_c(c.size()) {
    args.geometry = geometry;
    args.steps = steps;
    args.batch = batch;
    args.dropout = dropout;
    args.philox = Stack::Philox();
    args.input = input.data();
    args.input_h = h.data();
    args.input_c = c.data();
    args.params = params.data();
    args.output = output.data();
    args.output_h = output_h.data();
    args.output_c = output_c.data();
    if (!trains) return;
    reserve.resize(Layout().total(), 0xFF);
    args.reserve = reserve.data();
  }

  ReserveLayout Layout() const {
    return {args.geometry,           args.steps, args.batch,
            args.steps * args.batch, 4,          args.dropout > 0};
  }

  // Numbers from -most to most, the same in every call.
  void Randomize(float most) {
    Random random(1);
    for (auto* values : {&input, &h, &params}) {
      for (float& value : *values) {
        value = most * static_cast<float>(random.Signed());
      }
    }
  }

  // The scratch that it took from the host, in bytes.
  std::size_t Run(const HostOptions& options = {}) {
    TestHost host(options);
    const cpu::Status status =
        blockrnn_cpu_engine()->f32.Run(args, host.host());
    EXPECT_EQ(status, cpu::Status::kOk);
    host.FreeScratch();
    host.FinishClosures();
    EXPECT_EQ(host.Problems(), "");
    return host.allocated_bytes();
  }

  // Element n of the mask of a layer.
  bool Kept(int64_t layer, int64_t n) const {
    return (reserve[Layout().Mask(layer) + n / 8] >> (n % 8) & 1) != 0;
  }

  std::vector<float> input, h, c, params, output, output_h, output_c;
  std::vector<unsigned char> reserve;
  RnnStackForwardArgs<float> args;
};

RnnGeometry Geometry(RnnMode mode, int64_t layers, int64_t input,
                     int64_t units) {
  RnnGeometry g;
  g.mode = mode;
  g.layers = layers;
  g.input = input;
  g.units = units;
  g.proj = units;
  return g;
}

// Inputs, states and params all ones: the sums that tests of cuDNN expect of
// output, output_h and output_c.
TEST(RnnStack, GoldenSums) {
  struct Golden {
    RnnMode mode;
    int64_t layers, input, units, batch, steps;
    double want;
  };
  constexpr Golden kGolden[] = {
      {RnnMode::kLstm, 4, 200, 200, 20, 10, 231833.22},
      {RnnMode::kGru, 4, 200, 200, 20, 10, 56000},
      {RnnMode::kTanh, 4, 200, 200, 20, 10, 56000},
      {RnnMode::kRelu, 2, 4, 8, 4, 2, 130688},
  };
  for (const Golden& golden : kGolden) {
    Call call(Geometry(golden.mode, golden.layers, golden.input, golden.units),
              golden.steps, golden.batch, false);
    call.Run();
    double sum = 0;
    for (const float v : call.output) sum += v;
    for (const float v : call.output_h) sum += v;
    if (golden.mode == RnnMode::kLstm) {
      for (const float v : call.output_c) sum += v;
    }
    EXPECT_NEAR(sum, golden.want, kGoldenSum * golden.want)
        << "mode " << static_cast<int>(golden.mode);
  }
}

// Of 2^20 elements between two layers the expected share is dropped, by a mask
// that depends on the state of the random numbers.
TEST(RnnStack, DropoutRate) {
  constexpr int64_t kSteps = 128, kBatch = 128, kUnits = 64;
  constexpr int64_t kElements = kSteps * kBatch * kUnits;
  for (const float rate : {0.0625f, 0.5f, 0.9f, 1.0f}) {
    Call call(Geometry(RnnMode::kTanh, 2, 1, kUnits), kSteps, kBatch, true,
              rate);
    call.Run();
    int64_t dropped = kElements;
    const unsigned char* const mask = &call.reserve[call.Layout().Mask(0)];
    for (int64_t n = 0; n < kElements / 8; ++n) {
      dropped -= __builtin_popcount(mask[n]);
    }
    const double want = static_cast<double>(rate) * kElements;
    EXPECT_NEAR(static_cast<double>(dropped), want,
                CountTolerance(rate, kElements))
        << "rate " << rate;
  }
}

TEST(RnnStack, DropoutMasks) {
  // 300 elements: full vectors of numbers, full bytes, and a remainder.
  const RnnGeometry g = Geometry(RnnMode::kTanh, 3, 2, 10);
  const auto masks = [&](uint64_t offset) {
    Call call(g, 10, 3, true, 0.5f);
    call.args.philox = PhiloxSkip(call.args.philox, offset);
    call.Run();
    std::vector<bool> mask;
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t n = 0; n < 300; ++n) mask.push_back(call.Kept(layer, n));
    }
    return mask;
  };
  const std::vector<bool> first = masks(0);
  EXPECT_EQ(masks(0), first) << "one state, two masks";
  EXPECT_TRUE(
      !std::equal(first.begin(), first.begin() + 300, first.begin() + 300))
      << "two layers have one mask";
  // The next call begins where the counters of this one end.
  const std::vector<bool> next = masks(DropoutBlocks(g, 10, 3));
  EXPECT_TRUE(next != first) << "two calls have one mask";
  const std::vector<bool> second = masks(DropoutBlocks(g, 10, 3) / 2);
  EXPECT_TRUE(
      std::equal(second.begin(), second.begin() + 300, first.begin() + 300))
      << "the layers' counters are not one after another";
}

// A call determines every byte of its reserve space, gaps included.
TEST(RnnStack, WritesAllOfItsReserveSpace) {
  for (const RnnMode mode : {RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    const auto written = [&](unsigned char before) {
      Call call(Geometry(mode, 3, 3, 5), 4, 3, true, 0.5f);
      std::fill(call.reserve.begin(), call.reserve.end(), before);
      call.Run();
      return call.reserve;
    };
    EXPECT_TRUE(written(0) == written(0xFF)) << "a byte is not written";
  }
}

// The forward op writes the header of its reserve space, even of an empty one.
TEST(RnnStack, WritesItsHeader) {
  for (const int64_t batch : {3, 0}) {
    Call call(Geometry(RnnMode::kLstm, 2, 3, 5), 4, batch, true, 0.5f);
    call.Run();
    const ReserveHeader want =
        MakeReserveHeader(call.args, 4, ReserveDevice::kCpu);
    EXPECT_EQ(ReserveMismatch(call.reserve.data(),
                              static_cast<int64_t>(call.reserve.size()), want,
                              call.Layout()),
              "");
  }
}

// Scratch is that of one layer (and, in inference, of two outputs), and does
// not grow with the number of layers.
TEST(RnnStack, MemoryOfManyLayers) {
  for (const int64_t directions : {1, 2}) {
    for (const bool trains : {false, true}) {
      for (const RnnMode mode :
           {RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
        const auto bytes = [&](int64_t layers) {
          RnnGeometry g = Geometry(mode, layers, 40, 20);
          g.directions = directions;
          return Call(g, 9, 7, trains).Run();
        };
        const std::size_t few = bytes(3);
        const std::size_t many = bytes(30);
        EXPECT_EQ(many, few);
      }
    }
  }
}

// In inference nothing is stored but the outputs of two layers.
TEST(RnnStack, MemoryWithoutBackward) {
  constexpr int64_t kSteps = 300;
  for (const int64_t directions : {1, 2}) {
    for (const RnnMode mode : {RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
      RnnGeometry g = Geometry(mode, 4, 40, 20);
      g.directions = directions;
      const auto bytes = [&](bool trains) {
        Call call(g, kSteps, 7, trains);
        return call.Run() + call.reserve.size();
      };
      const std::size_t infers = bytes(false);
      const std::size_t trains = bytes(true);
      EXPECT_LT(infers * 4, trains * 3);
    }
  }
}

// Directions whose weights are too large to be read concurrently.
TEST(RnnStack, SequentialDirections) {
  constexpr int64_t kUnits = 1600;  // 2 · 10 MB of recurrent weights
  RnnGeometry g = Geometry(RnnMode::kTanh, 1, 3, kUnits);
  g.directions = 2;
  const auto output = [&](int num_threads, Pool pool) {
    Call call(g, 3, 2, false);
    call.Randomize(1.0F / 32);
    HostOptions options;
    options.num_threads = num_threads;
    options.pool = pool;
    call.Run(options);
    return call.output;
  };
  const std::vector<float> want = output(1, Pool::kThreads);
  for (const Pool pool : kPools) {
    EXPECT_TRUE(output(3, pool) == want) << "three threads, other bits";
  }
}

// Enough rows for the input GEMM to be fused into the step on one thread and
// too few on two, where the last hoisted GEMM has few rows.
TEST(RnnStack, RowsThatEndEarly) {
  // A wide x: blocks of 480 rows, and 16 are left.
  constexpr int64_t kInput = 140;
  std::vector<int64_t> lengths(8, 56);
  lengths[0] = 104;
  for (const RnnMode mode : {RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    const auto output = [&](int num_threads) {
      Call call(Geometry(mode, 1, kInput, 80), lengths[0], 8, false);
      call.args.lengths = lengths.data();
      call.Randomize(1.0F / 8);
      HostOptions options;
      options.num_threads = num_threads;
      call.Run(options);
      return call.output;
    };
    EXPECT_TRUE(output(2) == output(1)) << "two threads, other bits";
  }
}

// Without units there may be any number of layers.
TEST(RnnStack, LayersWithoutUnits) {
  constexpr int64_t kLayers = int64_t{1} << 61;
  Call call(Geometry(RnnMode::kLstm, kLayers, 3, 0), 2, 2, false);
  call.Run();
  RnnStackBackwardArgs<float> args;
  args.geometry = call.args.geometry;
  args.steps = 2;
  args.batch = 2;
  std::vector<float> input_grad(12, 1);
  args.input_backprop = input_grad.data();
  const TestHost host{HostOptions()};
  const cpu::Status status = blockrnn_cpu_engine()->f32.Run(args, host.host());
  EXPECT_EQ(status, cpu::Status::kOk);
  EXPECT_EQ(input_grad, std::vector<float>(12, 0));
}

}  // namespace
}  // namespace blockrnn::test
