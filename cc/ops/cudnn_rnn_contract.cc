#include "cc/ops/cudnn_rnn_contract.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace blockrnn {
namespace {

// What the shapes of the states depend on.
enum Cell { kNoCellState, kCellState, kProjectedCellState, kCells };

Cell CellOf(const CudnnRnnAttrs& attrs) {
  if (!attrs.lstm()) return kNoCellState;
  return attrs.projected() ? kProjectedCellState : kCellState;
}

std::string Name(int version, bool backward) {
  return absl::StrCat("CudnnRNN", backward ? "Backprop" : "",
                      version == 1 ? "" : absl::StrCat("V", version));
}

// The parts of a contract's text. Version 3 alone is batch-major without
// time_major, the second alternative.
class Text {
 public:
  Text(int version, Cell cell)
      : version_(version),
        cell_(cell),
        width_(cell == kProjectedCellState ? "P" : "H") {}

  std::string Input() const { return TwoWays("input", "T,B,I", "B,T,I"); }
  std::string Output(const char* name) const {
    return TwoWays(name, "T,B,D*" + width_, "B,T,D*" + width_);
  }
  std::string StateH(const char* name) const {
    return TwoWays(name, "L*D,B," + width_, "B,L*D," + width_);
  }
  // Without a cell state whatever stands there is ignored.
  std::string StateC(const char* name) const {
    return cell_ == kNoCellState ? absl::StrCat(" ", name, "[*]")
                                 : TwoWays(name, "L*D,B,H", "B,L*D,H");
  }

  std::string ForwardInputs() const {
    return absl::StrCat(Input(), StateH("input_h"), StateC("input_c"),
                        " params[?]",
                        version_ == 3 ? " sequence_lengths[B]" : "");
  }
  std::string ForwardOutputs() const {
    return absl::StrCat(
        Output("output"), " output_h=input_h",
        cell_ == kNoCellState ? " output_c[]" : " output_c=input_c",
        " reserve_space[S]", version_ == 1 ? "" : " host_reserved[0]");
  }
  std::string BackwardInputs() const {
    return absl::StrCat(ForwardInputs(), Output("output"), StateH("output_h"),
                        StateC("output_c"), Output("output_backprop"),
                        StateH("output_h_backprop"),
                        StateC("output_c_backprop"), " reserve_space[?]",
                        version_ == 1 ? "" : " host_reserved[0]");
  }
  static std::string BackwardOutputs() {
    return "input_backprop=input input_h_backprop=input_h "
           "input_c_backprop=input_c params_backprop=params";
  }

 private:
  std::string TwoWays(const char* name, const std::string& time_major,
                      const std::string& batch_major) const {
    return version_ == 3
               ? absl::StrCat(" ", name, "[", time_major, "|", batch_major, "]")
               : absl::StrCat(" ", name, "[", time_major, "]");
  }

  int version_;
  Cell cell_;
  std::string width_;  // of h: P of a projected lstm, else H
};

OpContract Make(int version, bool backward, Cell cell) {
  const Text text(version, cell);
  const std::string inputs =
      backward ? text.BackwardInputs() : text.ForwardInputs();
  const std::string outputs =
      backward ? Text::BackwardOutputs() : text.ForwardOutputs();
  return OpContract({Name(version, backward).c_str(), inputs.c_str(),
                     outputs.c_str(), version == 3 ? "time_major" : nullptr});
}

std::vector<OpContract> MakeAll() {
  std::vector<OpContract> contracts;
  for (int version = 1; version <= 3; ++version) {
    for (bool backward : {false, true}) {
      for (int cell = 0; cell < kCells; ++cell) {
        contracts.push_back(Make(version, backward, static_cast<Cell>(cell)));
      }
    }
  }
  return contracts;
}

// input_h without a layer, which the text of a contract cannot refuse.
absl::Status NoLayer(const std::string& op, const CudnnRnnAttrs& attrs,
                     const Bindings& bound) {
  const char* const symbol = attrs.projected() ? "P" : "H";
  const std::string batch = DimText(bound['B']);
  const std::string width = DimText(bound[*symbol]);
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": input_h must have shape ",
      attrs.time_major ? absl::StrCat("[L*D, B, ", symbol, "]")
                       : absl::StrCat("[B, L*D, ", symbol, "]"),
      " with L at least 1, got ",
      attrs.time_major ? absl::StrCat("[0, ", batch, ", ", width, "]")
                       : absl::StrCat("[", batch, ", 0, ", width, "]")));
}

}  // namespace

const OpContract& CudnnRnnContract(int version, bool backward,
                                   const CudnnRnnAttrs& attrs) {
  // Never destroyed, as the registry of the other contracts.
  static const auto* const contracts = new std::vector<OpContract>(MakeAll());
  return (*contracts)[((version - 1) * 2 + backward) * kCells + CellOf(attrs)];
}

Bindings CudnnRnnBindings(const CudnnRnnAttrs& attrs) {
  Bindings bound;
  bound['D'] = attrs.directions;
  if (attrs.projected()) bound['P'] = attrs.num_proj;
  if (!attrs.is_training) bound[kReserveSymbol] = 0;
  return bound;
}

absl::Status CheckCudnnRnnSizes(const std::string& op,
                                const CudnnRnnAttrs& attrs,
                                const Bindings& bound, CudnnRnnSizes* sizes) {
  sizes->layers = bound['L'];
  sizes->input = bound['I'];
  sizes->units = bound['H'];
  if (sizes->layers == 0) return NoLayer(op, attrs, bound);
  if (sizes->units != kUnknown && attrs.num_proj > sizes->units) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": num_proj must be in 0..H = 0..", sizes->units,
                     " (H is the last dim of input_c), got ", attrs.num_proj));
  }
  if (attrs.input_mode == RnnInputMode::kSkip && sizes->input != kUnknown &&
      sizes->units != kUnknown && sizes->input != sizes->units) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": with input_mode skip_input the last dims of input and input_",
        attrs.projected() ? "c" : "h", " must be the same, got ", sizes->input,
        " and ", sizes->units));
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
