// Describes LSTMBlockCell, its gradient, and the LSTM over a sequence.

#include <cstdint>
#include <limits>
#include <vector>

#include "cc/core/lstm_cell.h"
#include "tests/cpp/sequence_op.h"

namespace blockrnn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Multiples of ½, so that the identity form stays exact. A clip of 0, below 0
// or NaN is no clip; one of infinity clips nothing.
constexpr LstmOptions kCellOptions[] = {
    {1.0f, 0.0f, false},       {1.0f, 0.5f, true},  {0.0f, 0.0f, true},
    {-2.5f, 0.5f, false},      {1.0f, kNan, true},  {0.5f, kInfinity, true},
    {1.0f, kInfinity, false},  {0.0f, -1.0f, true}, {1.0f, kNan, false},
    {0.0f, -kInfinity, false}, {1.0f, 3.0f, true},
};

// Except in the identity form, numbers that double has and float has not.
LstmOptions OptionsOf(const Case& c) {
  LstmOptions options = kCellOptions[c.variant];
  if (c.HasIdentity()) return options;
  options.forget_bias *= 1.1;
  options.cell_clip *= 1.1;
  return options;
}

CellSpec Spec(const LstmOptions& options) {
  CellSpec cell;
  cell.forget_bias = options.forget_bias;
  cell.cell_clip = options.cell_clip;
  return cell;
}

TensorSpec Peephole(const char* name, const Dims& d, bool used) {
  return {name, d.units, Fill::kState, used};
}

struct CellForward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const bool peephole = kCellOptions[variant].use_peephole;
    const int64_t n = d.batch * d.units;
    return {{"x", d.batch * d.input},
            {"cs_prev", n},
            {"h_prev", n},
            {"w", (d.input + d.units) * 4 * d.units, Fill::kWeight},
            Peephole("wci", d, peephole),
            Peephole("wcf", d, peephole),
            Peephole("wco", d, peephole),
            {"b", 4 * d.units}};
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"i", n},  {"cs", n}, {"f", n}, {"o", n},
            {"ci", n}, {"co", n}, {"h", n}};
  }
  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  static std::vector<Tensor> Reference(const Case& c,
                                       const std::vector<Tensor>& inputs,
                                       const NamedTensors*) {
    const Dims& d = c.dims;
    NamedTensors in = Used(c, inputs);
    SplitRows("w", d.input * 4 * d.units, "w_x", "w_h", &in);
    in["b_x"] = in["b"];
    const SequenceReference reference =
        OneStep(d, Spec(OptionsOf(c)), Activations{c.HasIdentity()});
    return OutputsOf(c, reference.Forward(in));
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    LstmCellForwardArgs<T> args;
    args.dims = {call.of.dims.batch, call.of.dims.input, call.of.dims.units};
    args.options = OptionsOf(call.of);
    SetPointers(call, &args);
    return RunForward<T>(call, args);
  }
};

// Variant 1 has peepholes. The gradients of the gates' sums are dicfo.
struct CellBackward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const int64_t n = d.batch * d.units;
    return {{"cs_prev", n},
            Peephole("wci", d, variant == 1),
            Peephole("wcf", d, variant == 1),
            Peephole("wco", d, variant == 1),
            {"i", n, Fill::kGate},
            {"cs", n},
            {"f", n, Fill::kGate},
            {"o", n, Fill::kGate},
            {"ci", n},
            {"co", n},
            {"cs_grad", n},
            {"h_grad", n}};
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const int64_t n = d.batch * d.units;
    return {{"cs_prev_grad", n},
            {"dicfo", 4 * n},
            Peephole("wci_grad", d, variant == 1),
            Peephole("wcf_grad", d, variant == 1),
            Peephole("wco_grad", d, variant == 1)};
  }
  // The peephole gradients are sums over the batch.
  static int64_t Reduction(const Dims& d) { return d.batch; }

  static std::vector<Tensor> Reference(const Case& c,
                                       const std::vector<Tensor>& inputs,
                                       const NamedTensors*) {
    const Dims& d = c.dims;
    const NamedTensors in = Used(c, inputs);
    const CellReference cell(CellSpec(), d.units, Activations(), in);
    const auto row = [&](const char* name, int64_t b) {
      const auto from = Find(in, name).begin() + b * d.units;
      return Tensor(from, from + d.units);
    };
    NamedTensors out;
    NamedSums sums;
    for (const char* name : {"wci", "wcf", "wco"}) sums[name].resize(d.units);
    for (int64_t b = 0; b < d.batch; ++b) {
      Step step;
      cell.ForEachSaved(&step, [&](const char* name, Tensor* saved) {
        *saved = row(name, b);
      });
      step.cs = row("cs", b);
      const StepGrads grads =
          cell.Backward(step, nullptr, {}, row("cs_prev", b), row("h_grad", b),
                        row("cs_grad", b), &sums);
      Tensor &dicfo = out["dicfo"], &cs_prev_grad = out["cs_prev_grad"];
      dicfo.insert(dicfo.end(), grads.of_x.begin(), grads.of_x.end());
      cs_prev_grad.insert(cs_prev_grad.end(), grads.cs_prev.begin(),
                          grads.cs_prev.end());
    }
    for (const auto& [name, sum] : sums) out[name + "_grad"] = Totals(sum);
    return OutputsOf(c, out);
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    LstmCellBackwardArgs<T> args;
    args.dims = {call.of.dims.batch, call.of.dims.input, call.of.dims.units};
    args.options.use_peephole = call.of.variant == 1;
    SetPointers(call, &args);
    return RunEngine<T>(call, args);
  }
};

