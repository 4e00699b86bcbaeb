// Defines the geometry of a stack of recurrent layers in cuDNN's sense: the
// cell, how many layers and directions, and the widths.
//
// Layers and directions are counted together: layer direction D · layer +
// direction, first the forward direction of a layer, then its backward one.

#ifndef BLOCKRNN_CORE_RNN_GEOMETRY_H_
#define BLOCKRNN_CORE_RNN_GEOMETRY_H_

#include <cstdint>

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

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RNN_GEOMETRY_H_
