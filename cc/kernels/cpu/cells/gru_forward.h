// Owns the forward pass of a GRU, reset before the product, over a whole
// sequence on the CPU. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_

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

// Step after step, two stages:
//   x · w_ru_x + b_ru + h · w_ru_h        →  r, u, h ∘ r
//   x · w_c_x + b_c + (h ∘ r) · w_c_h     →  c, h
template <class T, class Activations>
class GruSequenceForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                     const HostInterface& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        scratch_(host),
        memory_(host),
        rows_(shape_, args.mask, &scratch_),
        factors_(rows_, args.recurrent_dropout, units_),
        state_(&scratch_, factors_, shape_.batch),
        loop_(Loop()),
        split_(ChooseSplit(loop_, host.num_threads)),
        w_ru_h_(host, &scratch_, WeightView<T>{args.w_ru_h, kGruGates * units_},
                GateOffsets<kGruGates>(units_).at, units_, units_,
                rows_.FewUses() && !factors_),
        w_c_h_(host, &scratch_, WeightView<T>{args.w_c_h, units_}, {0}, units_,
               units_, rows_.FewUses()),
        x_ru_(host, &scratch_, shape_, rows_,
              {args.w_ru_x, kGruGates * units_, false, args.b_ru},
              JoinsStep<T>(loop_, rows_, split_, host)),
        x_c_(host, &scratch_, shape_, rows_,
             {args.w_c_x, units_, false, args.b_c, nullptr, kGruGates * units_},
             JoinsStep<T>(loop_, rows_, split_, host)) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    h_ = scratch_.Array<C>(batch * units_);
    u_ = scratch_.Array<C>(batch * units_);
    h_r_ = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    for (int64_t b = 0; b < batch; ++b) {
      CopyRow(args_.h_prev + rows_.State(b) * units_, units_, h_ + b * units_);
      state_.Keep(0, b, 0, units_, h_ + b * units_);
    }
    for (T* out : {args_.r, args_.u, args_.c, args_.h}) {
      ZeroUnused(host_, rows_, out, units_, units_);
    }
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      x_ru_.EnterRows(block, args_.x);
      x_c_.EnterRows(block, args_.x);
      Status status = RunProducts(host_, &memory_, x_ru_.Ahead(), x_c_.Ahead());
      if (status != Status::kOk) return status;
      loop_.steps = block.steps;
      status = RunSteps(host_, loop_, split_, rows_,
                        [&](int64_t k, int stage, Share share, Range all) {
                          const int64_t step = block.first + k;
                          const Range rows = rows_.At(step, all);
                          if (stage == 0) {
                            Gates(step, share.Of(w_ru_h_.panels()), rows);
                          } else {
                            Candidate(step, share.Of(w_c_h_.panels()), rows);
                          }
                        });
      if (status != Status::kOk) return status;
    }
    const auto last = [&](int64_t b) { return h_ + b * units_; };
    CarryOverSkippedEnds(host_, rows_, args_.h_prev, last, args_.h, units_,
                         units_);
    if (args_.h_last != nullptr) {
      for (int64_t b = 0; b < batch; ++b) {
        CopyRow(last(b), units_, args_.h_last + rows_.State(b) * units_);
      }
    }
    return Status::kOk;
  }

 private:
  static constexpr int kCandidate = kGruGates;  // its factors

  StepLoop Loop() const {
    StepLoop loop;
    loop.steps = rows_.steps();
    loop.stages = 2;
    loop.rows = shape_.batch;
    loop.panels = CeilDiv(units_, kPanelUnits<C, kGruGates>);
    const double columns = (kGruGates + 1) * static_cast<double>(units_);
    loop.multiplies = shape_.batch * units_ * columns;
    loop.input_weights = shape_.input * columns;
    return loop;
  }

  void Gates(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t at = rows_.Saved(step, run.row) * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto gate = [&](int g) {
          return Load<C>(run.gates + g * run.gate_stride + j, lanes);
        };
        GruGates<V> out = GruForwardGates<Activations>(
            gate(kGruRu.r), gate(kGruRu.u), Load<C>(h_ + state + j, lanes));
        if (skip) out = {V(0), V(0), V(0)};
        if (args_.r != nullptr) Store(args_.r + at + j, out.r, lanes);
        if (args_.u != nullptr) Store(args_.u + at + j, out.u, lanes);
        Store(u_ + state + j, out.u, lanes);
        Store(h_r_ + state + j,
              out.h_prev_r *
                  factors_.At(kCandidate, run.row, run.unit + j, lanes),
              lanes);
      });
    };
    x_ru_.Multiply(step, state_.Of(step, h_), w_ru_h_, panels, rows,
                   RowByRow{epilogue});
  }

  // Writes h in place: all of this step's first stage has read it.
  void Candidate(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const bool skip = rows_.Skipped(step, run.row);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t saved = rows_.Saved(step, run.row) * units_ + run.unit;
      const int64_t at = rows_.InMemory(step, run.row) * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V h = Load<C>(h_ + state + j, lanes);
        GruState<V> out = GruForwardState<Activations>(
            Load<C>(run.gates + j, lanes), Load<C>(u_ + state + j, lanes), h);
        if (skip) out = {V(0), h};
        if (args_.c != nullptr) Store(args_.c + saved + j, out.c, lanes);
        if (args_.h != nullptr) Store(args_.h + at + j, out.h, lanes);
        Store(h_ + state + j, out.h, lanes);
      });
      state_.Keep(step + 1, run.row, run.unit, run.count, h_ + state);
    };
    x_c_.Multiply(step, {{h_r_, units_}}, w_c_h_, panels, rows,
                  RowByRow{epilogue});
  }

  const GruSequenceForwardArgs<T>& args_;
  const HostInterface& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  Scratch scratch_;
  ProductMemory<T> memory_;
  const SequenceRows rows_;
  const StateFactors<T> factors_;  // of gates r, u, c
  const StateOperand<T, kGruGates> state_;
  StepLoop loop_;
  const StepSplit split_;
  const PackedWeights<T, kGruGates> w_ru_h_;
  const PackedWeights<T, 1> w_c_h_;
  InputProduct<T, kGruGates> x_ru_;
  InputProduct<T, 1> x_c_;
  C* h_ = nullptr;    // [B, H]
  C* u_ = nullptr;    // [B, H]
  C* h_r_ = nullptr;  // [B, H], h ∘ r, times the candidate's factors
};

}  // namespace internal

template <class T, class Activations>
Status GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                          const HostInterface& host) {
  return internal::GruSequenceForward<T, Activations>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_FORWARD_H_
