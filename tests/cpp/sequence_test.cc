// What the other tests of sequences lean on: their references against those of
// the cells and against finite differences of themselves, and that a bound over
// many steps still says something. And what only a sequence can do: stop
// between its steps.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/cpp/gru_sequence_variants.h"
#include "tests/cpp/lstm_sequence_variants.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/random.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

using Values = std::vector<Tensor>;

Values RandomInputs(const Op& op, const Dims& dims, int variant,
                    Random* random) {
  Values in;
  for (const TensorSpec& spec : op.inputs(dims, variant)) {
    in.push_back(RandomTensor(spec.count, random));
  }
  return in;
}

void ExpectNear(const std::string& what, const Tensor& got, const Tensor& want,
                double tolerance, Failures* failures) {
  failures->Expect(got.size() == want.size(), what + " has another size");
  for (std::size_t n = 0; n < got.size() && n < want.size(); ++n) {
    failures->Expect(std::fabs(got[n].value - want[n].value) <= tolerance,
                     what + "[" + std::to_string(n) + "] is " +
                         std::to_string(got[n].value) + ", must be " +
                         std::to_string(want[n].value));
  }
}

// `above` over `below`: the cells' weights have x and h stacked.
Tensor Stack(const Tensor& above, const Tensor& below) {
  Tensor stacked = above;
  stacked.insert(stacked.end(), below.begin(), below.end());
  return stacked;
}

Tensor Part(const Tensor& tensor, int64_t index, int64_t size) {
  return Tensor(tensor.begin() + index * size,
                tensor.begin() + (index + 1) * size);
}

constexpr Dims kStepDims = {3, 4, 5, 3};

// Of the LSTM, the plain variant has peepholes and a forget bias of 1, which
// the cell has without a clip in its variant 4.
constexpr int kLstmCellVariant = 4;

void LstmIsCells(Failures* failures) {
  const Dims& d = kStepDims;
  Random random(7);
  const Op& op = FindOp("LSTM");
  const Values in = RandomInputs(op, d, kPlainOrder, &random);
  const Values out = op.reference(d, kPlainOrder, Activations(), in);
  Tensor cs = in[1], h = in[2];
  for (int64_t t = 0; t < d.steps; ++t) {
    const Values cell =
        FindOp("LSTMBlockCell")
            .reference({d.batch, d.input, d.units}, kLstmCellVariant,
                       Activations(),
                       {Part(in[0], t, d.batch * d.input), cs, h,
                        Stack(in[3], in[4]), in[5], in[6], in[7], in[8]});
    for (std::size_t n = 0; n < cell.size(); ++n) {
      ExpectNear("output " + std::to_string(n),
                 Part(out[n], t, d.batch * d.units), cell[n], kSameEquations,
                 failures);
    }
    cs = cell[1];
    h = cell[6];
  }
  ExpectNear("cs_last", out[7], cs, kSameEquations, failures);
  ExpectNear("h_last", out[8], h, kSameEquations, failures);
}

void GruIsCells(Failures* failures) {
  const Dims& d = kStepDims;
  Random random(8);
  const Op& op = FindOp("GRU");
  const Values in = RandomInputs(op, d, kPlainOrder, &random);
  const Values out = op.reference(d, kPlainOrder, Activations(), in);
  Tensor h = in[1];
  for (int64_t t = 0; t < d.steps; ++t) {
    const Values cell =
        FindOp("GRUBlockCell")
            .reference(
                {d.batch, d.input, d.units}, 0, Activations(),
                {Part(in[0], t, d.batch * d.input), h, Stack(in[2], in[3]),
                 Stack(in[4], in[5]), in[6], in[7]});
    for (std::size_t n = 0; n < cell.size(); ++n) {
      ExpectNear("output " + std::to_string(n),
                 Part(out[n], t, d.batch * d.units), cell[n], kSameEquations,
                 failures);
    }
    h = cell[3];
  }
  ExpectNear("h_last", out[4], h, kSameEquations, failures);
}

// The loss is Σ cotangent ∘ output over some of the forward op's outputs.
struct Gradient {
  const Op& forward;
  Dims dims;
  int variant;
  std::vector<int> outputs;
  Values cotangents;
  Values in;

  double Loss() const {
    const Values out = forward.reference(dims, variant, Activations(), in);
    double loss = 0;
    for (std::size_t t = 0; t < outputs.size(); ++t) {
      for (std::size_t n = 0; n < cotangents[t].size(); ++n) {
        loss += cotangents[t][n].value * out[outputs[t]][n].value;
      }
    }
    return loss;
  }

