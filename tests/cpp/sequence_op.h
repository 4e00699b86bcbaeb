// Defines the ops over sequences, forward and backward, from one description
// of a cell's tensors: its family. Tensors have the names that they have in the
// engine's arguments.

#ifndef BLOCKRNN_TESTS_CPP_SEQUENCE_OP_H_
#define BLOCKRNN_TESTS_CPP_SEQUENCE_OP_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cpp/identity.h"
#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/sequence_reference.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {

// A cell, its sizes, and its options in one variant.
class SequenceFamily {
 public:
  // has_zoneout, has_by_unit: whether the cell has these options.
  SequenceFamily(const Dims& d, int variant, bool has_zoneout,
                 bool has_by_unit = true);
  virtual ~SequenceFamily() = default;

  virtual CellSpec Cell() const = 0;
  // Of a forward call. The backward call has them, too, and their gradients.
  virtual std::vector<TensorSpec> Inputs() const = 0;
  // What a forward call saves for backward, besides h.
  virtual std::vector<TensorSpec> Saved() const = 0;
  // Of h.
  virtual int64_t Width() const { return dims.units; }
  // Whether the backward call gets the saved co.
  virtual bool GivesCo() const { return false; }
  // From the names of the engine to those of SequenceReference, and back.
  virtual void ToReference(NamedTensors* tensors) const;
  virtual void FromReference(NamedTensors* tensors) const;

  Steps StepsOf() const { return Steps(dims, order, Cell().Gates()); }
  // Weights of all gates, or of some.
  TensorSpec InputWeights(const char* name, int64_t gates) const {
    return {name, dims.input * gates * dims.units, Fill::kWeight,
            order.input == Input::kMultiplied};
  }
  TensorSpec StateWeights(const char* name, int64_t gates) const {
    return {name, Width() * gates * dims.units, Fill::kWeight};
  }
  TensorSpec Dropout() const {
    return {"recurrent_dropout", Cell().Gates() * dims.batch * Width(),
            Fill::kGate, order.drops};
  }
  TensorSpec State(const char* name) const {
    return {name, dims.batch * dims.units};
  }
  // [steps, batch, H]
  TensorSpec Array(const char* name, Fill fill = Fill::kState,
                   int64_t width_in_units = 1) const {
    return {name, rows * width_in_units * dims.units, fill};
  }

  // Of a GRU with the reset after the GEMM, and the two gate orders of GRUs.
  std::vector<TensorSpec> GruAfterInputs() const {
    return {{"x", StepsOf().InputSize()},
            State("h_prev"),
            InputWeights("w_x", 3),
            StateWeights("w_h", 3),
            {"b_x", 3 * dims.units},
            {"b_h", 3 * dims.units},
            Dropout()};
  }
  void SetGruAfter(CellSpec* cell) const {
    cell->kind = CellKind::kGruAfter;
    cell->places = {variant % 2, 1 - variant % 2, 2};
  }

  const Dims dims;
  const int variant;
  const Order order;
  const int64_t rows;  // of sequences
};

// The same with the engine's arguments.
template <template <class> class ForwardArgs,
          template <class> class BackwardArgs, bool kIdentity = true>
class FamilyOf : public SequenceFamily {
 public:
  template <class T>
  using Forward = ForwardArgs<T>;
  template <class T>
  using Backward = BackwardArgs<T>;
  static constexpr bool kHasIdentity = kIdentity;

  using SequenceFamily::SequenceFamily;

  // Of cells that have no options of their own.
  template <class Args>
  void SetOptions(Args*) const {}
};

std::vector<TensorSpec> ForwardOutputs(const SequenceFamily& family);
std::vector<TensorSpec> BackwardInputs(const SequenceFamily& family);
// Of all inputs, whether the engine has it or not.
std::vector<TensorSpec> AllGradients(const SequenceFamily& family);
// Makes the inputs of a backward call consistent with what the forward op can
// output.
void PrepareSequence(const SequenceFamily& family, const Case& c,
                     std::vector<Tensor>* inputs);
std::vector<Tensor> SequenceOutputs(const SequenceFamily& family, const Case& c,
                                    const std::vector<Tensor>& inputs,
                                    const NamedTensors* computed);

// Throws unless every span state was written, and nothing past them: the last
// number, alone, is still what all were before.
void CheckSpanStates(const std::vector<float>& states, float before);

