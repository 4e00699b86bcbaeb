// Owns a GRU, reset before the product, over a whole sequence on the CPU,
// forward and backward. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_GRU_SEQUENCE_H_
#define BLOCKRNN_KERNELS_CPU_GRU_SEQUENCE_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/packed_weights.h"
#include "cc/kernels/cpu/product.h"
#include "cc/kernels/cpu/rows.h"
#include "cc/kernels/cpu/sequence.h"
#include "cc/kernels/cpu/step_loop.h"

namespace blockrnn::cpu {

namespace internal {

// For each block of steps, x · w_ru_x + b_ru and x · w_c_x + b_c for all its
// steps; then for each step two stages:
//   that + h · w_ru_h        →  r, u, h ∘ r
//   that + (h ∘ r) · w_c_h   →  c, h
template <class T, class Activations>
class GruSequenceForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruSequenceForward(const GruSequenceForwardArgs<T>& args, const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        block_steps_(StepsInBlock(args.shape)),
        gate_offset_{kGruRu.r * units_, kGruRu.u * units_},
        scratch_(host),
        w_ru_h_(host, &scratch_, WeightView<T>{args.w_ru_h, 2 * units_},
                gate_offset_, units_, units_),
        w_c_h_(host, &scratch_, WeightView<T>{args.w_c_h, units_}, {0}, units_,
               units_) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    const int64_t rows = block_steps_ * batch;
    start_ru_ =
        scratch_.Array<C>(rows * w_ru_h_.panels() * kPanelWidth<C, kGruGates>);
    start_c_ = scratch_.Array<C>(rows * w_c_h_.panels() * kPanelWidth<C, 1>);
    wide_x_ = WideRowsScratch<T>(&scratch_, rows, shape_.input);
    h_ = scratch_.Array<C>(batch * units_);
    u_ = scratch_.Array<C>(batch * units_);
    h_r_ = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    CopyRow(args_.h_prev, batch * units_, h_);

    StepLoop loop;
    loop.steps = shape_.steps;
    loop.stages = 2;
    loop.rows = batch;
    loop.panels = w_ru_h_.panels();
    loop.multiplies = static_cast<double>(batch) * units_ * units_ * 3;
    const StepSplit split = ChooseSplit(loop, host_.num_threads);
    for (first_ = 0; first_ < shape_.steps; first_ += block_steps_) {
      loop.steps = std::min(block_steps_, shape_.steps - first_);
      Status status = FromInput(loop.steps * batch);
      if (status != Status::kOk) return status;
      status = RunSteps(
          host_, loop, split,
          [&](int64_t step, int stage, Share share, Range rows_of_batch) {
            if (stage == 0) {
              Gates(step, share.Of(w_ru_h_.panels()), rows_of_batch);
            } else {
              Candidate(step, share.Of(w_c_h_.panels()), rows_of_batch);
            }
          });
      if (status != Status::kOk) return status;
    }
    if (args_.h_last != nullptr) CopyRow(h_, batch * units_, args_.h_last);
    return Status::kOk;
  }

 private:
  Status FromInput(int64_t rows) {
    const RowView<C> x = WideStepRows(host_, shape_, args_.x, shape_.input,
                                      first_, rows, wide_x_);
    Product<T, kGruGates> gates;
    gates.rows = rows;
    gates.units = units_;
    std::copy(gate_offset_, gate_offset_ + kGruGates, gates.gate_offset);
    gates.num_parts = 1;
    gates.parts[0] = {x, shape_.input, {args_.w_ru_x, 2 * units_}};
    const T* const b_ru[kGruGates] = {args_.b_ru + gate_offset_[0],
                                      args_.b_ru + gate_offset_[1]};
    const auto keep_gates = [&](const GateRun<C>& run) {
      StoreStart<C, kGruGates>(run, b_ru, w_ru_h_.panels(), start_ru_);
    };
    Product<T, 1> candidate;
    candidate.rows = rows;
    candidate.units = units_;
    candidate.num_parts = 1;
    candidate.parts[0] = {x, shape_.input, {args_.w_c_x, units_}};
    const T* const b_c[1] = {args_.b_c};
    const auto keep_candidate = [&](const GateRun<C>& run) {
      StoreStart<C, 1>(run, b_c, w_c_h_.panels(), start_c_);
    };
    return RunProducts<T>(host_, ProductWithEpilogue{gates, keep_gates},
                          ProductWithEpilogue{candidate, keep_candidate});
  }