constexpr LstmOptions kOptions[kNumOrders] = {
    {1.0f, 0.0f, false}, {0.5f, 0.5f, true},      {1.0f, 0.0f, true},
    {0.0f, 0.0f, false}, {1.0f, -1.0f, false},    {-2.5f, 0.5f, false},
    {1.0f, 0.0f, true},  {0.0f, 3.0f, true},      {0.0f, 0.5f, false},
    {1.0f, kNan, false}, {0.0f, kInfinity, true}, {1.0f, kInfinity, false},
    {1.0f, 0.0f, true},  {1.0f, 0.0f, false},     {0.5f, 0.0f, true},
    {1.0f, 0.5f, true},  {0.0f, 0.0f, false},
};
constexpr bool kProjects[kNumOrders] = {
    false, false, true, false, false, false, false, true,  true,
    false, true,  true, false, true,  false, true,  false,
};

class Lstm
    : public FamilyOf<LstmSequenceForwardArgs, LstmSequenceBackwardArgs> {
 public:
  Lstm(const Dims& d, int variant)
      : FamilyOf(d, variant, true),
        options_(kOptions[variant % kNumOrders]),
        projects_(kProjects[variant % kNumOrders]),
        layout_(variant % 2 == 1 ? kLstmIfco : kLstmIcfo) {}

  CellSpec Cell() const override {
    CellSpec cell = Spec(options_);
    if (variant % 2 == 1) cell.places = {0, 2, 1, 3};
    return cell;
  }
  int64_t Width() const override {
    return projects_ ? (dims.units + 1) / 2 : dims.units;
  }
  bool GivesCo() const override { return variant % 3 != 2 && !order.zones; }

  std::vector<TensorSpec> Inputs() const override {
    const int64_t units = dims.units;
    const bool peephole = options_.use_peephole;
    return {{"x", StepsOf().InputSize()},
            State("cs_prev"),
            {"h_prev", dims.batch * Width()},
            InputWeights("w_x", 4),
            StateWeights("w_h", 4),
            Peephole("wci", dims, peephole),
            Peephole("wcf", dims, peephole),
            Peephole("wco", dims, peephole),
            {"b", 4 * units},
            Dropout(),
            {"w_p", Width() * units, Fill::kWeight, projects_}};
  }
  std::vector<TensorSpec> Saved() const override {
    return {Array("i", Fill::kGate), Array("cs"), Array("f", Fill::kGate),
            Array("o", Fill::kGate), Array("ci"), Array("co")};
  }

  template <class Args>
  void SetOptions(Args* args) const {
    args->layout = layout_;
    args->options = options_;
    args->proj = projects_ ? Width() : 0;
  }

 private:
  const LstmOptions options_;
  const bool projects_;
  const LstmGateLayout layout_;
};

constexpr int kCellVariants = sizeof(kCellOptions) / sizeof(kCellOptions[0]);

// The backward reads activations as given, so it has an identity form as it is.
const bool kAdded =
    AddOp({"LSTMBlockCell", false, true, kCellVariants, &CellForward::Inputs,
           &CellForward::Outputs, &CellForward::Reduction,
           &CellForward::Reference, &CallWithType<CellForward>}) &&
    AddOp({"LSTMBlockCellGrad", true, true, 2, &CellBackward::Inputs,
           &CellBackward::Outputs, &CellBackward::Reduction,
           &CellBackward::Reference, &CallWithType<CellBackward>}) &&
    AddSequenceOps<Lstm>("LSTM", "LSTMGrad");

}  // namespace
}  // namespace blockrnn::test
