// Tests stacks of frozen layers: they have the same bits on any number of
// threads, and rows with resets are what their sequences are alone. That
// outputs are those of the layers' ops tests/inference/ tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cc/core/activations.h"
#include "cc/core/frozen_stack_args.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/test_host.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

template <class Forward, class = void>
constexpr bool kHasActivations = false;
template <class Forward>
constexpr bool
    kHasActivations<Forward, std::void_t<decltype(Forward::activations)>> =
        true;

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
constexpr int64_t kProjected = 30;

// Of a call: [kBatch, kSteps]. The last row begins with a reset, and has some
// past its length.
std::vector<uint8_t> Resets() {
  std::vector<uint8_t> resets(kBatch * kSteps);
  for (const int64_t t : {1, 4, 5, 29}) resets[t] = 1;
  resets[kSteps] = resets[kSteps + 3] = 1;
  for (const int64_t t : {0, 9, 17, 20}) resets[2 * kSteps + t] = 1;
  return resets;
}

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

// What differs from call to call.
struct Rows {
  int64_t batch = kBatch;
  int64_t steps = kSteps;
  const int64_t* lengths = kLengths;
  const uint8_t* resets = nullptr;
  const float* x = nullptr;
  const float* state = nullptr;
};

template <class Forward>
class Stack {
 public:
  // An array of a state.
  struct Part {
    int64_t width;
    bool backward;
  };

  static constexpr int64_t kGates =
      kHasCellState<Forward>                                 ? 4
      : std::is_same_v<Forward, SimpleRnnForwardArgs<float>> ? 1
                                                             : 3;
  static constexpr bool kIsLstm =
      std::is_same_v<Forward, LstmSequenceForwardArgs<float>>;

  // projected: of an LSTM.
  explicit Stack(const ActivationOptions& activations = {},
                 Precision precision = Precision::kStorage,
                 bool projected = false) {
    int64_t input = kLayers[0].input;
    for (const LayerSizes& sizes : kLayers) {
      StackLayer<Forward>& layer = layers_.emplace_back();
      layer.directions = sizes.directions;
      layer.gates = kGates;
      layer.outputs = projected ? kProjected : sizes.units;
      for (int64_t d = 0; d < sizes.directions; ++d) {
        layer.options[d].shape.input = input;
        layer.options[d].shape.units = sizes.units;
        if constexpr (kHasActivations<Forward>) {
          layer.options[d].activations = activations;
        }
        if constexpr (kIsLstm) {
          layer.options[d].proj = projected ? kProjected : 0;
        }
        Forward weights = layer.options[d];
        SetWeights(&weights);
        const TestHost host({});
        packed_.push_back(std::make_unique<PackedLayer<Forward>>(
            weights, precision, host.host()));
        layer.weights[d] = packed_.back()->frozen();
        parts_.push_back({layer.outputs, d == 1});
        if (kHasCellState<Forward>) parts_.push_back({sizes.units, d == 1});
      }
      input = sizes.directions * layer.outputs;
    }
    outputs_ = input;
    for (const Part& part : parts_) state_size_ += part.width;
    x_ = Numbers(kBatch * kSteps * kLayers[0].input, &random_);
    state_ = Numbers(kBatch * state_size_, &random_);
  }

  Result Run(const HostOptions& options, bool with_state, bool in_place = false,
             const uint8_t* resets = nullptr) const {
    Rows rows;
    rows.resets = resets;
    rows.x = x_.data();
    if (with_state) rows.state = state_.data();
    return RunRows(options, rows, in_place);
  }

