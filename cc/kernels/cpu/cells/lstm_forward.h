// Owns the forward pass of an LSTM over a whole sequence on the CPU. The
// equations are in cc/core/lstm_cell.h; here stand the order of the products
// and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/cells/lstm_block_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/input_gemm.h"
#include "cc/kernels/cpu/sequence/recurrent_dropout.h"
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"

namespace blockrnn::cpu {

namespace internal {

// Step after step, in the products' epilogues:
//   x · w_x + b + h · w_h  →  the gates, cs, m = o ∘ tanh(cs)
//   m · w_pᵀ  →  h         with a projection; else h is m
template <class T, class Activations>
class LstmSequenceForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                      const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        width_(args.proj > 0 ? args.proj : args.shape.units),
        ld_h_(shape_.h_width > 0 ? shape_.h_width : width_),
        scratch_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, width_),
        state_(&scratch_, factors_, shape_.batch),
        loop_(Loop()),
        split_(ChooseSplit(loop_, host.num_threads)),
        w_h_(host, &scratch_,
             WeightView<T>{args.w_h, LdW(width_), shape_.weights_by_unit},
             GateOffsets<kLstmGates>(units_).at, width_, units_,
             rows_.FewUses() && !factors_),
        w_p_(host, &scratch_, WeightView<T>{args.w_p, units_, true}, {0},
             args.proj > 0 ? units_ : 0, args.proj, rows_.FewUses()),
        x_(host, &scratch_, shape_, rows_,
           {args.w_x, LdW(shape_.input), shape_.weights_by_unit, args.b,
            args.b_h},
           JoinsStep<T>(loop_, rows_, split_, host)) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    // h in two copies, since other workers still read the old one while the new
    // one is written; cs in one, since a unit reads only its own.
    for (C*& h : h_) h = scratch_.Array<C>(batch * width_);
    cs_ = scratch_.Array<C>(batch * units_);
    if (args_.proj > 0) m_ = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t state = rows_.State(b);
      CopyRow(args_.h_prev + state * width_, width_, h_[0] + b * width_);
      state_.Keep(0, b, 0, width_, h_[0] + b * width_);
      CopyRow(args_.cs_prev + state * units_, units_, cs_ + b * units_);
    }
    ZeroUnusedOutputs();
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      Status status = x_.Enter(block, args_.x);
      if (status != Status::kOk) return status;
      loop_.steps = block.steps;
      status = RunSteps(
          host_, loop_, split_, rows_,
          [&](int64_t k, int stage, Share share, Range rows) {
            const int64_t step = block.first + k;
            if (stage == 0) {
              Cells(step, share.Of(w_h_.panels()), rows_.At(step, rows));
            } else {
              Project(step, share.Of(w_p_.panels()), rows_.At(step, rows));
            }
          });
      if (status != Status::kOk) return status;
    }
    const auto h_last = [&](int64_t b) {
      return h_[rows_.Length(b) % 2] + b * width_;
    };
    const auto cs_last = [&](int64_t b) { return cs_ + b * units_; };
    CarryOverSkippedEnds(host_, rows_, args_.h_prev, h_last, args_.h, width_,
                         ld_h_);
    // What is kept in steps has no skipped ends: there is no mask then.
    if (!shape_.saved_in_steps) {
      CarryOverSkippedEnds(host_, rows_, args_.cs_prev, cs_last, args_.cs,
                           units_, units_);
    }
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t state = rows_.State(b);
      if (args_.h_last != nullptr) {
        CopyRow(h_last(b), width_, args_.h_last + state * width_);
      }
      if (args_.cs_last != nullptr) {
        CopyRow(cs_last(b), units_, args_.cs_last + state * units_);
      }
    }
    return Status::kOk;
  }

 private:
  int64_t LdW(int64_t depth) const {
    return shape_.weights_by_unit ? depth : kLstmGates * units_;
  }

  StepLoop Loop() const {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.stages = args_.proj > 0 ? 2 : 1;
    loop.rows = shape_.batch;
    loop.panels = CeilDiv(units_, kPanelUnits<C, kLstmGates>);
    loop.multiplies = static_cast<double>(shape_.batch) * units_ *
                      (kLstmGates * width_ + args_.proj);
    loop.input_weights =
        static_cast<double>(shape_.input) * units_ * kLstmGates;
    return loop;
  }

  void ZeroUnusedOutputs() {
    ZeroUnused(host_, rows_, args_.h, width_, ld_h_);
    if (shape_.saved_in_steps) return;
    for (T* out : {args_.i, args_.cs, args_.f, args_.o, args_.ci, args_.co}) {
      ZeroUnused(host_, rows_, out, units_, units_);
    }
  }

  T* At(T* p, int64_t row, int64_t width) const {
    return p == nullptr ? nullptr : p + row * width;
  }

  void Cells(int64_t step, Range panels, Range rows) {
    const LstmForwardCall<T> call = {args_.options, args_.wci, args_.wcf,
                                     args_.wco};
    const LstmGateLayout layout = args_.layout;
    C* const h_out = h_[(step + 1) % 2];
    C* const out_state = m_ == nullptr ? h_out : m_;
    const auto bar = [&](const GateRun<C>& run, int64_t j, auto lanes) {
      const auto gate = [&](int g) {
        return Load<C>(run.gates + g * run.gate_stride + j, lanes);
      };
      return LstmPreActivations<V>{gate(layout.i), gate(layout.ci),
                                   gate(layout.f), gate(layout.o)};
    };
    const auto each = [&](const GateRun<C>& run, const auto& cells) {
      const int64_t saved = rows_.Saved(step, run.row);
      const int64_t state = run.row * units_;
      const LstmForwardRow<T, C> row = {
          cs_ + state,
          At(args_.i, saved, units_),
          At(args_.cs, saved, units_),
          At(args_.f, saved, units_),
          At(args_.o, saved, units_),
          At(args_.ci, saved, units_),
          At(args_.co, saved, units_),
          m_ == nullptr ? HRow(step, run.row) : nullptr};
      if (rows_.Skipped(step, run.row)) {
        Skip(run, row);
        if (m_ == nullptr) Carry(step, run);
        return;
      }
      cells(row, [&](int64_t unit, auto lanes, const LstmStep<V>& out) {
        Store(cs_ + state + unit, out.cs, lanes);
        Store(out_state + state + unit, out.h, lanes);
      });
      if (m_ == nullptr) Keep(step, run);
    };
    const auto epilogue = [&](const GateTile<C>& tile, const RowView<C>&) {
      LstmForwardTile<Activations>(call, tile, bar, each);
    };
    x_.Multiply(step, state_.Of(step, h_[step % 2]), w_h_, panels, rows,
                epilogue);
  }

  void Project(int64_t step, Range panels, Range rows) {
    C* const h_out = h_[(step + 1) % 2];
    const auto epilogue = [&](const GateRun<C>& run) {
      if (rows_.Skipped(step, run.row)) {
        Carry(step, run);
        return;
      }
      CopyRow(run.gates, run.count, h_out + run.row * width_ + run.unit);
      T* h = HRow(step, run.row);
      if (h != nullptr) CopyRow(run.gates, run.count, h + run.unit);
      Keep(step, run);
    };
    MultiplyPacked({{m_, units_}}, w_p_, panels, rows, BeginAtZero(),
                   RowByRow{epilogue});
  }

  T* HRow(int64_t step, int64_t b) const {
    return At(args_.h, rows_.InMemory(step, b), ld_h_);
  }

  // A skipped step: nothing of its own, and the cell state as it was.
  void Skip(const GateRun<C>& run, const LstmForwardRow<T, C>& row) const {
    for (T* out : {row.i, row.f, row.o, row.ci, row.co}) {
      if (out != nullptr) ZeroRow(run.count, out + run.unit);
    }
    if (row.cs != nullptr) {
      CopyRow(row.cs_prev + run.unit, run.count, row.cs + run.unit);
    }
  }

  // h as it was.
  void Carry(int64_t step, const GateRun<C>& run) {
    const int64_t state = run.row * width_ + run.unit;
    const C* before = h_[step % 2] + state;
    CopyRow(before, run.count, h_[(step + 1) % 2] + state);
    T* h = HRow(step, run.row);
    if (h != nullptr) CopyRow(before, run.count, h + run.unit);
    Keep(step, run);
  }

  // For the step after, which reads it.
  void Keep(int64_t step, const GateRun<C>& run) const {
    state_.Keep(step + 1, run.row, run.unit, run.count,
                h_[(step + 1) % 2] + run.row * width_ + run.unit);
  }

  const LstmSequenceForwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t width_;  // P
  const int64_t ld_h_;
  Scratch scratch_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;
  const StateOperand<T, kLstmGates> state_;
  StepLoop loop_;
  const StepSplit split_;
  const PackedWeights<T, kLstmGates> w_h_;
  const PackedWeights<T, 1> w_p_;  // w_pᵀ
  InputProduct<T, kLstmGates> x_;
  C* h_[2] = {};     // [B, P], before and after a step
  C* cs_ = nullptr;  // [B, H]
  C* m_ = nullptr;   // [B, H], what is projected; nullptr without a projection
};

}  // namespace internal

template <class T, class Activations>
Status LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                           const HostInterface& host) {
  return internal::LstmSequenceForward<T, Activations>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_FORWARD_H_