// The inputs that a call has, by name.
NamedTensors Used(const Case& c, const std::vector<Tensor>& inputs);
// The outputs in their order; what is not there is zeros.
std::vector<Tensor> OutputsOf(const Case& c, NamedTensors tensors);
// Weights of x and h, one above the other, apart.
void SplitRows(const char* stacked, int64_t elements_of_x, const char* of_x,
               const char* of_h, NamedTensors* tensors);
// Of a cell's only step.
SequenceReference OneStep(const Dims& d, const CellSpec& cell,
                          Activations activations);

// Those gradients that the engine has.
template <class Family>
std::vector<TensorSpec> BackwardOutputs(const Family& family) {
  static constexpr ArgumentMembers<typename Family::template Backward<float>>
      kMembers;
  std::vector<TensorSpec> specs;
  for (const TensorSpec& spec : AllGradients(family)) {
    if (std::any_of(kMembers.begin(), kMembers.end(),
                    [&](const auto& m) { return m.name == spec.name; })) {
      specs.push_back(spec);
    }
  }
  return specs;
}

// The arguments other than tensors. Lives as long as the call.
class SequenceOptions {
 public:
  explicit SequenceOptions(const SequenceFamily& family)
      : sequence_(family.StepsOf()),
        of_h_(family.StepsOf(), 0, family.Width()),
        of_cs_(family.StepsOf(), 1, family.dims.units) {}

  template <class Family, class Args>
  void Fill(const Family& family, Args* args) const {
    sequence_.Fill(args);
    args->zoneout_h = of_h_.Get();
    SetCellZoneout(args, 0);
    family.SetOptions(args);
  }

 private:
  // Of the cells that have it.
  template <class Args>
  auto SetCellZoneout(Args* args, int) const
      -> decltype(args->zoneout_c, void()) {
    args->zoneout_c = of_cs_.Get();
  }
  template <class Args>
  void SetCellZoneout(Args*, long) const {}  // NOLINT: of a lower rank

  const SequenceCall sequence_;
  const StateDraws of_h_;
  const StateDraws of_cs_;
};

template <class Args, class = void>
struct HasActivations : std::false_type {};
template <class Args>
struct HasActivations<Args, decltype(Args::activations, void())>
    : std::true_type {};

template <class Family>
struct ForwardCall {
  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Family family(call.of.dims, call.of.variant);
    const SequenceOptions options(family);
    typename Family::template Forward<T> args;
    options.Fill(family, &args);
    args.batch_invariant = call.of.batch_invariant;
    if constexpr (HasActivations<decltype(args)>::value) {
      args.activations = call.of.activations;
    }
    SetPointers(family.Inputs(), call.inputs.data(), true, &args);
    SetPointers(ForwardOutputs(family), call.outputs.data(), true, &args);
    return RunForward<T, Family::kHasIdentity>(call, args);
  }
};

template <class Family>
struct BackwardCall {
  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Family family(call.of.dims, call.of.variant);
    const SequenceOptions options(family);
    typename Family::template Backward<T> args;
    options.Fill(family, &args);
    SetPointers(BackwardInputs(family), call.inputs.data(), true, &args);
    SetPointers(BackwardOutputs(family), call.outputs.data(), false, &args);
    return RunEngine<T>(call, args);
  }
};

// Runs a call of float, which must succeed.
template <class Args>
void RunFloat(const Args& args) {
  TestHost host({});
  const cpu::Status status = blockrnn_cpu_engine()->f32.Run(args, host.host());
  host.FreeScratch();
  host.FinishClosures();
  if (status != cpu::Status::kOk || !host.Problems().empty()) {
    throw std::runtime_error("the call failed: " + host.Problems());
  }
}