  // in_place: the new state takes the place of the one before.
  Result RunRows(const HostOptions& options, const Rows& rows,
                 bool in_place = false) const {
    Result result;
    result.y.assign(rows.batch * rows.steps * outputs_, -7);
    result.state.assign(rows.batch * state_size_, -7);
    if (in_place)
      std::copy_n(rows.state, result.state.size(), result.state.data());
    FrozenStackArgs<Forward> args;
    args.layers = layers_.data();
    args.num_layers = static_cast<int64_t>(layers_.size());
    args.batch = rows.batch;
    args.steps = rows.steps;
    args.lengths = rows.lengths;
    args.resets = rows.resets;
    args.x = rows.x;
    args.state = in_place ? result.state.data() : rows.state;
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

  // What Run computes with resets and a state, each sequence in a call of its
  // own.
  Result RunPieces(const std::vector<uint8_t>& resets) const {
    Result result;
    result.y.assign(kBatch * kSteps * outputs_, 0);
    result.state = state_;
    for (int64_t row = 0; row < kBatch; ++row) {
      const int64_t length = kLengths[row];
      for (int64_t begin = 0, end = 0; begin < length; begin = end) {
        end = begin + 1;
        while (end < length && resets[row * kSteps + end] == 0) ++end;
        const bool takes_forward = begin == 0 && resets[row * kSteps] == 0;
        std::vector<float> state;
        ForEachPart(row, [&](const Part& part, int64_t at) {
          const bool takes = part.backward ? end == length : takes_forward;
          for (int64_t j = 0; j < part.width; ++j) {
            state.push_back(takes ? state_[at + j] : 0);
          }
        });
        Rows rows;
        rows.batch = 1;
        rows.steps = end - begin;
        rows.lengths = nullptr;
        rows.x = x_.data() + (row * kSteps + begin) * kLayers[0].input;
        rows.state = state.data();
        const Result piece = RunRows({}, rows);
        EXPECT_EQ(piece.problems, "");
        std::copy(piece.y.begin(), piece.y.end(),
                  result.y.begin() + (row * kSteps + begin) * outputs_);
        const float* from = piece.state.data();
        ForEachPart(row, [&](const Part& part, int64_t at) {
          if (part.backward ? begin == 0 : end == length) {
            std::copy_n(from, part.width, result.state.begin() + at);
          }
          from += part.width;
        });
      }
    }
    return result;
  }

 private:
  // f(part, where the row of it begins in state_).
  template <class F>
  void ForEachPart(int64_t row, const F& f) const {
    int64_t first = 0;
    for (const Part& part : parts_) {
      f(part, first + row * part.width);
      first += kBatch * part.width;
    }
  }

  // Each array has the length of the largest.
  void SetWeights(Forward* args) {
    const SequenceShape& shape = args->shape;
    const int64_t count =
        std::max(shape.input, shape.units) * kGates * shape.units;
    ForEachWeight(args, [&](const float** w, std::string_view) {
      arrays_.push_back(Numbers(count, &random_));
      *w = arrays_.back().data();
    });
  }

  Random random_{5};
  std::vector<std::vector<float>> arrays_;
  std::vector<std::unique_ptr<PackedLayer<Forward>>> packed_;
  std::vector<StackLayer<Forward>> layers_;
  std::vector<Part> parts_;  // of a state
  int64_t state_size_ = 0;   // of a row
  int64_t outputs_ = 0;      // of the last layer, in both directions
  std::vector<float> x_;
  std::vector<float> state_;
};

template <class Forward>
void ExpectSameBits(const Stack<Forward>& stack,
                    const uint8_t* resets = nullptr) {
  int closures = 0;
  for (const bool with_state : {false, true}) {
    const Result want = stack.Run({}, with_state, false, resets);
    EXPECT_EQ(want.problems, "");
    for (const int threads : {2, 5}) {
      for (const Pool pool : kPools) {
        HostOptions options;
        options.num_threads = threads;
        options.pool = pool;
        // In place of the state before, where there is one.
        const Result got = stack.Run(options, with_state, with_state, resets);
        EXPECT_EQ(got.status, cpu::Status::kOk);
        EXPECT_EQ(got.problems, "");
        EXPECT_TRUE(got.y == want.y) << threads << " threads";
        EXPECT_TRUE(got.state == want.state) << threads << " threads";
        closures += got.closures;
      }
    }
  }
  // Those of a simple RNN are too small to be divided.
  if (Stack<Forward>::kGates > 1) {
    EXPECT_GT(closures, 0);
  }
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
  const std::vector<uint8_t> some = Resets();
  for (const uint8_t* const resets :
       {static_cast<const uint8_t*>(nullptr), some.data()}) {
    HostOptions options;
    options.num_threads = 2;
    options.pool = Pool::kNever;
    const int allocations =
        stack.Run(options, false, false, resets).allocations;
    EXPECT_GT(allocations, 3);
    for (int n = 0; n < allocations; ++n) {
      options.fail_allocation = n;
      const Result result = stack.Run(options, false, false, resets);
      EXPECT_EQ(result.status, cpu::Status::kOutOfMemory) << n;
      EXPECT_EQ(result.problems, "");
    }
  }
}

float Largest(const std::vector<float>& one, const std::vector<float>& other) {
  float largest = 0;
  EXPECT_EQ(one.size(), other.size());
  for (std::size_t n = 0; n < one.size(); ++n) {
    const float difference = std::abs(one[n] - other[n]);
    if (!(difference <= largest)) largest = difference;  // NaN too
  }
  return largest;
}

template <class Forward>
void ExpectPieces(const Stack<Forward>& stack, bool same_bits) {
  const std::vector<uint8_t> resets = Resets();
  const Result want = stack.RunPieces(resets);
  const Result got = stack.Run({}, true, false, resets.data());
  EXPECT_EQ(got.status, cpu::Status::kOk);
  EXPECT_EQ(got.problems, "");
  if (same_bits) {
    EXPECT_TRUE(got.y == want.y);
    EXPECT_TRUE(got.state == want.state);
  } else {
    const auto bound = static_cast<float>(
        std::size(kLayers) *
        RelativeTolerance(Type::kFloat, false, 2 * kLayers[1].input));
    EXPECT_LE(Largest(got.y, want.y), bound);
    EXPECT_LE(Largest(got.state, want.state), bound);
  }
  const Result whole = stack.Run({}, true);
  EXPECT_GT(Largest(got.y, whole.y), 1e-3f);
  EXPECT_GT(Largest(got.state, whole.state), 1e-3f);
  ExpectSameBits(stack, resets.data());
}

template <class Forward>
class FrozenStacksWithResets : public ::testing::Test {};
using AllCells = ::testing::Types<
    LstmSequenceForwardArgs<float>, GruSequenceForwardArgs<float>,
    GruAfterSequenceForwardArgs<float>, SimpleRnnForwardArgs<float>,
    LayerNormLstmForwardArgs<float>, LayerNormGruForwardArgs<float>>;
TYPED_TEST_SUITE(FrozenStacksWithResets, AllCells);

TYPED_TEST(FrozenStacksWithResets, ArePieces) {
  for (const bool projected : {false, true}) {
    if (projected && !Stack<TypeParam>::kIsLstm) continue;
    for (const Precision precision :
         {Precision::kStorage, Precision::kBFloat16, Precision::kInt8}) {
      SCOPED_TRACE(static_cast<int>(precision));
      ExpectPieces(Stack<TypeParam>({}, precision, projected),
                   precision != Precision::kStorage);
    }
  }
}

// Resets that are all 0 have the bits of none.
TYPED_TEST(FrozenStacksWithResets, NoReset) {
  const Stack<TypeParam> stack;
  const std::vector<uint8_t> none(kBatch * kSteps);
  const Result want = stack.Run({}, true);
  const Result got = stack.Run({}, true, false, none.data());
  EXPECT_TRUE(got.y == want.y);
  EXPECT_TRUE(got.state == want.state);
}

}  // namespace
}  // namespace blockrnn::test
