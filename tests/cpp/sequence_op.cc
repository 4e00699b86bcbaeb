#include "tests/cpp/sequence_op.h"

#include <cmath>
#include <initializer_list>
#include <utility>

namespace blockrnn::test {
namespace {

Order OrderOf(int variant, bool has_zoneout, bool has_by_unit) {
  Order order = test::OrderOf(variant);
  order.zones = order.zones && has_zoneout;
  order.by_unit = order.by_unit && has_by_unit;
  return order;
}

// Tensors of a call, by name.
class ByName {
 public:
  ByName(const std::vector<TensorSpec>& specs, std::vector<Tensor>* tensors)
      : specs_(specs), tensors_(*tensors) {}

  // f(tensor) for those of them that there are.
  template <class F>
  void ForEach(std::initializer_list<const char*> names, const F& f) const {
    for (std::size_t t = 0; t < specs_.size(); ++t) {
      const auto is_it = [&](const char* name) {
        return specs_[t].name == name;
      };
      if (std::any_of(names.begin(), names.end(), is_it)) f(&tensors_[t]);
    }
  }
  const Tensor& Get(const char* name) const {
    const Tensor* found = nullptr;
    ForEach({name}, [&](Tensor* tensor) { found = tensor; });
    return *found;
  }

 private:
  const std::vector<TensorSpec>& specs_;
  std::vector<Tensor>& tensors_;
};

// f(name, rows) for all matrices of x and of the state.
template <class F>
void ForEachMatrix(const SequenceFamily& family, const F& f) {
  const int64_t input = family.dims.input;
  for (const char* name : {"w_x", "w_c_x"}) f(name, input);
  for (const char* name : {"w_h", "w_c_h"}) f(name, family.Width());
}

// Inputs from the engine's layout to the reference's, or gradients back.
void TransposeMatrices(const SequenceFamily& family, bool gradients,
                       NamedTensors* tensors) {
  if (!family.order.by_unit) return;
  ForEachMatrix(family, [&](const std::string& name, int64_t rows) {
    Tensor& w = (*tensors)[gradients ? name + "_grad" : name];
    const auto elements = static_cast<int64_t>(w.size());
    const int64_t columns = rows == 0 ? 0 : elements / rows;
    w = Transposed(w, gradients ? rows : columns);
  });
}

// A norm passes errors on multiplied by up to gamma / √epsilon. Over many steps
// the bound on roundoff would grow with that and soon become meaningless. With
// small gammas of what depends on the states it stays small, while every number
// still matters.
void CalmGammas(const ByName& in) {
  const auto shrink = [](int halvings) {
    return [halvings](Tensor* gamma) {
      for (Real& element : *gamma) {
        element = std::ldexp(element.value, -halvings);
      }
    };
  };
  in.ForEach({"gamma_h"}, shrink(5));
  in.ForEach({"gamma_c"}, shrink(6));
}

void PrepareInputs(const SequenceFamily& family, bool identity,
                   const ByName& in) {
  const Dims& d = family.dims;
  const Steps steps = family.StepsOf();
  const CellSpec cell = family.Cell();
  in.ForEach({"x"}, [&](Tensor* x) { steps.SpoilPast(steps.InputWidth(), x); });
  if (cell.normed) {
    CalmGammas(in);
  } else {
    in.ForEach({"w_h", "w_c_h"},
               [&](Tensor* w) { CalmRecurrentWeights(d, w); });
  }
  ForEachMatrix(family, [&](const std::string& name, int64_t rows) {
    in.ForEach({name.c_str()}, [&](Tensor* w) {
      if (identity) SparseIntegers(rows, d.units, name.back() == 'h', w);
      if (family.order.by_unit) *w = Transposed(*w, rows);
    });
  });
  if (!identity) return;
  in.ForEach({"w_p"}, [&](Tensor* w) {
    SparseIntegers(family.Width(), d.units, false, w);
  });
}

}  // namespace

SequenceFamily::SequenceFamily(const Dims& d, int variant_in, bool has_zoneout,
                               bool has_by_unit)
    : dims(d),
      variant(variant_in),
      order(OrderOf(variant, has_zoneout, has_by_unit)),
      rows(d.steps * d.batch) {}

// One bias is that of x.
void SequenceFamily::ToReference(NamedTensors* tensors) const {
  auto bias = tensors->extract("b");
  if (bias.empty()) return;
  bias.key() = "b_x";
  tensors->insert(std::move(bias));
}

void SequenceFamily::FromReference(NamedTensors* tensors) const {
  (*tensors)["b_grad"] = (*tensors)["b_x_grad"];
}

std::vector<TensorSpec> ForwardOutputs(const SequenceFamily& family) {
  const Wants want = family.order.want;
  std::vector<TensorSpec> specs = family.Saved();
  for (TensorSpec& spec : specs) {
    spec.used = want <= (spec.name == "co" ? Wants::kAll : Wants::kTraining);
  }
  const bool last = want == Wants::kAll || want == Wants::kLast;
  specs.push_back(
      {"h", family.rows * family.Width(), {}, want != Wants::kLast});
  specs.push_back({"h_last", family.dims.batch * family.Width(), {}, last});
  if (family.Cell().HasCellState()) {
    specs.push_back(
        {"cs_last", family.dims.batch * family.dims.units, {}, last});
  }
  return specs;
}

std::vector<TensorSpec> BackwardInputs(const SequenceFamily& family) {
  const Gives give = family.order.give;
  const CellSpec cell = family.Cell();
  std::vector<TensorSpec> specs = family.Inputs();
  // Only what is computed again from norms depends on biases.
  for (TensorSpec& spec : specs) {
    if (spec.name[0] == 'b' && !cell.normed) spec.used = false;
  }
  for (TensorSpec& spec : family.Saved()) {
    spec.used = spec.name != "co" || family.GivesCo();
    specs.push_back(spec);
  }
  const int64_t width = family.Width(), batch = family.dims.batch;
  const auto add = [&](const char* name, int64_t count, Gives one) {
    specs.push_back({name, count, {}, give == Gives::kAll || give == one});
  };
  specs.push_back({"h", family.rows * width});
  add("h_grad", family.rows * width, Gives::kH);
  add("h_last_grad", batch * width, Gives::kLast);
  if (cell.HasCellState()) {
    add("cs_grad", family.rows * family.dims.units, Gives::kCs);
    add("cs_last_grad", batch * family.dims.units, Gives::kLast);
  }
  return specs;
}

std::vector<TensorSpec> AllGradients(const SequenceFamily& family) {
  std::vector<TensorSpec> specs = family.Inputs();
  for (TensorSpec& spec : specs) spec.name += "_grad";
  return specs;
}

void PrepareSequence(const SequenceFamily& family, const Case& c,
                     std::vector<Tensor>* inputs) {
  const std::vector<TensorSpec> specs = c.op->inputs(c.dims, c.variant);
  const ByName in(specs, inputs);
  const bool has_cell_state = family.Cell().HasCellState();
  PrepareInputs(family, c.HasIdentity(), in);
  const auto zero = [](Tensor* tensor) {
    std::fill(tensor->begin(), tensor->end(), 0);
  };
  if (!c.op->backward) {
    // With biases and peepholes, a second step may grow past what is exact.
    const bool grows = has_cell_state && c.dims.steps > 1;
    if (c.HasIdentity() && grows) in.ForEach({"b"}, zero);
    return;
  }
  const Steps steps = family.StepsOf();
  const int64_t units = family.dims.units, width = family.Width();
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const bool factor =
        specs[t].fill == Fill::kWeight || specs[t].name == "recurrent_dropout";
    if (factor && family.order.mask != Mask::kNone) MakeFinite(&(*inputs)[t]);
  }
  if (c.HasIdentity() && has_cell_state) {
    // tanh(0) is exact; of another integer it is not. Zoneout has cs computed
    // again, from these.
    if (!family.GivesCo()) in.ForEach({"cs"}, zero);
    if (family.order.zones) in.ForEach({"cs_prev", "ci"}, zero);
  }
  if (family.Cell().kind == CellKind::kRelu) {
    in.ForEach({"h"}, [](Tensor* h) {
      for (Real& element : *h) {
        if (element.value < 0) element = 0;
      }
    });
  }
  in.ForEach({"cs"}, [&](Tensor* cs) {
    steps.CarryOverMasked(in.Get("cs_prev"), units, cs);
    steps.SpoilPast(units, cs);
  });
  in.ForEach({"h"}, [&](Tensor* h) {
    steps.CarryOverMasked(in.Get("h_prev"), width, h);
    steps.SpoilPast(width, h);
  });
  in.ForEach({"h_grad"}, [&](Tensor* grad) { steps.SpoilPast(width, grad); });
  in.ForEach({"cs_grad"}, [&](Tensor* grad) { steps.SpoilPast(units, grad); });
  for (const TensorSpec& spec : family.Saved()) {
    if (spec.name == "cs" || family.rows == 0) continue;
    in.ForEach({spec.name.c_str()}, [&](Tensor* saved) {
      steps.ZeroMasked(spec.count / family.rows, saved);
      steps.SpoilPast(spec.count / family.rows, saved);
    });
  }
}