template <class Family>
NamedArrays Train(const TrainingCall& call) {
  const Family family(call.dims, call.variant);
  const SequenceOptions options(family);
  typename Family::template Forward<float> forward;
  typename Family::template Backward<float> backward;
  options.Fill(family, &forward);
  options.Fill(family, &backward);
  forward.shape.saved_in_steps = call.saved_in_steps;
  backward.shape.saved_in_steps = call.saved_in_steps;
  Random random(1);
  NamedArrays read, written;
  const auto set = [&](const TensorSpec& spec, NamedArrays* arrays,
                       auto* args) {
    if (!spec.used) return;
    std::vector<float>& array = (*arrays)[spec.name];
    array.resize(spec.count, std::numeric_limits<float>::quiet_NaN());
    const void* const pointer = array.data();
    SetPointers({spec}, &pointer, false, args);
  };
  const auto draw = [&](const TensorSpec& spec) {
    std::vector<float>& array = read[spec.name];
    for (int64_t n = 0; n < spec.count; ++n) {
      array.push_back(static_cast<float>(random.Signed() / 2));
    }
  };
  for (const TensorSpec& spec : family.Inputs()) {
    draw(spec);
    set(spec, &read, &forward);
    set(spec, &read, &backward);
  }
  std::vector<TensorSpec> outputs = ForwardOutputs(family);
  const std::size_t num_saved = family.Saved().size();
  for (std::size_t t = 0; t < outputs.size(); ++t) {
    const bool saved = t < num_saved;
    outputs[t].used =
        outputs[t].name != "co" && (call.span_steps == 0 || !saved);
    set(outputs[t], &written, &forward);
  }
  for (const TensorSpec& spec : BackwardInputs(family)) {
    if (written.count(spec.name) > 0) {
      set(spec, &written, &backward);
    } else if (spec.name.find("_grad") != std::string::npos) {
      draw(spec);
      set(spec, &read, &backward);
    }
  }
  for (const TensorSpec& spec : BackwardOutputs(family)) {
    set(spec, &written, &backward);
  }
  int64_t spans = 1;  // also of no steps
  if (call.span_steps > 0 && call.dims.steps > 0) {
    spans = (call.dims.steps + call.span_steps - 1) / call.span_steps;
  }
  const int64_t state =
      family.Width() + (family.Cell().HasCellState() ? call.dims.units : 0);
  std::vector<float> states((spans - 1) * call.dims.batch * state + 1, -7);
  forward.span_steps = backward.span_steps = call.span_steps;
  forward.span_states = states.data();
  backward.span_states = states.data();
  RunFloat(forward);
  CheckSpanStates(states, -7);
  const std::vector<float> before = states;
  RunFloat(backward);
  if (states != before) throw std::runtime_error("span_states was written");
  return written;
}

// The backward reads activations as given, so it has an identity form as it is,
// unless it computes them again from norms.
template <class Family>
bool AddSequenceOps(const char* forward_name, const char* backward_name) {
  Op op = {};
  op.has_identity = Family::kHasIdentity;
  op.variants = kNumOrders;
  op.sequence = true;
  op.name = forward_name;
  op.exact_steps = Family::kHasIdentity ? 2 : 1;
  op.inputs = [](const Dims& d, int variant) {
    return Family(d, variant).Inputs();
  };
  op.outputs = [](const Dims& d, int variant) {
    return ForwardOutputs(Family(d, variant));
  };
  op.reduction = [](const Dims& d) {
    const CellSpec cell = Family(d, 0).Cell();
    return cell.normed ? std::max(d.input, cell.Gates() * d.units)
                       : d.input + d.units;
  };
  op.prepare = [](const Case& c, std::vector<Tensor>* inputs) {
    PrepareSequence(Family(c.dims, c.variant), c, inputs);
  };
  op.reference = [](const Case& c, const std::vector<Tensor>& inputs,
                    const NamedTensors* computed) {
    return SequenceOutputs(Family(c.dims, c.variant), c, inputs, computed);
  };
  op.call = &CallWithType<ForwardCall<Family>>;
  op.train = &Train<Family>;
  op.more_variants = kMoreVariants;
  op.has_activations =
      HasActivations<typename Family::template Forward<float>>::value;
  AddOp(op);
  op.train = nullptr;
  op.has_activations = false;
  op.backward = true;
  op.name = backward_name;
  op.exact_steps = Family::kHasIdentity ? 3 : 1;
  op.inputs = [](const Dims& d, int variant) {
    return BackwardInputs(Family(d, variant));
  };
  op.outputs = [](const Dims& d, int variant) {
    return BackwardOutputs(Family(d, variant));
  };
  // x_grad and h_prev_grad sum over gates, the others over rows.
  op.reduction = [](const Dims& d) {
    return std::max(Family(d, 0).Cell().Gates() * d.units, d.batch);
  };
  op.call = &CallWithType<BackwardCall<Family>>;
  return AddOp(op);
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_SEQUENCE_OP_H_
