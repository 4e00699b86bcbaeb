// Defines the geometry of a stack of recurrent layers in cuDNN's sense: the
// cell, how many layers and directions, and the widths; and the place of every
// matrix and bias in the flat params of the cuDNN ops.
//
// Layers and directions are counted together: layer direction D · layer +
// direction, first the forward direction of a layer, then its backward one.

#ifndef BLOCKRNN_CORE_PARAM_LAYOUT_H_
#define BLOCKRNN_CORE_PARAM_LAYOUT_H_

#include <cstdint>
#include <optional>

#include "cc/core/checked_int.h"
#include "cc/core/gate_layout.h"

namespace blockrnn {

enum class RnnMode : int32_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

struct RnnGeometry {
  RnnMode mode = RnnMode::kLstm;
  int64_t layers = 1;       // L
  int64_t directions = 1;   // D, 1 or 2
  int64_t input = 0;        // I
  int64_t units = 0;        // H
  int64_t proj = 0;         // P, the width of a state h; H without a projection
  bool projected = false;   // h = w_p · (o ∘ tanh(c)); lstm only
  bool skip_input = false;  // the gates of layer 0 get x itself; I is H

  // Matrices with the input, and as many with the state.
  int gates() const {
    switch (mode) {
      case RnnMode::kLstm:
        return kLstmGates;
      case RnnMode::kGru:
        return kGruAfterGates;
      default:
        return 1;
    }
  }

  int64_t layer_directions() const { return layers * directions; }

  // D · P, the width of what a layer puts out.
  int64_t OutputWidth() const { return directions * proj; }

  // The width of what a layer takes in.
  int64_t InputWidth(int64_t layer) const {
    return layer == 0 ? input : OutputWidth();
  }
};

// The flat params of the cuDNN ops:
//
//   for each layer direction   W of each gate [H, width of its input]
//                           R of each gate [H, P]
//                           the projection [P, H], where there is one
//   for each layer direction   bW of each gate [H], then bR of each gate [H]
//
// Gate order: lstm i, f, g, o; gru r, u, h̃. All of it is dense, so the
// matrices of one kind of a layer direction are one matrix [gates · H, width].
// With skip_input the layer directions of layer 0 have no W.
class ParamLayout {
 public:
  // rows · cols elements from `offset` on, row-major.
  struct Block {
    int64_t offset = 0;
    int64_t rows = 0;
    int64_t cols = 0;

    int64_t size() const { return rows * cols; }
  };

  // The elements of params; nullopt where they, or a dim on the way to them,
  // overflow int64. Every number of the geometry is at least 0.
  static std::optional<int64_t> Count(const RnnGeometry& g) {
    const CheckedInt gate_rows = CheckedInt(g.gates()) * g.units;
    const CheckedInt state = gate_rows * g.proj +
                             CheckedInt(g.projected ? g.proj : 0) * g.units +
                             gate_rows * 2;
    const CheckedInt first = gate_rows * (g.skip_input ? 0 : g.input);
    const CheckedInt above = gate_rows * (CheckedInt(g.directions) * g.proj);
    const CheckedInt upper_layers = g.layers > 0 ? g.layers - 1 : 0;
    const CheckedInt lowest = g.layers > 0 ? g.directions : 0;
    return (lowest * first + upper_layers * g.directions * above +
            CheckedInt(g.layers) * g.directions * state)
        .value();
  }

  // Of a geometry that Count has a number for.
  explicit ParamLayout(const RnnGeometry& geometry) : g_(geometry) {}

  int64_t size() const { return BiasOffset(g_.layer_directions()); }

  // What a layer direction has, all its gates below one another.
  Block Input(int64_t dir) const {  // [gates · H, width], or no columns
    return {MatrixOffset(dir), gate_rows(), InputCols(dir)};
  }
  Block Recurrent(int64_t dir) const {  // [gates · H, P]
    return {End(Input(dir)), gate_rows(), g_.proj};
  }
  Block Projection(int64_t dir) const {  // [P, H], or no rows
    return {End(Recurrent(dir)), g_.projected ? g_.proj : 0, g_.units};
  }
  Block InputBias(int64_t dir) const {  // bW [gates · H, 1]
    return {BiasOffset(dir), gate_rows(), 1};
  }
  Block RecurrentBias(int64_t dir) const {  // bR [gates · H, 1]
    return {BiasOffset(dir) + gate_rows(), gate_rows(), 1};
  }

  // The canonical weights and biases, gate by gate, in the order in which they
  // are in params: of each layer direction W, R and the projection, or bW,
  // bR.
  int64_t num_weights() const { return g_.layer_directions() * weights(); }
  int64_t num_biases() const { return g_.layer_directions() * biases(); }

  Block Weight(int64_t index) const {  // [H, width], [H, P] or [P, H]
    const int64_t dir = index / weights();
    const int64_t in_direction = index % weights();
    if (in_direction < g_.gates()) return Gate(Input(dir), in_direction);
    if (in_direction < biases()) {
      return Gate(Recurrent(dir), in_direction - g_.gates());
    }
    return Projection(dir);
  }
  Block Bias(int64_t index) const {  // [H, 1]
    const int64_t dir = index / biases();
    return {BiasOffset(dir) + index % biases() * g_.units, g_.units, 1};
  }

 private:
  int64_t gate_rows() const { return g_.gates() * g_.units; }

  // Of one layer direction.
  int64_t weights() const { return biases() + (g_.projected ? 1 : 0); }
  int64_t biases() const { return 2 * g_.gates(); }

  static int64_t End(const Block& block) { return block.offset + block.size(); }

  Block Gate(const Block& all, int64_t gate) const {
    return {all.offset + gate * g_.units * all.cols, g_.units, all.cols};
  }

  int64_t InputCols(int64_t dir) const {
    const int64_t layer = dir / g_.directions;
    return layer == 0 && g_.skip_input ? 0 : g_.InputWidth(layer);
  }

  // Where the matrices of a layer direction begin.
  int64_t MatrixOffset(int64_t dir) const {
    const int64_t lowest = dir < g_.directions ? dir : g_.directions;
    const int64_t state =
        gate_rows() * g_.proj + (g_.projected ? g_.proj * g_.units : 0);
    return dir * state + lowest * gate_rows() * (g_.skip_input ? 0 : g_.input) +
           (dir - lowest) * gate_rows() * g_.OutputWidth();
  }

  int64_t BiasOffset(int64_t dir) const {
    return MatrixOffset(g_.layer_directions()) + dir * (2 * gate_rows());
  }

  RnnGeometry g_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_PARAM_LAYOUT_H_