std::vector<Tensor> SequenceOutputs(const SequenceFamily& family, const Case& c,
                                    const std::vector<Tensor>& inputs,
                                    const NamedTensors* computed) {
  NamedTensors in = Used(c, inputs);
  TransposeMatrices(family, false, &in);
  family.ToReference(&in);
  if (c.weights.kind != WeightForm::kAsDrawn) in.erase("recurrent_dropout");
  SequenceReference reference = {family.Cell(), family.StepsOf(),
                                 family.Width(), c.type,
                                 Activations{c.HasIdentity(), c.activations}};
  reference.precision = c.weights.precision;
  reference.computed = computed;
  reference.cell.rounds_state =
      SizeOf(c.type) == 2 || reference.precision != Precision::kStorage;
  NamedTensors all =
      c.op->backward ? reference.Backward(in) : reference.Forward(in);
  family.FromReference(&all);
  TransposeMatrices(family, true, &all);
  return OutputsOf(c, std::move(all));
}

void CheckSpanStates(const std::vector<float>& states, float before) {
  if (std::count(states.begin(), states.end(), before) != 1 ||
      states.back() != before) {
    throw std::runtime_error("span_states was not written, or past its end");
  }
}

NamedTensors Used(const Case& c, const std::vector<Tensor>& inputs) {
  const std::vector<TensorSpec> specs = c.op->inputs(c.dims, c.variant);
  NamedTensors used;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (specs[t].used) used[specs[t].name] = inputs[t];
  }
  return used;
}

std::vector<Tensor> OutputsOf(const Case& c, NamedTensors tensors) {
  std::vector<Tensor> all;
  for (const TensorSpec& spec : c.op->outputs(c.dims, c.variant)) {
    all.push_back(std::move(tensors[spec.name]));
    all.back().resize(spec.count);
  }
  return all;
}

void SplitRows(const char* stacked, int64_t elements_of_x, const char* of_x,
               const char* of_h, NamedTensors* tensors) {
  const Tensor& both = (*tensors)[stacked];
  (*tensors)[of_x] = {both.begin(), both.begin() + elements_of_x};
  (*tensors)[of_h] = {both.begin() + elements_of_x, both.end()};
}

SequenceReference OneStep(const Dims& d, const CellSpec& cell,
                          Activations activations) {
  const Dims one = {d.batch, d.input, d.units, 1};
  return {cell, Steps(one, kOrders[kPlainOrder], cell.Gates()), d.units,
          Type::kDouble, activations};
}

}  // namespace blockrnn::test
