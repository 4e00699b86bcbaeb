// Defines the places of the parts of a layer direction: its parameters, states,
// columns and what is saved of it.

#ifndef BLOCKRNN_CORE_RNN_STACK_PLAN_H_
#define BLOCKRNN_CORE_RNN_STACK_PLAN_H_

#include <cstdint>

#include "cc/core/element_pointer.h"
#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/sequence_args.h"

namespace blockrnn {

// The parts of params, or of their gradient, that a layer direction has.
template <class P>
struct LayerDirectionParams {
  P* w_x;  // [gates · H, width]; nullptr with skip_input
  P* w_h;  // [gates · H, P]
  P* w_p;  // [P, H]; nullptr without a projection
  P* b_x;  // [gates · H]
  P* b_h;  // [gates · H]
};

// One direction of one layer.
struct LayerDirection {
  int64_t layer = 0;
  int64_t direction = 0;
  int64_t index = 0;  // of all layer directions
};

inline LayerDirection MakeDirection(const RnnGeometry& geometry, int64_t layer,
                                    int64_t direction) {
  return {layer, direction, layer * geometry.directions + direction};
}

template <class T>
class RnnStackPlan {
 public:
  // Args is RnnStackForwardArgs<T> or RnnStackBackwardArgs<T>.
  template <class Args>
  RnnStackPlan(const Args& args, bool drops)
      : geometry_(args.geometry),
        steps_(args.steps),
        batch_(args.batch),
        time_major_(args.time_major),
        lengths_(args.lengths),
        params_(args.geometry),
        reserve_(args.geometry, args.steps, args.batch,
                 ValidRows(args.steps, args.batch, args.lengths),
                 kElementBytes<T>, drops) {}

  const ParamLayout& params() const { return params_; }
  const ReserveLayout& reserve() const { return reserve_; }

  // Of what goes from layer to layer, [steps, batch, D·P].
  int64_t elements() const { return steps_ * batch_ * geometry_.OutputWidth(); }
  // Of what a layer takes in.
  int64_t InputElements(int64_t layer) const {
    return steps_ * batch_ * geometry_.InputWidth(layer);
  }

  SequenceShape Shape(const LayerDirection& dir) const {
    SequenceShape shape;
    shape.skip_input = dir.layer == 0 && geometry_.skip_input;
    shape.steps = steps_;
    shape.batch = batch_;
    shape.input = geometry_.InputWidth(dir.layer);
    shape.units = geometry_.units;
    shape.time_major = time_major_;
    shape.backwards = dir.direction == 1;
    shape.lengths = lengths_;
    shape.state_stride = time_major_ ? 1 : geometry_.layer_directions();
    shape.h_width = geometry_.OutputWidth();
    shape.weights_by_unit = true;
    shape.saved_in_steps = true;
    return shape;
  }

  template <class P>
  LayerDirectionParams<P> Params(P* params, const LayerDirection& dir) const {
    const int64_t n = dir.index;
    const bool skip = dir.layer == 0 && geometry_.skip_input;
    return {skip ? nullptr : PointerAt(params, params_.Input(n).offset),
            PointerAt(params, params_.Recurrent(n).offset),
            geometry_.projected
                ? PointerAt(params, params_.Projection(n).offset)
                : nullptr,
            PointerAt(params, params_.InputBias(n).offset),
            PointerAt(params, params_.RecurrentBias(n).offset)};
  }

  // The first row's state in states of this width, P or H.
  template <class P>
  P* State(P* states, const LayerDirection& dir, int64_t width) const {
    return PointerAt(states, dir.index * width * (time_major_ ? batch_ : 1));
  }

  // This direction's columns of [steps, batch, D·P].
  template <class P>
  P* Columns(P* h, const LayerDirection& dir) const {
    return PointerAt(h, dir.direction * geometry_.proj);
  }

  // Arrays in a reserve space; nullptr where there is none. Bytes is void or
  // const void.
  template <class P, class Bytes>
  P* Array(Bytes* reserve, const LayerDirection& dir, int index) const {
    return In<P>(reserve, reserve_.Array(dir.index, index));
  }
  template <class P, class Bytes>
  P* H(Bytes* reserve, int64_t layer) const {
    return In<P>(reserve, reserve_.H(layer));
  }
  template <class P, class Bytes>
  P* Mask(Bytes* reserve, int64_t layer) const {
    return In<P>(reserve, reserve_.Mask(layer));
  }

 private:
  static char* Bytes(void* p) { return static_cast<char*>(p); }
  static const char* Bytes(const void* p) {
    return static_cast<const char*>(p);
  }

  template <class P, class B>
  static P* In(B* reserve, int64_t offset) {
    return reserve == nullptr ? nullptr
                              : reinterpret_cast<P*>(Bytes(reserve) + offset);
  }

  const RnnGeometry geometry_;
  const int64_t steps_;
  const int64_t batch_;
  const bool time_major_;
  const int64_t* const lengths_;
  const ParamLayout params_;
  const ReserveLayout reserve_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RNN_STACK_PLAN_H_
