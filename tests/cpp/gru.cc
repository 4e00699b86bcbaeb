// Describes GRUBlockCell, its gradient, and the GRUs over a sequence, with the
// reset before and after the GEMM.

#include <cstdint>
#include <string>
#include <vector>

#include "cc/core/gru_cell.h"
#include "tests/cpp/sequence_op.h"

namespace blockrnn::test {
namespace {

// Adds the candidate's columns, which are a tensor of their own, to those of r
// and u.
void Join(NamedTensors* tensors, const char* name, const char* candidate,
          int64_t units) {
  const Tensor ru = Find(*tensors, name), c = Find(*tensors, candidate);
  if (ru.empty()) return;
  Tensor joined;
  for (std::size_t k = 0; k * units < c.size(); ++k) {
    joined.insert(joined.end(), &ru[k * 2 * units],
                  &ru[k * 2 * units] + 2 * units);
    joined.insert(joined.end(), &c[k * units], &c[k * units] + units);
  }
  (*tensors)[name] = joined;
}
void JoinCandidate(int64_t units, NamedTensors* tensors) {
  Join(tensors, "w_x", "w_c_x", units);
  Join(tensors, "w_h", "w_c_h", units);
  Join(tensors, "b", "b_c", units);
}
void Split(NamedTensors* tensors, const std::string& joined, int64_t units,
           const std::string& left, const std::string& right) {
  const Tensor& from = (*tensors)[joined];
  Tensor a, b;
  for (std::size_t n = 0; n < from.size(); ++n) {
    const int64_t column = static_cast<int64_t>(n) % (3 * units);
    (column < 2 * units ? a : b).push_back(from[n]);
  }
  (*tensors)[left] = a;
  (*tensors)[right] = b;
}

class Gru : public FamilyOf<GruSequenceForwardArgs, GruSequenceBackwardArgs> {
 public:
  Gru(const Dims& d, int variant) : FamilyOf(d, variant, true, false) {}

  CellSpec Cell() const override {
    CellSpec cell;
    SetGruAfter(&cell);
    cell.kind = CellKind::kGru;
    return cell;
  }
  std::vector<TensorSpec> Inputs() const override {
    const int64_t gates = Apart() ? 2 : 3;
    std::vector<TensorSpec> specs = {
        {"x", StepsOf().InputSize()}, State("h_prev"),
        InputWeights("w_x", gates),   StateWeights("w_h", gates),
        {"b", gates * dims.units},    Dropout()};
    if (Apart()) {
      specs.push_back(InputWeights("w_c_x", 1));
      specs.push_back(StateWeights("w_c_h", 1));
      specs.push_back({"b_c", dims.units});
    }
    return specs;
  }
  std::vector<TensorSpec> Saved() const override {
    return {Array("r", Fill::kGate), Array("u", Fill::kGate), Array("c")};
  }
  void ToReference(NamedTensors* tensors) const override {
    if (Apart()) JoinCandidate(dims.units, tensors);
    FamilyOf::ToReference(tensors);
  }
  void FromReference(NamedTensors* tensors) const override {
    FamilyOf::FromReference(tensors);
    if (!Apart()) return;
    Split(tensors, "w_x_grad", dims.units, "w_x_grad", "w_c_x_grad");
    Split(tensors, "w_h_grad", dims.units, "w_h_grad", "w_c_h_grad");
    Split(tensors, "b_grad", dims.units, "b_grad", "b_c_grad");
  }

  template <class Args>
  void SetOptions(Args* args) const {
    args->layout = variant % 2 == 0 ? kGruRuc : kGruUrc;
  }

