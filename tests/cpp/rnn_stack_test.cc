// Tests what the tests of every op do not cover for stacks of layers: their
// numbers without a reference in C++ (tests/cudnn has one), dropout masks, the
// reserve space, the memory of many layers, shapes whose work is split in ways
// of their own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/core/dropout.h"
#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/test_host.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

constexpr RnnMode kSmallerModes[] = {RnnMode::kTanh, RnnMode::kLstm,
                                     RnnMode::kGru};

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
    // A carry propagates through all digits of the counter within a mask.
    args.philox = {{0x12345678u, 0x9abcdef0u},
                   {0xfffffffau, 0xffffffffu, 0xffffffffu, 7u}};
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
  std::size_t Run(int num_threads = 1, Pool pool = Pool::kThreads) {
    HostOptions options;
    options.num_threads = num_threads;
    options.pool = pool;
    TestHost host(options);
    const cpu::Status status =
        blockrnn_cpu_engine()->f32.Run(args, host.host());
    EXPECT_EQ(status, cpu::Status::kOk);
    host.FreeScratch();
    host.FinishClosures();
    EXPECT_EQ(host.Problems(), "");
    return host.allocated_bytes();
  }

  std::vector<float> input, h, c, params, output, output_h, output_c;
  std::vector<unsigned char> reserve;
  RnnStackForwardArgs<float> args;
};

// Inputs, states and params all ones: the sums that tests of cuDNN expect of
// output, output_h and output_c.
TEST(RnnStack, GoldenSums) {
  const auto check = [](const RnnGeometry& g, int64_t steps, int64_t batch,
                        double want) {
    Call call(g, steps, batch, false);
    call.Run();
    double sum = 0;
    for (const auto* values : {&call.output, &call.output_h, &call.output_c}) {
      for (const float v : *values) sum += v;
    }
    EXPECT_NEAR(sum, want, kGoldenSum * want) << static_cast<int>(g.mode);
  };
  check({RnnMode::kLstm, 4, 1, 200, 200, 200}, 10, 20, 231833.22);
  check({RnnMode::kGru, 4, 1, 200, 200, 200}, 10, 20, 56000);
  check({RnnMode::kTanh, 4, 1, 200, 200, 200}, 10, 20, 56000);
  check({RnnMode::kRelu, 2, 1, 4, 8, 8}, 2, 4, 130688);
}

// The gradient of a sum of the outputs, times a direction of input, initial h
// and params, is what the sum changes by along that direction.
TEST(RnnStack, GradientsAreDifferences) {
  constexpr int64_t kSteps = 4, kBatch = 3;
  constexpr float kStep = 1.0f / 64;
  for (const RnnMode mode : kSmallerModes) {
    const RnnGeometry g = {mode, 2, 2, 3, 5, 5};
    Call call(g, kSteps, kBatch, true);
    call.Randomize(0.5f);
    call.Run();
    Random random(2);
    std::vector<float> cotangent(call.output.size());
    for (float& v : cotangent) v = static_cast<float>(random.Signed());

    std::vector<float> grads[] = {call.input, call.h, call.params};
    std::vector<float> grad_c(call.c.size());
    RnnStackBackwardArgs<float> backward;
    backward.geometry = g;
    backward.steps = kSteps;
    backward.batch = kBatch;
    backward.input = call.input.data();
    backward.input_h = call.h.data();
    backward.input_c = call.c.data();
    backward.params = call.params.data();
    backward.output = call.output.data();
    backward.output_backprop = cotangent.data();
    backward.reserve = call.reserve.data();
    backward.input_backprop = grads[0].data();
    backward.input_h_backprop = grads[1].data();
    backward.input_c_backprop = grad_c.data();
    backward.params_backprop = grads[2].data();
    TestHost host(HostOptions{});
    ASSERT_EQ(blockrnn_cpu_engine()->f32.Run(backward, host.host()),
              cpu::Status::kOk);
    host.FreeScratch();

    double want = 0;
    const auto sum_after = [&](float step) {
      Call moved(g, kSteps, kBatch, false);
      moved.Randomize(0.5f);
      Random direction(3);
      want = 0;
      std::vector<float>* const values[] = {&moved.input, &moved.h,
                                            &moved.params};
      for (int k = 0; k < 3; ++k) {
        for (std::size_t n = 0; n < values[k]->size(); ++n) {
          const auto along = static_cast<float>(direction.Signed());
          (*values[k])[n] += step * along;
          want += double{grads[k][n]} * double{along};
        }
      }
      moved.Run();
      double sum = 0;
      for (std::size_t n = 0; n < cotangent.size(); ++n) {
        sum += double{cotangent[n]} * double{moved.output[n]};
      }
      return sum;
    };
    const double got =
        (sum_after(kStep) - sum_after(-kStep)) / (2 * double{kStep});
    EXPECT_GT(std::fabs(want), 0.1);
    EXPECT_NEAR(got, want, kDifference * std::fabs(want))
        << "mode " << static_cast<int>(mode);
  }
}

