// Tests backward calls with spans on the engine's interface: their gradients
// have the bits of those that read what the forward pass saved, and they write
// nothing to span_states.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/core/gru_cell.h"
#include "cc/core/layer_norm.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "gtest/gtest.h"
#include "tests/cpp/test_host.h"

extern "C" const blockrnn::cpu::Engine* blockrnn_cpu_engine();

namespace blockrnn {
namespace {

// Several blocks of steps: with this width of x, of 480 rows.
constexpr int64_t kInput = 140;
constexpr int64_t kUnits = 5;
constexpr int64_t kProj = 3;

using Array = std::vector<float>;

struct Layout {
  const char* name;
  int64_t steps;
  int64_t batch;
  bool time_major = true;
  bool backwards = false;
  bool lengths = false;
  bool mask = false;
  bool all_options = false;  // peepholes, a projection, recurrent dropout
};

// Arrays that live as long as the test, and the calls that use them.
class Recompute : public testing::TestWithParam<Layout> {
 protected:
  Recompute() {
    const Layout& layout = GetParam();
    shape_.steps = layout.steps;
    shape_.batch = layout.batch;
    shape_.input = kInput;
    shape_.units = kUnits;
    shape_.time_major = layout.time_major;
    shape_.backwards = layout.backwards;
    rows_ = layout.steps * layout.batch;
    std::mt19937 random(1);
    if (layout.lengths) {
      for (int64_t b = 0; b < layout.batch; ++b) {
        lengths_.push_back(static_cast<int64_t>(random()) % (layout.steps + 1));
      }
      shape_.lengths = lengths_.data();
    }
    if (!layout.mask) return;
    for (int64_t row = 0; row < rows_; ++row) mask_.push_back(random() % 4 > 0);
    for (int64_t b = 0; b < layout.batch; b += 2) {
      for (int64_t t = 0; t < layout.steps / 4; ++t) {
        mask_[shape_.TimeRow(t, b)] = 0;
      }
    }
  }

  const float* Input(int64_t size) {
    std::mt19937 random(++seed_);
    std::uniform_real_distribution<float> uniform(-0.5, 0.5);
    float* const values = New(size);
    for (int64_t i = 0; i < size; ++i) values[i] = uniform(random);
    return values;
  }
  // Unwritten elements are NaN, which equals nothing.
  float* Output(int64_t size) {
    float* const values = New(size);
    outputs_.push_back({values, size});
    return values;
  }

  void FillInputs(SequenceForwardArgs<float>* args, int gates, int64_t width) {
    args->shape = shape_;
    args->mask = mask_.empty() ? nullptr : mask_.data();
    args->x = Input(rows_ * kInput);
    args->h_prev = Input(shape_.batch * width);
    if (GetParam().all_options) {
      args->recurrent_dropout = Input(gates * shape_.batch * width);
    }
    args->h = New(rows_ * width);
    args->h_last = New(shape_.batch * width);
  }

  // The gradients of a call, with spans or without; `backward` has cotangents.
  template <class Forward, class Backward>
  std::vector<Array> Gradients(Forward forward, Backward backward,
                               int64_t state, int64_t span_steps) {
    static_cast<SequenceInputs<float>&>(backward) = forward;
    static_cast<typename Backward::Weights&>(backward) = forward;
    backward.h = forward.h;
    if (span_steps == 0) {
      ForEachSavedArray(&forward, &backward,
                        [&](float** output, const float** input, int64_t w) {
                          *output = New(rows_ * w);
                          *input = *output;
                        });
      Run(forward);
      Run(backward);
      return Outputs();
    }
    const int64_t spans = (shape_.steps + span_steps - 1) / span_steps;
    const int64_t size = (spans - 1) * shape_.batch * state;
    float* const states = New(size);
    forward.span_steps = span_steps;
    forward.span_states = states;
    Run(forward);
    const Array before(states, states + size);
    backward.span_steps = span_steps;
    backward.span_states = states;
    Run(backward);
    for (int64_t i = 0; i < size; ++i) {
      // NaN where there are fewer spans than there is room for.
      EXPECT_TRUE(states[i] == before[i] || before[i] != before[i]);
    }
    return Outputs();
  }