  bool Skipped(int64_t in_memory) const {
    return args_.mask != nullptr && args_.mask[in_memory] == 0;
  }

  void Gates(int64_t step, Range panels, Range rows) {
    const auto start = [&](int64_t row, int64_t panel) {
      return start_ru_ +
             ((step * shape_.batch + row) * w_ru_h_.panels() + panel) *
                 kPanelWidth<C, kGruGates>;
    };
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = Skipped(in_memory);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t at = in_memory * units_ + run.unit;
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
        Store(h_r_ + state + j, out.h_prev_r, lanes);
      });
    };
    MultiplyPacked(RowView<C>{h_, units_}, w_ru_h_, panels, rows, start,
                   epilogue);
  }

  // Writes h in place: all of this step's first stage has read it.
  void Candidate(int64_t step, Range panels, Range rows) {
    const auto start = [&](int64_t row, int64_t panel) {
      return start_c_ +
             ((step * shape_.batch + row) * w_c_h_.panels() + panel) *
                 kPanelWidth<C, 1>;
    };
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = Skipped(in_memory);
      const int64_t state = run.row * units_ + run.unit;
      const int64_t at = in_memory * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V h = Load<C>(h_ + state + j, lanes);
        GruState<V> out = GruForwardState<Activations>(
            Load<C>(run.gates + j, lanes), Load<C>(u_ + state + j, lanes), h);
        if (skip) out = {V(0), h};
        if (args_.c != nullptr) Store(args_.c + at + j, out.c, lanes);
        if (args_.h != nullptr) Store(args_.h + at + j, out.h, lanes);
        Store(h_ + state + j, out.h, lanes);
      });
    };
    MultiplyPacked(RowView<C>{h_r_, units_}, w_c_h_, panels, rows, start,
                   epilogue);
  }

  const GruSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t block_steps_;
  const int64_t gate_offset_[kGruGates];
  int64_t first_ = 0;  // of the block's steps
  Scratch scratch_;
  const PackedWeights<C, kGruGates> w_ru_h_;
  const PackedWeights<C, 1> w_c_h_;
  C* start_ru_ = nullptr;  // [block rows, panels, panel width]
  C* start_c_ = nullptr;   // [block rows, panels, panel width]
  C* wide_x_ = nullptr;    // [block rows, I]
  C* h_ = nullptr;         // [B, H]
  C* u_ = nullptr;         // [B, H]
  C* h_r_ = nullptr;       // [B, H], h ∘ r
};

