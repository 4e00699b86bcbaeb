// What the other tests lean on: the reference against published numbers and
// against finite differences of itself, the storage types, and that a wrong
// result is seen.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/harness.h"
#include "tests/cpp/random.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

using Values = std::vector<Tensor>;

void ExpectNear(const std::string& what, double got, double want,
                double tolerance, Failures* failures) {
  failures->Expect(std::fabs(got - want) <= tolerance,
                   what + " is " + std::to_string(got) + ", must be " +
                       std::to_string(want));
}

// From tests of TensorFlow's contrib kernels: weights .5, states .1, inputs 1.
void GoldenGru(Failures* failures) {
  const Op& op = FindOp("GRUBlockCell");
  const double want[] = {0.175991, 0.156736};
  for (int64_t input = 2; input <= 3; ++input) {
    const Dims dims = {1, input, 2};
    Values in;
    const double values[] = {1, 0.1, 0.5, 0.5, 1, 0};
    const auto specs = op.inputs(dims, 0);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      in.emplace_back(specs[t].count, Real(values[t]));
    }
    const Values out = op.reference(dims, 0, Activations(), in);
    ExpectNear("h", out[3][0].value, want[input - 2], kGolden6, failures);
  }
}

// Two layers of size 2; the second reads the first one's h.
void GoldenLstm(Failures* failures) {
  const Op& op = FindOp("LSTMBlockCell");
  const double want_cs[] = {0.68967271, 0.39897051};
  const double want_h[] = {0.44848421, 0.24024698};
  const Dims dims = {1, 2, 2};
  // Variant 0: forget_bias 1, no clip, no peepholes.
  const double values[] = {1, 0.1, 0.1, 0.5, 0, 0, 0, 0};
  double x = values[0];
  for (int layer = 0; layer < 2; ++layer) {
    Values in;
    const auto specs = op.inputs(dims, 0);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      in.emplace_back(specs[t].count, Real(t == 0 ? x : values[t]));
    }
    const Values out = op.reference(dims, 0, Activations(), in);
    ExpectNear("cs", out[1][0].value, want_cs[layer], kGolden8, failures);
    ExpectNear("h", out[6][0].value, want_h[layer], kGolden8, failures);
    x = out[6][0].value;
  }
}

// A forward op, its loss Σ cotangent ∘ output, and where the gradient by an
// input stands among the backward op's outputs.
struct Gradient {
  const Op& forward;
  const Op& backward;
  Dims dims;
  int forward_variant;
  int backward_variant;
  Values in;
  std::vector<int> outputs;  // of the forward op, with a cotangent each
  Values cotangents;

  double Loss() const {
    const Values out =
        forward.reference(dims, forward_variant, Activations(), in);
    double loss = 0;
    for (std::size_t t = 0; t < outputs.size(); ++t) {
      for (std::size_t n = 0; n < cotangents[t].size(); ++n) {
        loss += cotangents[t][n].value * out[outputs[t]][n].value;
      }
    }
    return loss;
  }

  void Check(int input, const Tensor& analytic, Failures* failures) {
    for (std::size_t n = 0; n < in[input].size(); ++n) {
      Real& element = in[input][n];
      const double before = element.value;
      element = before + kDifferenceStep;
      const double above = Loss();
      element = before - kDifferenceStep;
      const double below = Loss();
      element = before;
      ExpectNear(
          std::string(backward.name) + " by input " + std::to_string(input),
          analytic[n].value, (above - below) / (2 * kDifferenceStep),
          kDifferenceTolerance, failures);
    }
  }
};

Values RandomInputs(const Op& op, const Dims& dims, int variant,
                    Random* random) {
  Values in;
  for (const TensorSpec& spec : op.inputs(dims, variant)) {
    in.push_back(RandomTensor(spec.count, random));
  }
  return in;
}

// One row, so that the gradient of a bias is that of its pre-activation.
constexpr Dims kGradientDims = {1, 3, 4};

void GruGradient(Failures* failures) {
  Random random(5);
  Gradient g = {FindOp("GRUBlockCell"),
                FindOp("GRUBlockCellGrad"),
                kGradientDims,
                0,
                0,
                {},
                {3},
                {RandomTensor(kGradientDims.units, &random)}};
  g.in = RandomInputs(g.forward, g.dims, 0, &random);
  const Values out = g.forward.reference(g.dims, 0, Activations(), g.in);
  const Values grads = g.backward.reference(
      g.dims, 0, Activations(),
      {g.in[1], g.in[2], g.in[3], out[0], out[1], out[2], g.cotangents[0]});
  g.Check(0, grads[0], failures);  // x
  g.Check(1, grads[1], failures);  // h_prev
  g.Check(5, grads[2], failures);  // b_c
  g.Check(4, grads[3], failures);  // b_ru
}

