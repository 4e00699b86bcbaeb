// Implements a simple (Elman) RNN over a sequence on the CPU, forward and
// backward, as cells of sequence_forward.h and sequence_backward.h. The
// equations are in cc/core/simple_rnn_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_

#include <array>
#include <cstdint>

#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/hidden_state.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/input_gradients.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/weight_gradients.h"

namespace blockrnn::cpu {

// The weights of a simple RNN in panels of elements P.
template <class T, class P>
struct SimpleRnnPanels : GatePanels<T, 1, false, P> {
  using Args = SimpleRnnForwardArgs<T>;

  SimpleRnnPanels(const Args& args, PanelMemory* memory, const Packing& packing)
      : GatePanels<T, 1, false, P>(args, args.b, args.b_h, args.shape.units,
                                   memory, packing) {}
};

// x · w_x + b + h · w_h  →  h
//
// A step reads the state as it is stored, which is what the backward pass
// reads. With 16-bit types a state that is not rounded would be a little more
// exact, but relu's slope jumps at 0: states that engines round differently
// would have different gradients.
template <class StorageType, class Activations,
          class Element = PanelElement<StorageType>>
class SimpleRnnForwardCell : public ForwardCell<StorageType> {
 public:
  using T = StorageType;
  using P = Element;
  using Args = SimpleRnnForwardArgs<T>;
  using Panels = SimpleRnnPanels<T, P>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = ForwardContext<T, 1>;
  static constexpr int kGates = 1;

  static ForwardShape Shape(const Args& args) {
    return {args.shape.units, 1, static_cast<double>(args.shape.units), 1};
  }

  SimpleRnnForwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        packed_(args, context.panels, context.packing),
        x_(context, packed_.x, units_) {}

  Status BeginBlock(const StepBlock& block) {
    return x_.BeginBlock(block, args_.x);
  }

  void Step(int64_t step, int, Share share, Range rows) const {
    x_.Multiply(step, context_.h.Operand(step), packed_.w_h, share, rows,
                [&](const GateTile<C>& tile, const RowView<C>&) {
                  WithFlag(args_.relu,
                           [&](auto relu) { Cells<relu()>(step, tile); });
                });
  }

 private:
  template <bool kRelu>
  void Cells(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      if (context_.rows.IsMasked(step, run.row)) {
        context_.h.Carry(step, run);
        return;
      }
      const int64_t state = run.row * units_ + run.unit;
      T* const h = context_.h.OutputRow(step, run.row);
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V out = RoundedTo<T>(
            SimpleRnnStep<Activations, kRelu>(Load<C>(run.gates + j, lanes)));
        StoreIf(h, run.unit + j, out, lanes);
        Store(context_.h.Next(step) + state + j, out, lanes);
      });
      context_.h.Finish(step, run);
    });
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const Panels packed_;
  InputGemm<T, 1, false, P> x_;
};

// dz · w_hᵀ of the next step  →  d_h  →  dz
template <class StorageType>
class SimpleRnnBackwardCell : public BackwardCell<StorageType> {
 public:
  using T = StorageType;
  using Args = SimpleRnnBackwardArgs<T>;
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Context = BackwardContext<T, 1>;
  static constexpr int kGates = 1;

  static BackwardShape<T> Shape(const Args& args) {
    return {args.shape.units,
            1,
            static_cast<double>(args.shape.units),
            args.w_h,
            args.w_h_grad,
            args.b_grad};
  }

  SimpleRnnBackwardCell(const Args& args, const Context& context)
      : args_(args),
        context_(context),
        units_(args.shape.units),
        w_x_grad_(context.scratch, args.shape, args.w_x_grad, units_) {}

  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    WithFlag(args_.relu, [&](auto relu) { StateGrad<relu()>(step, tile); });
  }

  std::array<InputGradPart<T>, 1> InputParts() const {
    return {InputGradOf(args_.shape, args_.w_x, context_.dz.data(), 1,
                        w_x_grad_.sums())};
  }

  template <class F>
  void ForEachWeightGrad(const F& f) const {
    f(w_x_grad_);
  }

 private:
  template <bool kRelu>
  void StateGrad(int64_t step, const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      const bool masked = context_.rows.IsMasked(step, run.row);
      const int64_t at =
          context_.rows.MemoryRow(step, run.row) * context_.ld_h + run.unit;
      const int64_t state = run.row * units_ + run.unit;
      C* const carried = context_.d_h + state;
      C* const dz = context_.dz.Step(step) + state;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V d_h = Load<C>(run.gates + j, lanes) + Load<C>(carried + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        const V d_h_bar =
            SimpleRnnStepGrad<kRelu>(Load<C>(args_.h + at + j, lanes), d_h);
        Store(dz + j, masked ? V(0) : d_h_bar, lanes);
        Store(carried + j, masked ? d_h : V(0), lanes);
      });
    });
  }

  const Args& args_;
  const Context context_;
  const int64_t units_;
  const WeightGrad<T> w_x_grad_;  // [I, H]
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_SIMPLE_RNN_H_