  Tensor Differences(int input) {
    Tensor differences;
    for (Real& element : in[input]) {
      const double before = element.value;
      element = before + kDifferenceStep;
      const double above = Loss();
      element = before - kDifferenceStep;
      const double below = Loss();
      element = before;
      differences.push_back(Real((above - below) / (2 * kDifferenceStep)));
    }
    return differences;
  }
};

constexpr Dims kGradientDims = {4, 2, 3, 4};

// What a gradient op reads of the forward op, and the gradients that it gives.
struct GradientOp {
  const char* forward;
  const char* backward;
  std::vector<int> inputs;      // of the forward op, that the backward op has
  std::vector<int> saved;       // outputs of the forward op, the same
  std::vector<int> cotangents;  // outputs of the forward op, with a gradient
  std::vector<int> gradients;   // for each output of the backward op, the input
};

void CheckGradient(const GradientOp& which, int variant, Failures* failures) {
  const Op& backward = FindOp(which.backward);
  const Dims& dims = kGradientDims;
  Random random(9);
  Gradient g = {FindOp(which.forward), dims, variant, which.cotangents, {}, {}};
  g.in = RandomInputs(g.forward, dims, variant, &random);
  const Values out = g.forward.reference(dims, variant, Activations(), g.in);
  const auto specs = backward.inputs(dims, variant);
  Values in;
  for (const int input : which.inputs) in.push_back(g.in[input]);
  for (const int output : which.saved) in.push_back(out[output]);
  for (const int output : which.cotangents) {
    // One that is not given is zeros; what is there instead must not matter.
    const bool used = specs[in.size()].used;
    const std::size_t count = out[output].size();
    in.push_back(RandomTensor(count, &random));
    g.cotangents.push_back(used ? in.back() : Tensor(count));
  }
  const Values grads = backward.reference(dims, variant, Activations(), in);
  const auto grad_specs = backward.outputs(dims, variant);
  for (std::size_t t = 0; t < grads.size(); ++t) {
    if (!grad_specs[t].used) continue;
    ExpectNear(std::string(grad_specs[t].name) + " of variant " +
                   std::to_string(variant),
               grads[t], g.Differences(which.gradients[t]),
               kDifferenceTolerance, failures);
  }
}

void LstmGradient(Failures* failures) {
  const GradientOp op = {"LSTM",
                         "LSTMGrad",
                         {0, 1, 2, 3, 4, 5, 6, 7, 9, 10},
                         {0, 1, 2, 3, 4, 5, 6},
                         {1, 6, 7, 8},
                         {0, 1, 2, 3, 4, 5, 6, 7, 8, 10}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    // A clip's derivative is taken as 1: no difference shows that.
    const float clip = LstmVariant(variant).options.cell_clip;
    if (clip > 0 && !std::isinf(clip)) continue;
    CheckGradient(op, variant, failures);
  }
}

void GruGradient(Failures* failures) {
  const GradientOp op = {"GRU",        "GRUGrad", {0, 1, 2, 3, 4, 5, 8},
                         {0, 1, 2, 3}, {3, 4},    {0, 1, 2, 3, 4, 5, 6, 7}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant, failures);
  }
}

void GruAfterGradient(Failures* failures) {
  const GradientOp op = {"GRUAfter",      "GRUAfterGrad", {0, 1, 2, 3, 6},
                         {0, 1, 2, 3, 4}, {4, 5},         {0, 1, 2, 3, 4, 5}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant, failures);
  }
}

void RnnGradient(Failures* failures) {
  const GradientOp op = {"RNN", "RNNGrad", {0, 1, 2, 3, 6},
                         {0},   {0, 1},    {0, 1, 2, 3, 4}};
  for (int variant = 0; variant < kNumOrders; ++variant) {
    CheckGradient(op, variant, failures);
  }
}

