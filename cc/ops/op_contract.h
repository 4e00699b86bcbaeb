// Defines the shape contract of an op, which is read from its row of the op
// table. The shape function (cc/ops/contract_rules.h) and the kernel's check
// (cc/kernels/kernel.h) both come from it, so they refuse the same calls
// with the same messages.
//
// A row lists arguments, `name:type[dims]` (cc/ops/op_spec.h), with these
// shapes:
//   dims      separated by commas; none for a scalar
//   dim       a sum of products: B, 4H, I+H, L*D; or ?, for any length
//   [H|?]     alternatives, selected by an attr: the first if it is true
//   [*]       any shape at all
//   name[…]?  may be left out: an input of shape [0] then
//   name[…]?P=H   may be left out where P is H
//   name[…]!  has this shape only in a cell with a cell state; else an input
//             has any, and an output is a scalar
//   name=x    the shape of the input x (in outputs)
// A symbol is one upper case letter. It takes its value from the first dim that
// has no other unknown; every other dim must agree. K is bound by attrs.

#ifndef BLOCKRNN_OPS_OP_CONTRACT_H_
#define BLOCKRNN_OPS_OP_CONTRACT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {

inline constexpr int64_t kUnknown = -1;

// K, a factor of the number of steps of what is saved for backward: 0 with
// recompute and without is_training, else 1.
inline constexpr char kSavedSymbol = 'K';

// The values of a contract's symbols, by letter; kUnknown until bound.
class Bindings {
 public:
  Bindings() { values_.fill(kUnknown); }
  int64_t operator[](char symbol) const { return values_[symbol - 'A']; }
  int64_t& operator[](char symbol) { return values_[symbol - 'A']; }

 private:
  std::array<int64_t, 26> values_;
};

// Σ coefficient · Π symbols.
struct DimPattern {
  struct Term {
    int64_t coefficient = 1;
    std::string symbols;
  };
  std::string text;  // as printed: "I+H", or "any" for ?
  bool any = false;
  std::vector<Term> terms;
};

struct ShapePattern {
  bool any = false;  // [*]
  int same_as = -1;  // the input that has the same shape
  std::vector<DimPattern> dims;
};

struct ArgumentPattern {
  std::string name;
  bool optional = false;
  std::vector<DimPattern> left_out_if;     // empty, or two that must be equal
  std::vector<ShapePattern> alternatives;  // one, unless the text has a |
  const ShapePattern& shape(int alternative) const {
    return alternatives[alternatives.size() == 1 ? 0 : alternative];
  }
};

// The shapes of a call's inputs, known to a kernel or a shape function.
class InputShapes {
 public:
  virtual ~InputShapes() = default;
  virtual int rank(int input) const = 0;                // or kUnknown
  virtual int64_t dim(int input, int index) const = 0;  // or kUnknown
};

// How the mode of a cuDNN RNN modifies its row; all other ops are kAllGiven.
enum class Variant {
  kAllGiven,      // as the row is written
  kNoProjection,  // P is written H
  kNoCellState,   // nor has anything marked ! a shape
};
inline constexpr int kVariants = 3;

class OpContract {
 public:
  // Aborts on a malformed row: it is a constant of this library.
  explicit OpContract(const OpSpec& row, Variant variant = Variant::kAllGiven);

  const OpSpec& row() const { return *row_; }

  const std::string& op() const { return op_; }  // without the namespace
  const std::vector<ArgumentPattern>& inputs() const { return inputs_; }
  const std::vector<ArgumentPattern>& outputs() const { return outputs_; }
  // The index of an input that must be there.
  int InputAt(std::string_view name) const;

  // Binds the symbols to the shapes of the inputs, as far as those are known,
  // or reports which input is wrong, its required shape and its shape. Symbols
  // that are bound beforehand (from attrs) stay as they are. Ranks are checked
  // before dims, and all arithmetic is checked for overflow.
  absl::Status Check(const InputShapes& shapes, int alternative,
                     Bindings* bound) const;

  // One dim of an output; kUnknown when a symbol in it is.
  absl::Status OutputDim(const ArgumentPattern& output, int alternative,
                         const DimPattern& dim, const Bindings& bound,
                         int64_t* value) const;

 private:
  // Whether every input that is left out may be.
  absl::Status CheckLeftOut(const InputShapes& shapes, int alternative,
                            const Bindings& bound) const;
  // `bound`, and what the inputs before one bind: not what it binds itself,
  // which a message must not ask for.
  Bindings BoundBefore(const InputShapes& shapes, int input, int alternative,
                       Bindings bound) const;
  absl::Status Mismatch(const InputShapes& shapes, int input, int alternative,
                        const Bindings& bound) const;
  std::string Overflow(const ArgumentPattern& argument, int alternative,
                       const DimPattern& dim, const Bindings& bound) const;

  const OpSpec* row_;
  std::string op_;
  std::vector<ArgumentPattern> inputs_;
  std::vector<ArgumentPattern> outputs_;
};

// A dim as printed in messages; kUnknown is "?".
std::string DimText(int64_t dim);

// The contract of an op, by its name without our namespace; nullptr: the table
// has no such op.
const OpContract* FindContract(std::string_view op,
                               Variant variant = Variant::kAllGiven);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_OP_CONTRACT_H_