// For each block of steps, the last one first; for each step two stages:
//   [d_r_bar d_u_bar] · w_ru_hᵀ of the step after it  →  d_h, d_c_bar, d_u_bar
//   d_c_bar · w_c_hᵀ  →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
// then for all steps of the block
//   x_grad = [d_r_bar d_u_bar] · w_ru_xᵀ + d_c_bar · w_c_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruSequenceBackward(const GruSequenceBackwardArgs<T>& args, const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        batch_(args.shape.batch),
        units_(args.shape.units),
        block_steps_(StepsInBlock(args.shape)),
        scratch_(host),
        w_ru_h_t_(host, &scratch_, WeightView<T>{args.w_ru_h, 2 * units_, true},
                  {0}, 2 * units_, units_),
        w_c_h_t_(host, &scratch_, WeightView<T>{args.w_c_h, units_, true}, {0},
                 units_, units_) {}

  Status Run() {
    Allocate();
    if (!scratch_.ok()) return Status::kOutOfMemory;
    Begin();
    const int64_t blocks = CeilDiv(shape_.steps, block_steps_);
    for (int64_t block = blocks - 1; block >= 0; --block) {
      first_ = block * block_steps_;
      steps_ = std::min(block_steps_, shape_.steps - first_);
      Status status = Steps();
      if (status == Status::kOk) status = Weights();
      if (status != Status::kOk) return status;
      // The steps before need the gradients of the first step of this block.
      std::copy(d_ru_, d_ru_ + batch_ * ld_ru(),
                d_ru_ + block_steps_ * batch_ * ld_ru());
    }
    return Finish();
  }

 private:
  int64_t ld_ru() const { return kGruGates * units_; }

  void Allocate() {
    const int64_t rows = block_steps_ * batch_;
    d_ru_ = scratch_.Array<C>((rows + batch_) * ld_ru());
    d_c_ = scratch_.Array<C>(rows * units_);
    h_r_ = scratch_.Array<C>(rows * units_);
    d_h_ = scratch_.Array<C>(batch_ * units_);
    d_h_before_ = scratch_.Array<C>(batch_ * units_);
    wide_x_ = WideRowsScratch<T>(&scratch_, rows, shape_.input);
    const int64_t stride = TransposedStride<C>(rows);
    x_t_ = scratch_.Array<C>(shape_.input * stride);
    h_t_ = scratch_.Array<C>((units_ + 1) * stride);
    h_r_t_ = scratch_.Array<C>((units_ + 1) * stride);
    const auto grad = [&](T* out, int64_t count) {
      return ComputedInPlace(&scratch_, out, count);
    };
    w_ru_x_grad_ = grad(args_.w_ru_x_grad, shape_.input * ld_ru());
    w_ru_h_grad_ = grad(args_.w_ru_h_grad, units_ * ld_ru());
    w_c_x_grad_ = grad(args_.w_c_x_grad, shape_.input * units_);
    w_c_h_grad_ = grad(args_.w_c_h_grad, units_ * units_);
    b_ru_grad_ = grad(args_.b_ru_grad, ld_ru());
    b_c_grad_ = grad(args_.b_c_grad, units_);
  }

  void Begin() {
    if (args_.h_last_grad != nullptr) {
      CopyRow(args_.h_last_grad, batch_ * units_, d_h_before_);
    } else {
      ZeroRow(batch_ * units_, d_h_before_);
    }
    ZeroRow(shape_.input * ld_ru(), w_ru_x_grad_);
    ZeroRow(units_ * ld_ru(), w_ru_h_grad_);
    ZeroRow(shape_.input * units_, w_c_x_grad_);
    ZeroRow(units_ * units_, w_c_h_grad_);
    ZeroRow(ld_ru(), b_ru_grad_);
    ZeroRow(units_, b_c_grad_);
  }

  Status Steps() {
    StepLoop loop;
    loop.steps = steps_;
    loop.stages = 2;
    loop.rows = batch_;
    loop.panels = w_c_h_t_.panels();
    loop.multiplies = static_cast<double>(batch_) * units_ * units_ * 3;
    StepLoop whole = loop;
    whole.steps = shape_.steps;
    return RunSteps(host_, loop, ChooseSplit(whole, host_.num_threads),
                    [&](int64_t k, int stage, Share share, Range rows) {
                      const int64_t step = steps_ - 1 - k;
                      const Range panels = share.Of(w_c_h_t_.panels());
                      if (stage == 0) {
                        State(step, panels, rows);
                      } else {
                        Reset(step, panels, rows);
                      }
                    });
  }

  bool Skipped(int64_t in_memory) const {
    return args_.mask != nullptr && args_.mask[in_memory] == 0;
  }

  const T* Before(int64_t step, int64_t b) const {
    return StateBefore(shape_, args_.h, args_.h_prev, step, b);
  }

  void State(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = Skipped(in_memory);
      const int64_t at = in_memory * units_ + run.unit;
      const int64_t state = run.row * units_ + run.unit;
      const int64_t block_row = step * batch_ + run.row;
      const T* h_prev = Before(first_ + step, run.row) + run.unit;
      C* d_u = d_ru_ + block_row * ld_ru() + kGruRu.u * units_ + run.unit;
      C* d_c = d_c_ + block_row * units_ + run.unit;
      C* h_r = h_r_ + block_row * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        V d_h = Load<C>(run.gates + j, lanes) +
                Load<C>(d_h_before_ + state + j, lanes);
        if (args_.h_grad != nullptr) {
          d_h = d_h + Load<C>(args_.h_grad + at + j, lanes);
        }
        const V before = Load<C>(h_prev + j, lanes);
        GruStateGrad<V> out =
            GruBackwardState(d_h, Load<C>(args_.u + at + j, lanes),
                             Load<C>(args_.c + at + j, lanes), before);
        if (skip) out = {V(0), V(0)};
        Store(d_h_ + state + j, d_h, lanes);
        Store(d_c + j, out.d_c_bar, lanes);
        Store(d_u + j, out.d_u_bar, lanes);
        Store(h_r + j, before * Load<C>(args_.r + at + j, lanes), lanes);
      });
    };
    if (first_ + step + 1 == shape_.steps) {
      ZeroProduct(w_ru_h_t_, panels, rows, epilogue);
      return;
    }
    // The last step of a block reads what the block after it has left behind
    // the buffer's end.
    const int64_t after = step + 1 == steps_ ? block_steps_ : step + 1;
    MultiplyPacked(RowView<C>{d_ru_ + after * batch_ * ld_ru(), ld_ru()},
                   w_ru_h_t_, panels, rows, StartAtZero(), epilogue);
  }

  void Reset(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = Skipped(in_memory);
      const int64_t at = in_memory * units_ + run.unit;
      const int64_t state = run.row * units_ + run.unit;
      const T* h_prev = Before(first_ + step, run.row) + run.unit;
      C* d_r = d_ru_ + (step * batch_ + run.row) * ld_ru() + kGruRu.r * units_ +
               run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const V d_hr = Load<C>(run.gates + j, lanes);
        const V r = Load<C>(args_.r + at + j, lanes);
        const V d_h = Load<C>(d_h_ + state + j, lanes);
        const V d_r_bar = GruBackwardReset(d_hr, Load<C>(h_prev + j, lanes), r);
        const V d_h_before = GruBackwardPrevious(
            V(0), d_hr, r, d_h, Load<C>(args_.u + at + j, lanes));
        Store(d_r + j, skip ? V(0) : d_r_bar, lanes);
        Store(d_h_before_ + state + j, skip ? d_h : d_h_before, lanes);
      });
    };
    MultiplyPacked(RowView<C>{d_c_ + step * batch_ * units_, units_}, w_c_h_t_,
                   panels, rows, StartAtZero(), epilogue);
  }

  Status Weights() {
    const int64_t rows = steps_ * batch_;
    const int64_t stride = TransposedStride<C>(rows);
    const RowView<C> x = WideStepRows(host_, shape_, args_.x, shape_.input,
                                      first_, rows, wide_x_);
    const auto kept = [&](const auto& row) {
      return KeptRows(shape_, args_.mask, first_, row);
    };
    TransposedRows<C>(host_, kept([&](int64_t m) { return x.Row(m); }), rows,
                      shape_.input, x_t_);
    TransposedRows<C>(host_, kept([&](int64_t m) {
                        return Before(first_ + m / batch_, m % batch_);
                      }),
                      rows, units_, h_t_);
    TransposedRows<C>(host_, kept([&](int64_t m) { return h_r_ + m * units_; }),
                      rows, units_, h_r_t_);
    std::fill_n(h_t_ + units_ * stride, rows, C(1));
    std::fill_n(h_r_t_ + units_ * stride, rows, C(1));

    Product<T, 1> to_x;
    to_x.rows = rows;
    to_x.units = shape_.input;
    to_x.num_parts = 2;
    to_x.parts[0] = {{d_ru_, ld_ru()}, ld_ru(), {args_.w_ru_x, ld_ru(), true}};
    to_x.parts[1] = {{d_c_, units_}, units_, {args_.w_c_x, units_, true}};
    const StoreStepRows<T> store_x = {shape_, first_, args_.x_grad,
                                      shape_.input};
    const WeightView<C> d_ru = {d_ru_, ld_ru()};
    const WeightView<C> d_c = {d_c_, units_};
    return RunProducts<T>(
        host_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<C>({x_t_, shape_.input, rows, d_ru, ld_ru(), w_ru_x_grad_,
                        ld_ru(), nullptr}),
        SumOverRows<C>({x_t_, shape_.input, rows, d_c, units_, w_c_x_grad_,
                        units_, nullptr}),
        SumOverRows<C>({h_t_, units_, rows, d_ru, ld_ru(), w_ru_h_grad_,
                        ld_ru(), b_ru_grad_}),
        SumOverRows<C>({h_r_t_, units_, rows, d_c, units_, w_c_h_grad_, units_,
                        b_c_grad_}));
  }

  Status Finish() {
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t at = run.row * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        Store(args_.h_prev_grad + at + j,
              Load<C>(run.gates + j, lanes) +
                  Load<C>(d_h_before_ + at + j, lanes),
              lanes);
      });
    };
    const Range panels = {0, w_ru_h_t_.panels()};
    const Range rows = {0, batch_};
    if (shape_.steps == 0) {
      ZeroProduct(w_ru_h_t_, panels, rows, epilogue);
    } else {
      MultiplyPacked(RowView<C>{d_ru_, ld_ru()}, w_ru_h_t_, panels, rows,
                     StartAtZero(), epilogue);
    }
    KeepRounded(w_ru_x_grad_, shape_.input * ld_ru(), args_.w_ru_x_grad);
    KeepRounded(w_ru_h_grad_, units_ * ld_ru(), args_.w_ru_h_grad);
    KeepRounded(w_c_x_grad_, shape_.input * units_, args_.w_c_x_grad);
    KeepRounded(w_c_h_grad_, units_ * units_, args_.w_c_h_grad);
    KeepRounded(b_ru_grad_, ld_ru(), args_.b_ru_grad);
    KeepRounded(b_c_grad_, units_, args_.b_c_grad);
    return Status::kOk;
  }

  const GruSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t batch_;
  const int64_t units_;
  const int64_t block_steps_;
  int64_t first_ = 0;  // of the block's steps
  int64_t steps_ = 0;  // in the block
  Scratch scratch_;
  const PackedWeights<C, 1> w_ru_h_t_;  // w_ru_hᵀ
  const PackedWeights<C, 1> w_c_h_t_;   // w_c_hᵀ
  C* d_ru_ = nullptr;        // [block steps + 1, B, 2H], pre-activations
  C* d_c_ = nullptr;         // [block rows, H], pre-activations
  C* h_r_ = nullptr;         // [block rows, H], h before the step ∘ r
  C* d_h_ = nullptr;         // [B, H]
  C* d_h_before_ = nullptr;  // [B, H], less what comes through r̄ and ū
  C* wide_x_ = nullptr;      // [block rows, I]
  C* x_t_ = nullptr;         // [I, block rows]
  C* h_t_ = nullptr;         // [H + 1, block rows], the last row ones
  C* h_r_t_ = nullptr;       // [H + 1, block rows], the last row ones
  C* w_ru_x_grad_ = nullptr;
  C* w_ru_h_grad_ = nullptr;
  C* w_c_x_grad_ = nullptr;
  C* w_c_h_grad_ = nullptr;
  C* b_ru_grad_ = nullptr;
  C* b_c_grad_ = nullptr;
};

}  // namespace internal

template <class T, class Activations>
Status GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                          const Host& host) {
  return internal::GruSequenceForward<T, Activations>(args, host).Run();
}

template <class T>
Status GruSequenceBackward(const GruSequenceBackwardArgs<T>& args,
                           const Host& host) {
  return internal::GruSequenceBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GRU_SEQUENCE_H_
