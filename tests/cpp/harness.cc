#include "tests/cpp/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <tuple>

#include "tests/cpp/heap.h"
#include "tests/cpp/random.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

constexpr const char* kDataNames[] = {"plain", "large", "tiny", "specials",
                                      "integers"};
constexpr const char* kPoolNames[] = {"threads", "late", "never",
                                      "refuses some", "refuses all"};
static_assert(std::size(kPoolNames) == kNumPools);

thread_local char running_case[320];

void (*recorder)(const Case&) = nullptr;

// As of a call that computes nothing.
Outcome Record(const Case& c) {
  recorder(c);
  Outcome outcome;
  for (const TensorSpec& spec : c.op->outputs(c.dims, c.variant)) {
    outcome.outputs.emplace_back(spec.count * SizeOf(c.type));
  }
  return outcome;
}

// −1, 0 or 1; with `density`, enough weights are 0 for sums to stay small.
double DrawInteger(Random* random, double density) {
  if (random->Unit() >= density) return 0;
  return static_cast<double>(random->Below(3) - 1);
}

double DrawOrdinary(Random* random, Fill fill, double weight_size) {
  switch (fill) {
    case Fill::kState:
      return random->Signed();
    case Fill::kWeight:
      return weight_size * random->Signed();
    case Fill::kGate: {
      // A gate that is 0 or 1 makes a gradient exactly zero.
      const int64_t end = random->Below(16);
      return end < 2 ? static_cast<double>(end) : random->Unit();
    }
  }
  return 0;
}

double Draw(const Case& c, Fill fill, Random* random) {
  const double depth =
      static_cast<double>(std::max<int64_t>(c.dims.input + c.dims.units, 1));
  if (c.HasIdentity()) {
    return DrawInteger(random,
                       fill == Fill::kWeight ? std::min(1.0, 24 / depth) : 1);
  }
  const double value = DrawOrdinary(random, fill, 2 / std::sqrt(depth));
  switch (c.data) {
    case Data::kLarge:
      return fill == Fill::kGate ? value : 8 * value;
    case Data::kTiny:
      return value * std::pow(2.0, -static_cast<double>(random->Below(150)));
    case Data::kSpecials: {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      constexpr double kSpecials[] = {0.0, -0.0, kInfinity, -kInfinity,
                                      std::numeric_limits<double>::quiet_NaN()};
      // Rare in weights, since one of them is in a column of every row.
      const bool special = random->Below(fill == Fill::kWeight ? 256 : 12) == 0;
      return special ? kSpecials[random->Below(5)] : value;
    }
    default:
      return value;
  }
}

// The tensors of one side of a call, in guarded memory.
class Tensors {
 public:
  Tensors(const Case& c, const std::vector<TensorSpec>& specs) : specs_(specs) {
    const std::size_t size = SizeOf(c.type);
    for (const TensorSpec& spec : specs) {
      const GuardedBlock& block =
          blocks_.emplace_back(spec.count * size, c.offset * size);
      // All ones is a NaN of every type: an output that is not written is seen.
      std::fill_n(block.data(), block.size(), 0xFF);
    }
  }

  void Fill(Type type, const std::vector<Tensor>& values) {
    for (std::size_t t = 0; t < blocks_.size(); ++t) {
      for (std::size_t n = 0; n < values[t].size(); ++n) {
        Encode(type, values[t][n].value, blocks_[t].data() + n * SizeOf(type));
      }
    }
  }

  // The pointers that the engine gets: nullptr for an empty tensor, as from
  // TensorFlow.
  template <class Pointer>
  std::vector<Pointer> Pointers(bool hide_unused) const {
    std::vector<Pointer> pointers;
    for (std::size_t t = 0; t < blocks_.size(); ++t) {
      const bool hidden = hide_unused && !specs_[t].used;
      pointers.push_back(hidden || blocks_[t].size() == 0 ? nullptr
                                                          : blocks_[t].data());
    }
    return pointers;
  }

  std::vector<std::vector<unsigned char>> Bytes() const {
    std::vector<std::vector<unsigned char>> bytes;
    for (const GuardedBlock& block : blocks_) {
      bytes.emplace_back(block.data(), block.data() + block.size());
    }
    return bytes;
  }

  std::string BrokenGuards() const {
    std::string broken;
    for (std::size_t t = 0; t < blocks_.size(); ++t) {
      if (!blocks_[t].Intact()) {
        broken += specs_[t].name + " was written outside; ";
      }
    }
    return broken;
  }

