// Owns what the forward and the backward of a stack share: where the parts of
// a pseudo-layer stand, and how the directions of a layer share the threads.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_PLAN_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_args.h"
#include "cc/core/rnn_geometry.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/parallel.h"
#include "cc/kernels/cpu/rnn_stack_host.h"

namespace blockrnn::cpu {

// p + offset; an array without elements or that is not given stays so.
template <class P>
P* At(P* p, int64_t offset) {
  return p == nullptr ? nullptr : p + offset;
}

// The parts of params, or of their gradient, that a pseudo-layer has.
template <class P>
struct PseudoParams {
  P* w_x;  // [gates · H, width]; nullptr with skip_input
  P* w_h;  // [gates · H, P]
  P* w_p;  // [P, H]; nullptr without a projection
  P* b_x;  // [gates · H]
  P* b_h;  // [gates · H]
};

// One direction of one layer.
struct Pseudo {
  int64_t layer = 0;
  int64_t direction = 0;
  int64_t index = 0;  // of all pseudo-layers
};

template <class T>
class RnnStackPlan {
 public:
  // Args is RnnForwardArgs<T> or RnnBackwardArgs<T>.
  template <class Args>
  RnnStackPlan(const Args& args, bool drops)
      : geometry_(args.geometry),
        steps_(args.steps),
        batch_(args.batch),
        time_major_(args.time_major),
        lengths_(args.lengths),
        params_(args.geometry),
        reserve_(args.geometry, args.steps, args.batch,
                 ValidRows(args.steps, args.batch, args.lengths), sizeof(T),
                 drops) {}

  const RnnGeometry& geometry() const { return geometry_; }
  const ParamLayout& params() const { return params_; }
  const ReserveLayout& reserve() const { return reserve_; }

  // Of what goes from layer to layer, [steps, batch, D·P].
  int64_t elements() const { return steps_ * batch_ * geometry_.OutputWidth(); }
  // Of what a layer takes in.
  int64_t InputElements(int64_t layer) const {
    return steps_ * batch_ * geometry_.InputWidth(layer);
  }

  SequenceShape Shape(const Pseudo& pseudo) const {
    SequenceShape shape;
    shape.skip_input = pseudo.layer == 0 && geometry_.skip_input;
    shape.steps = steps_;
    shape.batch = batch_;
    shape.input = geometry_.InputWidth(pseudo.layer);
    shape.units = geometry_.units;
    shape.time_major = time_major_;
    shape.backwards = pseudo.direction == 1;
    shape.lengths = lengths_;
    shape.state_stride = time_major_ ? 1 : geometry_.pseudo_layers();
    shape.h_width = geometry_.OutputWidth();
    shape.weights_by_unit = true;
    shape.saved_in_steps = true;
    return shape;
  }

  template <class P>
  PseudoParams<P> Params(P* params, const Pseudo& pseudo) const {
    const int64_t n = pseudo.index;
    const bool skip = pseudo.layer == 0 && geometry_.skip_input;
    return {
        skip ? nullptr : params + params_.Input(n).offset,
        params + params_.Recurrent(n).offset,
        geometry_.projected ? params + params_.Projection(n).offset : nullptr,
        params + params_.InputBias(n).offset,
        params + params_.RecurrentBias(n).offset};
  }

  // The first row's state in states of this width, P or H.
  template <class P>
  P* State(P* states, const Pseudo& pseudo, int64_t width) const {
    return At(states, pseudo.index * width * (time_major_ ? batch_ : 1));
  }

  // This direction's columns of [steps, batch, D·P].
  template <class P>
  P* Columns(P* h, const Pseudo& pseudo) const {
    return At(h, pseudo.direction * geometry_.proj);
  }

  // Arrays in a reserve space; nullptr where there is none. Bytes is void or
  // const void.
  template <class P, class Bytes>
  P* Array(Bytes* reserve, const Pseudo& pseudo, int index) const {
    return In<P>(reserve, reserve_.Array(pseudo.index, index));
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

// The directions of a layer, side by side where there is a thread for each.
class Directions {
 public:
  Directions(const Host& host, int64_t directions)
      : host_(host),
        directions_(directions),
        parallel_(directions == 2 && host.num_threads >= 2),
        hosts_{
            {host, parallel_ ? (host.num_threads + 1) / 2 : host.num_threads},
            {host, std::max(host.num_threads / 2, 1)}} {}

  // body(pseudo, host) → Status for each direction of `layer`.
  template <class Body>
  Status Run(int64_t layer, const Body& body) {
    Status status[2] = {Status::kOk, Status::kOk};
    const auto run = [&](int64_t direction) {
      LayerHost& host = hosts_[parallel_ ? direction : 0];
      status[direction] =
          body(Pseudo{layer, direction, layer * directions_ + direction},
               host.host());
      host.Recycle();
    };
    if (parallel_) {
      ParallelFor(host_, 2, 2, [&](int, int64_t direction) { run(direction); });
    } else {
      for (int64_t direction = 0; direction < directions_; ++direction) {
        run(direction);
        if (status[direction] != Status::kOk) return status[direction];
      }
    }
    return status[0] != Status::kOk ? status[0] : status[1];
  }

 private:
  const Host& host_;
  const int64_t directions_;
  const bool parallel_;
  LayerHost hosts_[2];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_PLAN_H_