  template <class Forward, class Backward>
  void ExpectSameBits(const Forward& forward, const Backward& backward,
                      int64_t state) {
    const std::vector<Array> want = Gradients(forward, backward, state, 0);
    for (int64_t span_steps : {int64_t{1}, int64_t{7}, shape_.steps / 2,
                               shape_.steps, 3 * shape_.steps}) {
      EXPECT_EQ(Gradients(forward, backward, state, span_steps), want)
          << span_steps;
    }
  }

  SequenceShape shape_;
  int64_t rows_ = 0;

 private:
  struct Written {
    float* values;
    int64_t size;
  };

  float* New(int64_t size) {
    arrays_.push_back(
        std::make_unique<Array>(size, std::numeric_limits<float>::quiet_NaN()));
    return arrays_.back()->data();
  }

  // What the outputs hold, which are then unwritten again.
  std::vector<Array> Outputs() {
    std::vector<Array> values;
    for (const Written& output : outputs_) {
      values.emplace_back(output.values, output.values + output.size);
      std::fill(output.values, output.values + output.size,
                std::numeric_limits<float>::quiet_NaN());
    }
    return values;
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

  std::vector<int64_t> lengths_;
  std::vector<uint8_t> mask_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<Written> outputs_;
  uint32_t seed_ = 0;
};

INSTANTIATE_TEST_SUITE_P(
    EveryLayout, Recompute,
    testing::Values(Layout{"Plain", 100, 16}, Layout{"OneRow", 965, 1},
                    Layout{"TwoRows", 485, 2},
                    Layout{"BatchMajor", 60, 20, false, true, true},
                    Layout{"Lengths", 60, 20, true, false, true},
                    Layout{"Mask", 60, 20, true, false, false, true},
                    Layout{"All", 60, 20, false, true, true, true, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Recompute, LstmHasTheSameBits) {
  const bool all = GetParam().all_options;
  const int64_t width = all ? kProj : kUnits;
  LstmSequenceForwardArgs<float> forward;
  FillInputs(&forward, 4, width);
  forward.options.forget_bias = 0.5;
  forward.cs_prev = Input(shape_.batch * kUnits);
  forward.cs_last = Output(shape_.batch * kUnits);
  forward.w_x = Input(kInput * 4 * kUnits);
  forward.w_h = Input(width * 4 * kUnits);
  forward.b = Input(4 * kUnits);
  LstmSequenceBackwardArgs<float> backward;
  if (all) {
    forward.proj = kProj;
    forward.w_p = Input(kProj * kUnits);
    forward.options.use_peephole = true;
    forward.options.cell_clip = 0.3F;
    forward.wci = Input(kUnits);
    forward.wcf = Input(kUnits);
    forward.wco = Input(kUnits);
    backward.w_p_grad = Output(kProj * kUnits);
    backward.wci_grad = Output(kUnits);
    backward.wcf_grad = Output(kUnits);
    backward.wco_grad = Output(kUnits);
  }
  backward.h_grad = Input(rows_ * width);
  backward.cs_last_grad = Input(shape_.batch * kUnits);
  backward.x_grad = Output(rows_ * kInput);
  backward.h_prev_grad = Output(shape_.batch * width);
  backward.cs_prev_grad = Output(shape_.batch * kUnits);
  backward.w_x_grad = Output(kInput * 4 * kUnits);
  backward.w_h_grad = Output(width * 4 * kUnits);
  backward.b_grad = Output(4 * kUnits);
  ExpectSameBits(forward, backward, width + kUnits);
}

TEST_P(Recompute, GruHasTheSameBits) {
  GruSequenceForwardArgs<float> forward;
  FillInputs(&forward, 3, kUnits);
  forward.w_ru_x = Input(kInput * 2 * kUnits);
  forward.w_ru_h = Input(kUnits * 2 * kUnits);
  forward.w_c_x = Input(kInput * kUnits);
  forward.w_c_h = Input(kUnits * kUnits);
  forward.b_ru = Input(2 * kUnits);
  forward.b_c = Input(kUnits);
  GruSequenceBackwardArgs<float> backward;
  backward.h_grad = Input(rows_ * kUnits);
  backward.x_grad = Output(rows_ * kInput);
  backward.h_prev_grad = Output(shape_.batch * kUnits);
  backward.w_ru_x_grad = Output(kInput * 2 * kUnits);
  backward.w_ru_h_grad = Output(kUnits * 2 * kUnits);
  backward.w_c_x_grad = Output(kInput * kUnits);
  backward.w_c_h_grad = Output(kUnits * kUnits);
  backward.b_ru_grad = Output(2 * kUnits);
  backward.b_c_grad = Output(kUnits);
  ExpectSameBits(forward, backward, kUnits);
}

TEST_P(Recompute, GruAfterHasTheSameBits) {
  GruAfterSequenceForwardArgs<float> forward;
  FillInputs(&forward, 3, kUnits);
  forward.w_x = Input(kInput * 3 * kUnits);
  forward.w_h = Input(kUnits * 3 * kUnits);
  forward.b_x = Input(3 * kUnits);
  forward.b_h = Input(3 * kUnits);
  GruAfterSequenceBackwardArgs<float> backward;
  backward.h_grad = Input(rows_ * kUnits);
  backward.x_grad = Output(rows_ * kInput);
  backward.h_prev_grad = Output(shape_.batch * kUnits);
  backward.w_x_grad = Output(kInput * 3 * kUnits);
  backward.w_h_grad = Output(kUnits * 3 * kUnits);
  backward.b_x_grad = Output(3 * kUnits);
  backward.b_h_grad = Output(3 * kUnits);
  ExpectSameBits(forward, backward, kUnits);
}

TEST_P(Recompute, LayerNormLstmHasTheSameBits) {
  LayerNormLstmForwardArgs<float> forward;
  FillInputs(&forward, 4, kUnits);
  forward.norm_output_only = GetParam().all_options;
  forward.cs_prev = Input(shape_.batch * kUnits);
  forward.cs_last = Output(shape_.batch * kUnits);
  forward.w_x = Input(kInput * 4 * kUnits);
  forward.w_h = Input(kUnits * 4 * kUnits);
  forward.b = Input(4 * kUnits);
  forward.gamma_x = Input(4 * kUnits);
  forward.beta_x = Input(4 * kUnits);
  forward.gamma_h = Input(4 * kUnits);
  forward.beta_h = Input(4 * kUnits);
  forward.gamma_c = Input(kUnits);
  forward.beta_c = Input(kUnits);
  LayerNormLstmBackwardArgs<float> backward;
  backward.h_grad = Input(rows_ * kUnits);
  backward.cs_last_grad = Input(shape_.batch * kUnits);
  backward.x_grad = Output(rows_ * kInput);
  backward.h_prev_grad = Output(shape_.batch * kUnits);
  backward.cs_prev_grad = Output(shape_.batch * kUnits);
  backward.w_x_grad = Output(kInput * 4 * kUnits);
  backward.w_h_grad = Output(kUnits * 4 * kUnits);
  backward.b_grad = Output(4 * kUnits);
  backward.gamma_x_grad = Output(4 * kUnits);
  backward.beta_x_grad = Output(4 * kUnits);
  backward.gamma_h_grad = Output(4 * kUnits);
  backward.beta_h_grad = Output(4 * kUnits);
  backward.gamma_c_grad = Output(kUnits);
  backward.beta_c_grad = Output(kUnits);
  ExpectSameBits(forward, backward, 2 * kUnits);
}

TEST_P(Recompute, LayerNormGruHasTheSameBits) {
  LayerNormGruForwardArgs<float> forward;
  FillInputs(&forward, 3, kUnits);
  forward.w_x = Input(kInput * 3 * kUnits);
  forward.w_h = Input(kUnits * 3 * kUnits);
  forward.b_x = Input(3 * kUnits);
  forward.b_h = Input(3 * kUnits);
  forward.gamma_x = Input(3 * kUnits);
  forward.beta_x = Input(3 * kUnits);
  forward.gamma_h = Input(3 * kUnits);
  forward.beta_h = Input(3 * kUnits);
  LayerNormGruBackwardArgs<float> backward;
  backward.h_grad = Input(rows_ * kUnits);
  backward.x_grad = Output(rows_ * kInput);
  backward.h_prev_grad = Output(shape_.batch * kUnits);
  backward.w_x_grad = Output(kInput * 3 * kUnits);
  backward.w_h_grad = Output(kUnits * 3 * kUnits);
  backward.b_x_grad = Output(3 * kUnits);
  backward.b_h_grad = Output(3 * kUnits);
  backward.gamma_x_grad = Output(3 * kUnits);
  backward.beta_x_grad = Output(3 * kUnits);
  backward.gamma_h_grad = Output(3 * kUnits);
  backward.beta_h_grad = Output(3 * kUnits);
  ExpectSameBits(forward, backward, kUnits);
}

}  // namespace
}  // namespace blockrnn