// An element is kept where its number is not below the rate: four of a counter,
// one counter after another, layer by layer. An output shows what both masks
// keep: x is 1, and of the params only the identities between layers are not 0.
TEST(RnnStack, DropoutMasks) {
  // 300 elements: full vectors of numbers, full bytes, and a remainder.
  const RnnGeometry g = {RnnMode::kRelu, 3, 1, 10, 10, 10, false, true};
  for (const float rate : {0.0625f, 0.5f, 0.9f, 1.0f}) {
    Call call(g, 5, 6, true, rate);
    std::fill(call.params.begin(), call.params.end(), 0.0f);
    for (int64_t layer = 1; layer < 3; ++layer) {
      const int64_t offset = ParamLayout(g).Input(layer).offset;
      for (int64_t j = 0; j < 10; ++j) call.params[offset + 11 * j] = 1;
    }
    call.Run();
    for (int64_t n = 0; n < 300; ++n) {
      SCOPED_TRACE(n);
      bool kept = true;
      for (int64_t layer = 0; layer < 2; ++layer) {
        const unsigned char* const mask =
            &call.reserve[call.Layout().Mask(layer)];
        const int64_t counter = layer * DropoutBlocks(g, 5, 6) / 2 + n / 4;
        const auto numbers =
            Philox4x32<1>(PhiloxSkip(call.args.philox, counter));
        const bool want = numbers.value[n % 4][0] / 0x1p32 >= rate;
        ASSERT_EQ((mask[n / 8] >> (n % 8) & 1) != 0, want) << "rate " << rate;
        kept = kept && want;
      }
      ASSERT_EQ(call.output[n] != 0, kept) << "rate " << rate;
    }
  }
}

// A call determines every byte of its reserve space, gaps included, and its
// header, even of an empty one.
TEST(RnnStack, WritesItsReserveSpace) {
  for (const RnnMode mode : kSmallerModes) {
    for (const int64_t batch : {3, 0}) {
      const auto written = [&](unsigned char before) {
        Call call({mode, 3, 1, 3, 5, 5}, 4, batch, true, 0.5f);
        std::fill(call.reserve.begin(), call.reserve.end(), before);
        call.Run();
        const ReserveHeader want =
            MakeReserveHeader(call.args, 4, ReserveDevice::kCpu);
        EXPECT_EQ(ReserveMismatch(call.reserve.data(),
                                  static_cast<int64_t>(call.reserve.size()),
                                  want, call.Layout()),
                  "");
        return call.reserve;
      };
      EXPECT_TRUE(written(0) == written(0xFF)) << "a byte is not written";
    }
  }
}

// Scratch is that of one layer (and, in inference, of two outputs), and does
// not grow with the number of layers. In inference nothing else is stored.
TEST(RnnStack, MemoryOfManyLayers) {
  for (const int64_t directions : {1, 2}) {
    for (const RnnMode mode : kSmallerModes) {
      const auto bytes = [&](int64_t layers, int64_t steps, bool trains) {
        Call call({mode, layers, directions, 40, 20, 20}, steps, 7, trains);
        const std::size_t scratch = call.Run();
        return std::pair{scratch, scratch + call.reserve.size()};
      };
      for (const bool trains : {false, true}) {
        EXPECT_EQ(bytes(30, 9, trains).first, bytes(3, 9, trains).first);
      }
      EXPECT_LT(bytes(4, 300, false).second * 4,
                bytes(4, 300, true).second * 3);
    }
  }
}

void ExpectSameBits(const RnnGeometry& g, int64_t steps, int64_t batch,
                    const int64_t* lengths, float most, int num_threads) {
  const auto output = [&](int threads, Pool pool) {
    Call call(g, steps, batch, false);
    call.args.lengths = lengths;
    call.Randomize(most);
    call.Run(threads, pool);
    return call.output;
  };
  const std::vector<float> want = output(1, Pool::kThreads);
  for (const Pool pool : kPools) {
    EXPECT_TRUE(output(num_threads, pool) == want) << "threads, other bits";
  }
}

// Directions whose weights are too large to be read concurrently: 2 · 10 MB of
// recurrent weights.
TEST(RnnStack, SequentialDirections) {
  ExpectSameBits({RnnMode::kTanh, 1, 2, 3, 1600, 1600}, 3, 2, nullptr,
                 1.0F / 32, 3);
}

// Enough rows for the input GEMM to be fused into the step on one thread and
// too few on two, where the last hoisted GEMM has few rows: with this wide an x
// blocks have 480 rows, and 16 are left.
TEST(RnnStack, RowsThatEndEarly) {
  const std::vector<int64_t> lengths = {104, 56, 56, 56, 56, 56, 56, 56};
  for (const RnnMode mode : kSmallerModes) {
    ExpectSameBits({mode, 1, 1, 140, 80, 80}, 104, 8, lengths.data(), 1.0F / 8,
                   2);
  }
}

}  // namespace
}  // namespace blockrnn::test