void LstmGradient(Failures* failures) {
  for (const bool peephole : {false, true}) {
    Random random(6);
    // Forward variants 0 and 2 do not clip; 2 has peepholes.
    Gradient g = {FindOp("LSTMBlockCell"),
                  FindOp("LSTMBlockCellGrad"),
                  kGradientDims,
                  peephole ? 2 : 0,
                  peephole ? 1 : 0,
                  {},
                  {1, 6},
                  {RandomTensor(kGradientDims.units, &random),
                   RandomTensor(kGradientDims.units, &random)}};
    g.in = RandomInputs(g.forward, g.dims, g.forward_variant, &random);
    const Values out =
        g.forward.reference(g.dims, g.forward_variant, Activations(), g.in);
    const Values grads = g.backward.reference(
        g.dims, g.backward_variant, Activations(),
        {g.in[1], g.in[4], g.in[5], g.in[6], out[0], out[1], out[2], out[3],
         out[4], out[5], g.cotangents[0], g.cotangents[1]});
    g.Check(1, grads[0], failures);  // cs_prev
    g.Check(7, grads[1], failures);  // b
    if (!peephole) continue;
    for (int t = 0; t < 3; ++t) g.Check(4 + t, grads[2 + t], failures);
  }
}

// Known patterns, and every 16-bit one there and back.
void StorageTypes(Failures* failures) {
  const auto bits = [](Type type, double value) {
    uint16_t patterns[4] = {};  // room for the widest type
    Encode(type, value, patterns);
    return patterns[0];
  };
  failures->Expect(bits(Type::kHalf, 1) == 0x3C00, "half 1");
  failures->Expect(bits(Type::kHalf, 65504) == 0x7BFF, "the largest half");
  failures->Expect(bits(Type::kHalf, 65520) == 0x7C00, "half overflows");
  failures->Expect(bits(Type::kHalf, 0x1p-24) == 1, "the smallest half");
  failures->Expect(bits(Type::kHalf, 0x1p-25) == 0, "a tie goes to even");
  failures->Expect(bits(Type::kHalf, 1 + 0x1.8p-10) == 0x3C02, "rounds up");
  failures->Expect(bits(Type::kBfloat16, -1) == 0xBF80, "bfloat16 -1");
  failures->Expect(bits(Type::kBfloat16, 1 + 0x1p-8) == 0x3F80, "a tie");
  for (const Type type : {Type::kHalf, Type::kBfloat16}) {
    for (int pattern = 0; pattern < 0x10000; ++pattern) {
      const uint16_t stored[4] = {static_cast<uint16_t>(pattern)};
      const double value = Decode(type, stored);
      failures->Expect(std::isnan(value) || bits(type, value) == pattern,
                       std::string(Name(type)) + " there and back");
    }
  }
}

// Each output element in turn is made NaN, and then a little wrong.
void WrongResultIsSeen(Failures* failures) {
  for (const Op& op : Ops()) {
    Case c;
    c.op = &op;
    c.dims = {2, 3, 4};
    const Outcome right = Run(c);
    failures->Add(Compare(c, right));
    const auto specs = op.outputs(c.dims, c.variant);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      for (std::size_t at = 0; at < right.outputs[t].size(); at += 4) {
        if (!specs[t].used) continue;
        Outcome wrong = right;
        unsigned char* element = wrong.outputs[t].data() + at;
        const double value = Decode(c.type, element);
        for (const double other : {std::numeric_limits<double>::quiet_NaN(),
                                   value + 2e-4 * std::fabs(value) + 2e-5}) {
          Encode(c.type, other, element);
          failures->Expect(!Compare(c, wrong).empty(),
                           std::string(op.name) + " " + specs[t].name +
                               ": a wrong element is not seen");
        }
      }
    }
  }
}

#if !defined(BLOCKRNN_TEST_ASAN)  // which ends the run at such a write
// A write outside a tensor or scratch block, by one byte.
void BrokenGuardIsSeen(Failures* failures) {
  for (const int at : {-1, 5}) {
    GuardedBlock block(5, 0);
    failures->Expect(block.Intact(), "a new block is broken");
    unsigned char* data = block.data();
    data[at] = 0;
    failures->Expect(!block.Intact(), "a write outside is not seen");
  }
}
const bool kGuardTest = AddTest("broken_guard_is_seen", &BrokenGuardIsSeen);
#endif

void EngineTable(Failures* failures) {
  const cpu::Engine* engine = blockrnn_cpu_engine();
  failures->Expect(engine->version == cpu::kEngineVersion, "other version");
  failures->Expect(
      TestOptions().isa.empty() || TestOptions().isa == engine->isa,
      "the engine says that it is for " + std::string(engine->isa));
}

const bool kTests[] = {
    AddTest("golden/GRUBlockCell", &GoldenGru),
    AddTest("golden/LSTMBlockCell", &GoldenLstm),
    AddTest("reference_gradient/GRUBlockCell", &GruGradient),
    AddTest("reference_gradient/LSTMBlockCell", &LstmGradient),
    AddTest("storage_types", &StorageTypes),
    AddTest("wrong_result_is_seen", &WrongResultIsSeen),
    AddTest("engine_table", &EngineTable),
};

}  // namespace
}  // namespace blockrnn::test