 private:
  const std::vector<TensorSpec> specs_;
  std::vector<GuardedBlock> blocks_;
};

bool AllOnes(const std::vector<unsigned char>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](unsigned char byte) { return byte == 0xFF; });
}

// The first element of one output that is wrong, and how many are.
std::string CompareTensor(const Case& c, const TensorSpec& spec,
                          const std::vector<unsigned char>& bytes,
                          const Tensor& want) {
  double relative = 0;
  double absolute = 0;
  if (!c.HasIdentity()) {
    const bool by_step = c.weights.precision != Precision::kStorage;
    const int64_t steps = by_step ? 1 : std::max<int64_t>(c.dims.steps, 1);
    const int64_t reduction = c.op->reduction(c.dims);
    relative = RelativeTolerance(
        c.type, c.op->backward, by_step ? reduction : reduction * c.dims.steps);
    absolute = AbsoluteTolerance(c.type);
    if (by_step) absolute += FlushedOperands(reduction);
    if (c.type == Type::kBfloat16 && MultipliesBfloat16()) {
      relative += RoundedOperands(c.op->backward, steps);
      absolute += FlushedOperands(reduction * steps);
    }
  }
  std::ostringstream first;
  first.precision(17);
  int64_t wrong = 0;
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (want[n].open) continue;
    const double got = Decode(c.type, bytes.data() + n * SizeOf(c.type));
    const double scale =
        std::isfinite(want[n].scale) ? want[n].scale : std::fabs(want[n].value);
    const double tolerance = relative * scale + absolute;
    if (InRange(c.type, got, want[n].value, tolerance)) continue;
    if (wrong++ == 0) {
      first << spec.name << "[" << n << "] is " << got << ", must be "
            << want[n].value << " within " << tolerance;
    }
  }
  if (wrong == 0) return "";
  first << " (" << wrong << " of " << want.size() << " are wrong); ";
  return first.str();
}

// The inputs, rounded to the case's type.
std::vector<Tensor> DrawAnew(const Case& c) {
  Random random(c.seed);
  std::vector<Tensor> inputs;
  for (const TensorSpec& spec : c.op->inputs(c.dims, c.variant)) {
    Tensor& tensor = inputs.emplace_back(spec.count);
    for (Real& element : tensor) {
      element = Draw(c, spec.fill, &random);
    }
  }
  if (c.op->prepare != nullptr) c.op->prepare(c, &inputs);
  if (c.edit) c.edit(c.op->inputs(c.dims, c.variant), &inputs);
  for (Tensor& tensor : inputs) {
    for (Real& element : tensor) element = RoundTo(c.type, element.value);
  }
  return inputs;
}

// The outputs as the reference takes them.
NamedTensors Computed(const Case& c, const Outcome& outcome) {
  NamedTensors computed;
  const auto specs = c.op->outputs(c.dims, c.variant);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    for (int64_t n = 0; n < specs[t].count; ++n) {
      computed[specs[t].name].push_back(
          Decode(c.type, outcome.outputs[t].data() + n * SizeOf(c.type)));
    }
  }
  return computed;
}

// One case follows another with the same inputs, and with the same outputs of
// the reference, for they depend on nothing else.
class LastOf {
 public:
  template <class Make>
  const std::vector<Tensor>& Get(const Case& c, const Make& make) {
    const Key key = {c.op->name,
                     c.type,
                     c.variant,
                     c.data,
                     c.seed,
                     c.dims.batch,
                     c.dims.input,
                     c.dims.units,
                     c.dims.steps,
                     c.weights.kind,
                     c.activations.hard_sigmoid,
                     c.activations.relu};
    if (c.edit || key_ != key) tensors_ = make();
    key_ = c.edit ? std::nullopt : std::optional(key);
    return tensors_;
  }

 private:
  using Key =
      std::tuple<const char*, Type, int, Data, uint64_t, int64_t, int64_t,
                 int64_t, int64_t, WeightForm::Kind, float, bool>;
  std::optional<Key> key_;
  std::vector<Tensor> tensors_;
};

// Which outputs are NaN.
std::string FindNan(const Case& c, const Outcome& outcome) {
  std::string found;
  const auto specs = c.op->outputs(c.dims, c.variant);
  for (std::size_t t = 0; t < specs.size() && c.data == Data::kPlain; ++t) {
    for (int64_t n = 0; n < specs[t].count && specs[t].used; ++n) {
      const unsigned char* const element =
          outcome.outputs[t].data() + n * SizeOf(c.type);
      if (!std::isnan(Decode(c.type, element))) continue;
      found += specs[t].name + "[" + std::to_string(n) + "] is NaN; ";
      break;
    }
  }
  return found;
}

}  // namespace