 private:
  // Whether the candidate has arrays of its own.
  bool Apart() const { return variant % 4 >= 2; }
};

struct CellForward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int) {
    const int64_t k = d.input + d.units;
    return {{"x", d.batch * d.input},
            {"h_prev", d.batch * d.units},
            {"w_ru", k * 2 * d.units, Fill::kWeight},
            {"w_c", k * d.units, Fill::kWeight},
            {"b_ru", 2 * d.units},
            {"b_c", d.units}};
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"r", n}, {"u", n}, {"c", n}, {"h", n}};
  }
  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  // The inputs of a sequence of one step.
  static NamedTensors ToSequence(const Dims& d, NamedTensors in) {
    SplitRows("w_ru", d.input * 2 * d.units, "w_x", "w_h", &in);
    SplitRows("w_c", d.input * d.units, "w_c_x", "w_c_h", &in);
    in["b"] = Find(in, "b_ru");
    JoinCandidate(d.units, &in);
    Gru(d, kPlainOrder).ToReference(&in);
    return in;
  }
  static std::vector<Tensor> Reference(const Case& c,
                                       const std::vector<Tensor>& inputs,
                                       const NamedTensors*) {
    const Dims& d = c.dims;
    const SequenceReference reference =
        OneStep(d, Gru(d, kPlainOrder).Cell(), Activations{c.HasIdentity()});
    return OutputsOf(c, reference.Forward(ToSequence(d, Used(c, inputs))));
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    GruCellForwardArgs<T> args;
    args.dims = {call.of.dims.batch, call.of.dims.input, call.of.dims.units};
    SetPointers(call, &args);
    return RunForward<T>(call, args);
  }
};

struct CellBackward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int) {
    const int64_t k = d.input + d.units;
    const int64_t n = d.batch * d.units;
    return {{"h_prev", n},
            {"w_ru", k * 2 * d.units, Fill::kWeight},
            {"w_c", k * d.units, Fill::kWeight},
            {"r", n, Fill::kGate},
            {"u", n, Fill::kGate},
            {"c", n},
            {"d_h", n}};
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"d_x", d.batch * d.input},
            {"d_h_prev", n},
            {"d_c_bar", n},
            {"d_r_bar_u_bar", 2 * n}};
  }
  // d_x sums H terms of d_c_bar · w_cᵀ and 2H of d_r_bar_u_bar · w_ruᵀ.
  static int64_t Reduction(const Dims& d) { return 3 * d.units; }

  static std::vector<Tensor> Reference(const Case& c,
                                       const std::vector<Tensor>& inputs,
                                       const NamedTensors*) {
    const Dims& d = c.dims;
    NamedTensors in = CellForward::ToSequence(d, Used(c, inputs));
    in["x"].resize(d.batch * d.input);
    in["h_grad"] = in["d_h"];
    NamedTensors out =
        OneStep(d, Gru(d, kPlainOrder).Cell(), Activations()).Backward(in);
    out["d_x"] = out["x_grad"];
    out["d_h_prev"] = out["h_prev_grad"];
    Split(&out, "gates_grad", d.units, "d_r_bar_u_bar", "d_c_bar");
    return OutputsOf(c, out);
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    GruCellBackwardArgs<T> args;
    args.dims = {call.of.dims.batch, call.of.dims.input, call.of.dims.units};
    SetPointers(call, &args);
    return RunEngine<T>(call, args);
  }
};

class GruAfter : public FamilyOf<GruAfterSequenceForwardArgs,
                                 GruAfterSequenceBackwardArgs> {
 public:
  GruAfter(const Dims& d, int variant) : FamilyOf(d, variant, true) {}

  CellSpec Cell() const override {
    CellSpec cell;
    SetGruAfter(&cell);
    return cell;
  }
  std::vector<TensorSpec> Inputs() const override { return GruAfterInputs(); }
  std::vector<TensorSpec> Saved() const override {
    return {Array("r", Fill::kGate), Array("u", Fill::kGate), Array("c"),
            Array("hc")};
  }

  template <class Args>
  void SetOptions(Args* args) const {
    args->layout = variant % 2 == 0 ? kGruRuc : kGruUrc;
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kAdded =
    AddOp({"GRUBlockCell", false, true, 1, &CellForward::Inputs,
           &CellForward::Outputs, &CellForward::Reduction,
           &CellForward::Reference, &CallWithType<CellForward>}) &&
    AddOp({"GRUBlockCellGrad", true, true, 1, &CellBackward::Inputs,
           &CellBackward::Outputs, &CellBackward::Reduction,
           &CellBackward::Reference, &CallWithType<CellBackward>}) &&
    AddSequenceOps<Gru>("GRU", "GRUGrad") &&
    AddSequenceOps<GruAfter>("GRUAfter", "GRUAfterGrad");

}  // namespace
}  // namespace blockrnn::test
