// Tests stacks of frozen layers: they have the same bits on any number of
// threads. That they are those of their sequences tests/inference/ tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/core/activations.h"
#include "cc/core/frozen_stack_args.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

struct LayerSizes {
  int64_t input;
  int64_t units;
  int64_t directions;
};
// With enough work for both directions to run at the same time.
constexpr LayerSizes kLayers[] = {{9, 40, 2}, {80, 41, 1}, {41, 40, 2}};
constexpr int64_t kBatch = 3;
constexpr int64_t kSteps = 30;
constexpr int64_t kLengths[kBatch] = {30, 0, 17};

std::vector<float> Numbers(int64_t count, Random* random) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) x = static_cast<float>(0.3 * random->Signed());
  return numbers;
}

struct Result {
  cpu::Status status = cpu::Status::kOk;
  std::vector<float> y;
  std::vector<float> state;
  std::string problems;
  int allocations = 0;
  int closures = 0;
};

template <class Forward>
class Stack {
 public:
  explicit Stack(const ActivationOptions& activations = {}) {
    for (const LayerSizes& sizes : kLayers) {
      StackLayer<Forward>& layer = layers_.emplace_back();
      layer.directions = sizes.directions;
      layer.gates = kGates;
      layer.outputs = sizes.units;
      for (int64_t d = 0; d < sizes.directions; ++d) {
        layer.options[d].shape.input = sizes.input;
        layer.options[d].shape.units = sizes.units;
        layer.options[d].activations = activations;
        Forward weights = layer.options[d];
        SetWeights(&weights);
        const TestHost host({});
        packed_.push_back(std::make_unique<PackedLayer<Forward>>(
            weights, Precision::kStorage, host.host()));
        layer.weights[d] = packed_.back()->frozen();
        state_size_ += sizes.units * (kHasCellState<Forward> ? 2 : 1);
      }
    }
    x_ = Numbers(kBatch * kSteps * kLayers[0].input, &random_);
    state_ = Numbers(kBatch * state_size_, &random_);
  }

  // in_place: the new state takes the place of the one before.
  Result Run(const HostOptions& options, bool with_state,
             bool in_place = false) const {
    Result result;
    result.y.assign(kBatch * kSteps * 2 * kLayers[2].units, -7);
    result.state.assign(state_.size(), -7);
    if (in_place) result.state = state_;
    FrozenStackArgs<Forward> args;
    args.layers = layers_.data();
    args.num_layers = static_cast<int64_t>(layers_.size());
    args.batch = kBatch;
    args.steps = kSteps;
    args.lengths = kLengths;
    args.x = x_.data();
    if (with_state) args.state = in_place ? result.state.data() : state_.data();
    args.new_state = result.state.data();
    args.y = result.y.data();
    TestHost host(options);
    result.status = blockrnn_cpu_engine()->f32.Run(args, host.host());
    host.FreeScratch();
    host.FinishClosures();
    result.problems = host.Problems();
    result.allocations = host.allocations();
    result.closures = host.closures();
    return result;
  }

 private:
  static constexpr int64_t kGates = kHasCellState<Forward> ? 4 : 3;

  void SetWeights(Forward* args) {
    const auto next = [&](int64_t count) {
      arrays_.push_back(Numbers(count, &random_));
      return arrays_.back().data();
    };
    const int64_t columns = kGates * args->shape.units;
    args->w_x = next(args->shape.input * columns);
    args->w_h = next(args->shape.units * columns);
    if constexpr (kHasCellState<Forward>) {
      args->b = next(columns);
    } else {
      args->b_x = next(columns);
      args->b_h = next(columns);
    }
  }

  Random random_{5};
  std::vector<std::vector<float>> arrays_;
  std::vector<std::unique_ptr<PackedLayer<Forward>>> packed_;
  std::vector<StackLayer<Forward>> layers_;
  int64_t state_size_ = 0;
  std::vector<float> x_;
  std::vector<float> state_;
};

template <class Forward>
void ExpectSameBits(const Stack<Forward>& stack) {
  int closures = 0;
  for (const bool with_state : {false, true}) {
    const Result want = stack.Run({}, with_state);
    EXPECT_EQ(want.problems, "");
    for (const int threads : {2, 5}) {
      for (const Pool pool : kPools) {
        HostOptions options;
        options.num_threads = threads;
        options.pool = pool;
        // In place of the state before, where there is one.
        const Result got = stack.Run(options, with_state, with_state);
        EXPECT_EQ(got.status, cpu::Status::kOk);
        EXPECT_EQ(got.problems, "");
        EXPECT_TRUE(got.y == want.y) << threads << " threads";
        EXPECT_TRUE(got.state == want.state) << threads << " threads";
        closures += got.closures;
      }
    }
  }
  EXPECT_GT(closures, 0);
}

template <class Forward>
class FrozenStacks : public ::testing::Test {};
using Cells = ::testing::Types<LstmSequenceForwardArgs<float>,
                               GruAfterSequenceForwardArgs<float>>;
TYPED_TEST_SUITE(FrozenStacks, Cells);

TYPED_TEST(FrozenStacks, SameBits) { ExpectSameBits(Stack<TypeParam>()); }

// With each of the others and with both.
TYPED_TEST(FrozenStacks, SameBitsOfOtherActivations) {
  std::vector<std::vector<float>> all = {Stack<TypeParam>().Run({}, false).y};
  constexpr ActivationOptions kOthers[] = {
      {0.2f, false}, {0, true}, {0.2f, true}};
  for (const ActivationOptions& others : kOthers) {
    const Stack<TypeParam> stack(others);
    ExpectSameBits(stack);
    const std::vector<float> y = stack.Run({}, false).y;
    EXPECT_EQ(std::count(all.begin(), all.end(), y), 0);
    all.push_back(y);
  }
}

// Each allocation of a call fails once.
TYPED_TEST(FrozenStacks, OutOfMemory) {
  const Stack<TypeParam> stack;
  HostOptions options;
  options.num_threads = 2;
  options.pool = Pool::kNever;
  const int allocations = stack.Run(options, false).allocations;
  EXPECT_GT(allocations, 3);
  for (int n = 0; n < allocations; ++n) {
    options.fail_allocation = n;
    const Result result = stack.Run(options, false);
    EXPECT_EQ(result.status, cpu::Status::kOutOfMemory) << n;
    EXPECT_EQ(result.problems, "");
  }
}

}  // namespace
}  // namespace blockrnn::test
