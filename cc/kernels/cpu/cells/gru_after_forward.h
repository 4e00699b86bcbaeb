// Owns the forward pass of a GRU, reset after the product, over a whole
// sequence on the CPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_

#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/recurrent_dropout.h"
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"

namespace blockrnn::cpu {

namespace internal {

// Step after step, in the product's epilogue:
//   [x · w_x + b_x for r, u] + b_h + h · w_h, and x · w_c + b_x,c by itself
//     →  r, u, hc, c, h
// The candidate's gate is the last in every layout, so it is the one apart.
template <class T, class Activations>
class GruAfterSequenceForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                          const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : units_),
        scratch_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        state_(&scratch_, factors_, shape_.batch),
        loop_(Loop()),
        split_(ChooseSplit(loop_, host.num_threads)),
        w_h_(host, &scratch_,
             WeightView<T>{args.w_h, LdW(units_), shape_.weights_by_unit},
             GateOffsets<kGruAfterGates>(units_).at, units_, units_,
             rows_.FewUses() && !factors_),
        x_(host, &scratch_, shape_, rows_,
           {args.w_x, LdW(shape_.input), shape_.weights_by_unit, args.b_x,
            args.b_h},
           JoinsStep<T>(loop_, rows_, split_, host)) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    // Other workers still read the old state while the new one is written.
    for (C*& h : h_) h = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    for (int64_t b = 0; b < batch; ++b) {
      CopyRow(args_.h_prev + rows_.State(b) * units_, units_,
              h_[0] + b * units_);
      state_.Keep(0, b, 0, units_, h_[0] + b * units_);
    }
    ZeroUnusedOutputs();
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      Status status = x_.Enter(block, args_.x);
      if (status != Status::kOk) return status;
      loop_.steps = block.steps;
      status =
          RunSteps(host_, loop_, split_, rows_,
                   [&](int64_t k, int, Share share, Range rows) {
                     const int64_t step = block.first + k;
                     Step(step, share.Of(w_h_.panels()), rows_.At(step, rows));
                   });
      if (status != Status::kOk) return status;
    }
    const auto last = [&](int64_t b) {
      return h_[rows_.Length(b) % 2] + b * units_;
    };
    CarryOverSkippedEnds(host_, rows_, args_.h_prev, last, args_.h, units_,
                         ld_h_);
    if (args_.h_last != nullptr) {
      for (int64_t b = 0; b < batch; ++b) {
        CopyRow(last(b), units_, args_.h_last + rows_.State(b) * units_);
      }
    }
    return Status::kOk;
  }

 private:
  int64_t LdW(int64_t depth) const {
    return shape_.weights_by_unit ? depth : kGruAfterGates * units_;
  }

  StepLoop Loop() const {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.rows = shape_.batch;
    loop.panels = CeilDiv(units_, kPanelUnits<C, kGruAfterGates>);
    loop.multiplies =
        static_cast<double>(shape_.batch) * units_ * units_ * kGruAfterGates;
    loop.input_weights =
        static_cast<double>(shape_.input) * units_ * kGruAfterGates;
    return loop;
  }

  void ZeroUnusedOutputs() {
    ZeroUnused(host_, rows_, args_.h, units_, ld_h_);
    if (shape_.saved_in_steps) return;
    for (T* out : {args_.r, args_.u, args_.c, args_.hc}) {
      ZeroUnused(host_, rows_, out, units_, units_);
    }
  }

  void Step(int64_t step, Range panels, Range rows) {
    const C* h_in = h_[step % 2];
    C* h_out = h_[(step + 1) % 2];
    const auto row = [&](const GateRun<C>& run, const C* x_bar) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved = rows_.Saved(step, run.row) * units_ + run.unit;
      const int64_t at = rows_.InMemory(step, run.row) * ld_h_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto gate = [&](int g) {
          return Load<C>(run.gates + g * run.gate_stride + j, lanes);
        };
        const V h = Load<C>(h_in + state + j, lanes);
        V hc = gate(args_.layout.c);
        GruAfterStep<V> out = GruAfterForward<Activations>(
            gate(args_.layout.r), gate(args_.layout.u),
            Load<C>(x_bar + j, lanes), hc, h);
        if (skip) {
          hc = V(0);
          out = {V(0), V(0), V(0), h};
        }
        const auto store = [&](T* to, const V& v) {
          if (to != nullptr) Store(to + saved + j, v, lanes);
        };
        store(args_.r, out.r);
        store(args_.u, out.u);
        store(args_.c, out.c);
        store(args_.hc, hc);
        if (args_.h != nullptr) Store(args_.h + at + j, out.h, lanes);
        Store(h_out + state + j, out.h, lanes);
      });
      state_.Keep(step + 1, run.row, run.unit, run.count, h_out + state);
    };
    const auto epilogue = [&](const GateTile<C>& tile,
                              const RowView<C>& x_bar) {
      tile.ForEachRow([&](const GateRun<C>& run) {
        row(run, x_bar.Row(run.row - tile.first.row));
      });
    };
    x_.Multiply(step, state_.Of(step, h_in), w_h_, panels, rows, epilogue);
  }

  const GruAfterSequenceForwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t ld_h_;
  Scratch scratch_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateOperand<T, kGruAfterGates> state_;
  StepLoop loop_;
  const StepSplit split_;
  const PackedWeights<T, kGruAfterGates> w_h_;
  InputProduct<T, kGruAfterGates, true> x_;
  C* h_[2] = {};  // [B, H], before and after a step
};

}  // namespace internal

template <class T, class Activations>
Status GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                               const HostInterface& host) {
  return internal::GruAfterSequenceForward<T, Activations>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_AFTER_FORWARD_H_