// After many steps an error that is small beside the values is still seen.
void WrongResultIsSeenAfterManySteps(Failures* failures) {
  for (const Op& op : Ops()) {
    if (!op.sequence) continue;
    Case c;
    c.op = &op;
    c.dims = {20, 3, 5, 40};
    c.variant = kPlainOrder;
    const Outcome right = Run(c);
    failures->Add(Compare(c, right));
    const auto specs = op.outputs(c.dims, c.variant);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      if (!specs[t].used) continue;
      const std::size_t elements = right.outputs[t].size() / SizeOf(c.type);
      for (const std::size_t n : {std::size_t{0}, elements / 2, elements - 1}) {
        Outcome wrong = right;
        unsigned char* element = wrong.outputs[t].data() + n * SizeOf(c.type);
        const double value = Decode(c.type, element);
        Encode(c.type,
               value + SeenAfterManySteps(op.backward) * (std::fabs(value) + 1),
               element);
        failures->Expect(!Compare(c, wrong).empty(),
                         std::string(op.name) + " " + specs[t].name +
                             ": a wrong element is not seen");
      }
    }
  }
}

// Shapes that are shared out over rows and over units, of which there are more
// than a panel has, with what else a sequence may have: what one worker writes
// for the next step must not be what another still reads.
void SharedAgainstReference(const Op& op, Type type, Failures* failures) {
  // Stacks have other variants, and the longest shape takes the reference long.
  if (!op.sequence || op.variants != kNumOrders) return;
  constexpr int64_t kMostSteps = 10;
  Case c;
  c.op = &op;
  c.type = type;
  c.host.num_threads = 3;
  for (const Dims& dims : SharedSequences()) {
    if (dims.steps > kMostSteps) continue;
    c.dims = dims;
    for (int variant = 0; variant < kNumOrders; ++variant) {
      const Order& order = kOrders[variant];
      if (!order.drops || order.mask == Mask::kNothing) continue;
      c.variant = variant;
      failures->Add(RunAndCompare(c));
    }
  }
}

// A call asks before every step at least, and stops at the first yes.
void CancelledBetweenSteps(const Op& op, Type type, Failures* failures) {
  if (!op.sequence) return;
  Case c;
  c.op = &op;
  c.type = type;
  // Not shared out, over rows, over units.
  for (const Dims& dims :
       {Dims{3, 5, 7, 30}, Dims{40, 2, 33, 30}, Dims{2, 2, 150, 4}}) {
    for (const int threads : {1, 3}) {
      c.dims = dims;
      c.host = HostOptions();
      c.host.num_threads = threads;
      c.host.cancel_at = std::numeric_limits<int>::max();
      const Outcome whole = Run(c);
      failures->Expect(whole.status == cpu::Status::kOk,
                       Describe(c) + ": cancelled for nothing");
      failures->Expect(whole.polls >= dims.steps,
                       Describe(c) + ": asks less than once a step");
      for (const int cancel_at : {0, 1, whole.polls / 2, whole.polls - 1}) {
        c.host.cancel_at = cancel_at;
        const Outcome outcome = Run(c);
        failures->Expect(outcome.problem.empty(),
                         Describe(c) + outcome.problem);
        failures->Expect(outcome.status == cpu::Status::kCancelled,
                         Describe(c) + ": the status is not kCancelled");
      }
    }
  }
}

// The products of the weights' gradients ask as well, between their pieces.
void CancelledBetweenProducts(const Op& op, Type type, Failures* failures) {
  if (!op.sequence || std::string(op.name).find("Grad") == std::string::npos)
    return;
  Case c;
  c.op = &op;
  c.type = type;
  c.dims = {600, 64, 64, 1};
  c.host.cancel_at = std::numeric_limits<int>::max();
  const Outcome whole = Run(c);
  // More often than for the stages of a step.
  failures->Expect(
      whole.polls >= 5,
      Describe(c) + ": asks " + std::to_string(whole.polls) + " times only");
}

const bool kTests[] = {
    AddTest("reference_is_cells/LSTM", &LstmIsCells),
    AddTest("reference_is_cells/GRU", &GruIsCells),
    AddTest("reference_gradient/LSTM", &LstmGradient),
    AddTest("reference_gradient/GRU", &GruGradient),
    AddTest("reference_gradient/GRUAfter", &GruAfterGradient),
    AddTest("reference_gradient/RNN", &RnnGradient),
    AddTest("wrong_result_is_seen_after_many_steps",
            &WrongResultIsSeenAfterManySteps),
    AddOpTest("shared_against_reference", &SharedAgainstReference),
    AddOpTest("cancelled_between_steps", &CancelledBetweenSteps),
    AddOpTest("cancelled_between_products", &CancelledBetweenProducts),
};

}  // namespace
}  // namespace blockrnn::test