std::vector<Tensor> DrawInputs(const Case& c) {
  thread_local LastOf last;
  return last.Get(c, [&] { return DrawAnew(c); });
}

std::string Describe(const Case& c) {
  std::ostringstream out;
  out << c.op->name << " " << Name(c.type) << " B=" << c.dims.batch
      << " I=" << c.dims.input << " H=" << c.dims.units << " T=" << c.dims.steps
      << " variant=" << c.variant
      << " data=" << kDataNames[static_cast<int>(c.data)] << " seed=" << c.seed
      << " offset=" << c.offset << " threads=" << c.host.num_threads
      << " pool=" << kPoolNames[static_cast<int>(c.host.pool)]
      << " fail_allocation=" << c.host.fail_allocation
      << " cancel_at=" << c.host.cancel_at << " heap_is_dry=" << c.heap_is_dry
      << " weights=" << c.weights.kind
      << " precision=" << static_cast<int>(c.weights.precision)
      << " batch_invariant=" << c.batch_invariant
      << " hard_sigmoid=" << c.activations.hard_sigmoid
      << " relu=" << c.activations.relu;
  return out.str();
}

const char* RunningCase() { return running_case; }

void RecordCases(void (*record)(const Case&)) { recorder = record; }

Outcome RunCase(const Case& c) {
  if (recorder != nullptr) return Record(c);
  std::snprintf(running_case, sizeof(running_case), "%s", Describe(c).c_str());
  Outcome outcome;
  TestHost host(c.host);
  {
    Tensors inputs(c, c.op->inputs(c.dims, c.variant));
    inputs.Fill(c.type, DrawInputs(c));
    const auto inputs_before = inputs.Bytes();
    const auto output_specs = c.op->outputs(c.dims, c.variant);
    const Tensors outputs(c, output_specs);
    try {
      outcome.status =
          c.op->call({c, host.host(), inputs.Pointers<const void*>(true),
                      outputs.Pointers<void*>(false), &outcome.packed});
    } catch (const std::exception& e) {
      outcome.problem += std::string("threw ") + e.what() + "; ";
    }
    outcome.problem += inputs.BrokenGuards() + outputs.BrokenGuards();
    if (inputs.Bytes() != inputs_before) outcome.problem += "wrote an input; ";
    outcome.outputs = outputs.Bytes();
    for (std::size_t t = 0; t < output_specs.size(); ++t) {
      if (!output_specs[t].used && !AllOnes(outcome.outputs[t])) {
        outcome.problem +=
            output_specs[t].name + " was written and must not be; ";
      }
    }
  }
  // The tensors are freed by now. A closure that runs this late must not read
  // them.
  host.FreeScratch();
  host.FinishClosures();
  outcome.problem += host.Problems();
  outcome.allocations = host.allocations();
  outcome.polls = host.polls();
  outcome.closures = host.closures();
  return outcome;
}

std::string Compare(const Case& c, const Outcome& outcome) {
  if (recorder != nullptr) return "";
  if (c.op->reference == nullptr) return FindNan(c, outcome);
  thread_local LastOf last;
  std::vector<Tensor> want;
  if (c.weights.precision == Precision::kStorage) {
    want =
        last.Get(c, [&] { return c.op->reference(c, DrawInputs(c), nullptr); });
  } else {
    const NamedTensors computed = Computed(c, outcome);
    want = c.op->reference(c, DrawInputs(c), &computed);
  }
  const auto specs = c.op->outputs(c.dims, c.variant);
  std::string wrong;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (!specs[t].used) continue;
    if (c.HasIdentity()) {
      for (const Real& element : want[t]) {
        if (element.scale < ExactLimit(c.type)) continue;
        return "the test's integers are too large to compare exactly";
      }
    }
    wrong += CompareTensor(c, specs[t], outcome.outputs[t], want[t]);
  }
  return wrong;
}

std::string RunAndCompare(const Case& c) {
  const Outcome outcome = RunCase(c);
  std::string wrong = outcome.problem;
  if (outcome.status == cpu::Status::kOk) {
    wrong += Compare(c, outcome);
  } else {
    wrong += "status " + std::to_string(static_cast<int>(outcome.status)) +
             ", must be 0";
  }
  return wrong.empty() ? "" : Describe(c) + ": " + wrong;
}

}  // namespace blockrnn::test
