// Owns a GRU, reset after the product, over a whole sequence on the CPU,
// forward and backward. The equations are in cc/core/gru_cell.h; here stand the
// order of the products and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_GRU_AFTER_SEQUENCE_H_
#define BLOCKRNN_KERNELS_CPU_GRU_AFTER_SEQUENCE_H_

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

// For each block of steps, x · w_x and the biases for all its steps; then for
// each step one stage:
//   [r̄ ū hc] = that + h · w_h  →  r, u, c, h
template <class T, class Activations>
class GruAfterSequenceForward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                          const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        units_(args.shape.units),
        block_steps_(StepsInBlock(args.shape)),
        gate_offset_{0, units_, 2 * units_},
        scratch_(host),
        w_h_(host, &scratch_, WeightView<T>{args.w_h, 3 * units_}, gate_offset_,
             units_, units_) {}

  Status Run() {
    const int64_t batch = shape_.batch;
    const int64_t rows = block_steps_ * batch;
    start_ = scratch_.Array<C>(rows * w_h_.panels() * kStartWidth);
    wide_x_ = WideRowsScratch<T>(&scratch_, rows, shape_.input);
    // Other workers still read the old state while the new one is written.
    for (C*& h : h_) h = scratch_.Array<C>(batch * units_);
    if (!scratch_.ok()) return Status::kOutOfMemory;
    CopyRow(args_.h_prev, batch * units_, h_[0]);

    StepLoop loop;
    loop.steps = shape_.steps;
    loop.rows = batch;
    loop.panels = w_h_.panels();
    loop.multiplies = static_cast<double>(batch) * units_ * units_ * 3;
    const StepSplit split = ChooseSplit(loop, host_.num_threads);
    for (first_ = 0; first_ < shape_.steps; first_ += block_steps_) {
      loop.steps = std::min(block_steps_, shape_.steps - first_);
      Status status = FromInput(loop.steps * batch);
      if (status != Status::kOk) return status;
      status = RunSteps(host_, loop, split,
                        [&](int64_t step, int, Share share, Range rows_done) {
                          Step(step, share.Of(w_h_.panels()), rows_done);
                        });
      if (status != Status::kOk) return status;
    }
    if (args_.h_last != nullptr) {
      CopyRow(h_[shape_.steps % 2], batch * units_, args_.h_last);
    }
    return Status::kOk;
  }

 private:
  static constexpr int kWidth = kPanelWidth<C, kGruAfterGates>;
  // A panel of what the product starts from, and x̄ of the same units behind.
  static constexpr int kStartWidth = kWidth + Vec<C>::kSize;

  C* Start(int64_t row, int64_t panel) const {
    return start_ + (row * w_h_.panels() + panel) * kStartWidth;
  }

  Status FromInput(int64_t rows) {
    Product<T, kGruAfterGates> product;
    product.rows = rows;
    product.units = units_;
    std::copy(gate_offset_, gate_offset_ + kGruAfterGates, product.gate_offset);
    product.num_parts = 1;
    product.parts[0] = {WideStepRows(host_, shape_, args_.x, shape_.input,
                                     first_, rows, wide_x_),
                        shape_.input,
                        {args_.w_x, 3 * units_}};
    const int candidate = args_.layout.c;
    const auto keep = [&](const GateRun<C>& run) {
      for (int g = 0; g < kGruAfterGates; ++g) {
        const T* b_x = args_.b_x + g * units_ + run.unit;
        const T* b_h = args_.b_h + g * units_ + run.unit;
        ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
          C* start = Start(run.row, (run.unit + j) / Vec<C>::kSize);
          const V x_bar = Load<C>(run.gates + g * run.gate_stride + j, lanes) +
                          Load<C>(b_x + j, lanes);
          const V bias = Load<C>(b_h + j, lanes);
          C* gate = start + g * Vec<C>::kSize;
          if (g == candidate) {
            Store(gate, bias);
            Store(start + kWidth, x_bar);
          } else {
            Store(gate, x_bar + bias);
          }
        });
      }
    };
    return RunProducts<T>(host_, ProductWithEpilogue{product, keep});
  }

  void Step(int64_t step, Range panels, Range rows) {
    const C* h_in = h_[(first_ + step) % 2];
    C* h_out = h_[(first_ + step + 1) % 2];
    const int64_t first_row = step * shape_.batch;
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = args_.mask != nullptr && args_.mask[in_memory] == 0;
      const int64_t state = run.row * units_ + run.unit;
      const int64_t at = in_memory * units_ + run.unit;
      const C* x_bar =
          Start(first_row + run.row, run.unit / Vec<C>::kSize) + kWidth;
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
          if (to != nullptr) Store(to + at + j, v, lanes);
        };
        store(args_.r, out.r);
        store(args_.u, out.u);
        store(args_.c, out.c);
        store(args_.hc, hc);
        store(args_.h, out.h);
        Store(h_out + state + j, out.h, lanes);
      });
    };
    MultiplyPacked(
        RowView<C>{h_in, units_}, w_h_, panels, rows,
        [&](int64_t row, int64_t panel) {
          return Start(first_row + row, panel);
        },
        epilogue);
  }

  const GruAfterSequenceForwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t units_;
  const int64_t block_steps_;
  const int64_t gate_offset_[kGruAfterGates];
  int64_t first_ = 0;  // of the block's steps
  Scratch scratch_;
  const PackedWeights<C, kGruAfterGates> w_h_;
  C* start_ = nullptr;   // [block rows, panels, kStartWidth]
  C* wide_x_ = nullptr;  // [block rows, I]
  C* h_[2] = {};         // [B, H], before and after a step
};

// For each block of steps, the last one first; for each step one stage:
//   [d_r_bar d_u_bar d_hc] · w_hᵀ of the step after it  →  d_h  →
//   d_r_bar, d_u_bar, d_hc, d_c_bar
// then for all steps of the block
//   x_grad = [d_r_bar d_u_bar d_c_bar] · w_xᵀ
//   and the sums over rows that the weights' gradients are.
template <class T>
class GruAfterSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                           const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        batch_(args.shape.batch),
        units_(args.shape.units),
        block_steps_(StepsInBlock(args.shape)),
        scratch_(host),
        w_h_t_(host, &scratch_, WeightView<T>{args.w_h, 3 * units_, true}, {0},
               3 * units_, units_) {}

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
      std::copy(dz_, dz_ + batch_ * ldz(), dz_ + block_steps_ * batch_ * ldz());
    }
    return Finish();
  }

 private:
  int64_t ldz() const { return kGruAfterGates * units_; }

  void Allocate() {
    const int64_t rows = block_steps_ * batch_;
    dz_ = scratch_.Array<C>((rows + batch_) * ldz());
    d_c_ = scratch_.Array<C>(rows * units_);
    d_h_before_ = scratch_.Array<C>(batch_ * units_);
    wide_x_ = WideRowsScratch<T>(&scratch_, rows, shape_.input);
    const int64_t stride = TransposedStride<C>(rows);
    x_t_ = scratch_.Array<C>((shape_.input + 1) * stride);
    h_t_ = scratch_.Array<C>((units_ + 1) * stride);
    w_x_grad_ =
        ComputedInPlace(&scratch_, args_.w_x_grad, shape_.input * ldz());
    w_h_grad_ = ComputedInPlace(&scratch_, args_.w_h_grad, units_ * ldz());
    b_x_grad_ = ComputedInPlace(&scratch_, args_.b_x_grad, ldz());
    b_h_grad_ = ComputedInPlace(&scratch_, args_.b_h_grad, ldz());
  }

  void Begin() {
    if (args_.h_last_grad != nullptr) {
      CopyRow(args_.h_last_grad, batch_ * units_, d_h_before_);
    } else {
      ZeroRow(batch_ * units_, d_h_before_);
    }
    ZeroRow(shape_.input * ldz(), w_x_grad_);
    ZeroRow(units_ * ldz(), w_h_grad_);
    ZeroRow(ldz(), b_x_grad_);
    ZeroRow(ldz(), b_h_grad_);
  }

  Status Steps() {
    StepLoop loop;
    loop.steps = steps_;
    loop.rows = batch_;
    loop.panels = w_h_t_.panels();
    loop.multiplies = static_cast<double>(batch_) * units_ * ldz();
    StepLoop whole = loop;
    whole.steps = shape_.steps;
    return RunSteps(host_, loop, ChooseSplit(whole, host_.num_threads),
                    [&](int64_t k, int, Share share, Range rows) {
                      Step(steps_ - 1 - k, share.Of(w_h_t_.panels()), rows);
                    });
  }

  const T* Before(int64_t step, int64_t b) const {
    return StateBefore(shape_, args_.h, args_.h_prev, step, b);
  }

  void Step(int64_t step, Range panels, Range rows) {
    const auto epilogue = [&](const GateRun<C>& run) {
      const int64_t in_memory = shape_.Row(first_ + step, run.row);
      const bool skip = args_.mask != nullptr && args_.mask[in_memory] == 0;
      const int64_t at = in_memory * units_ + run.unit;
      const int64_t block_row = step * batch_ + run.row;
      const T* h_prev = Before(first_ + step, run.row) + run.unit;
      C* d_h_before = d_h_before_ + run.row * units_ + run.unit;
      C* dz = dz_ + block_row * ldz() + run.unit;
      C* d_c = d_c_ + block_row * units_ + run.unit;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const auto saved = [&](const T* p) {
          return Load<C>(p + at + j, lanes);
        };
        V d_h = Load<C>(run.gates + j, lanes) + Load<C>(d_h_before + j, lanes);
        if (args_.h_grad != nullptr) d_h = d_h + saved(args_.h_grad);
        const GruAfterStep<V> step_saved = {saved(args_.r), saved(args_.u),
                                            saved(args_.c), V(0)};
        GruAfterStepGrad<V> out = GruAfterBackward(
            step_saved, saved(args_.hc), Load<C>(h_prev + j, lanes), d_h);
        if (skip) out = {V(0), V(0), V(0), V(0), d_h};
        Store(dz + args_.layout.r * units_ + j, out.d_r_bar, lanes);
        Store(dz + args_.layout.u * units_ + j, out.d_u_bar, lanes);
        Store(dz + args_.layout.c * units_ + j, out.d_hc, lanes);
        Store(d_c + j, out.d_c_bar, lanes);
        Store(d_h_before + j, out.d_h_prev, lanes);
      });
    };
    if (first_ + step + 1 == shape_.steps) {
      ZeroProduct(w_h_t_, panels, rows, epilogue);
      return;
    }
    // The last step of a block reads what the block after it has left behind
    // the buffer's end.
    const int64_t after = step + 1 == steps_ ? block_steps_ : step + 1;
    MultiplyPacked(RowView<C>{dz_ + after * batch_ * ldz(), ldz()}, w_h_t_,
                   panels, rows, StartAtZero(), epilogue);
  }

  Status Weights() {
    const int64_t rows = steps_ * batch_;
    const int64_t stride = TransposedStride<C>(rows);
    const int64_t input = shape_.input;
    const RowView<C> x =
        WideStepRows(host_, shape_, args_.x, input, first_, rows, wide_x_);
    const auto kept = [&](const auto& row) {
      return KeptRows(shape_, args_.mask, first_, row);
    };
    TransposedRows<C>(host_, kept([&](int64_t m) { return x.Row(m); }), rows,
                      input, x_t_);
    TransposedRows<C>(host_, kept([&](int64_t m) {
                        return Before(first_ + m / batch_, m % batch_);
                      }),
                      rows, units_, h_t_);
    std::fill_n(x_t_ + input * stride, rows, C(1));
    std::fill_n(h_t_ + units_ * stride, rows, C(1));

    // The gates before the candidate are the same for x and for h.
    const int64_t gates = 2 * units_;
    Product<T, 1> to_x;
    to_x.rows = rows;
    to_x.units = input;
    to_x.num_parts = 2;
    to_x.parts[0] = {{dz_, ldz()}, gates, {args_.w_x, ldz(), true}};
    to_x.parts[1] = {{d_c_, units_}, units_, {args_.w_x + gates, ldz(), true}};
    const StoreStepRows<T> store_x = {shape_, first_, args_.x_grad, input};
    const WeightView<C> dz = {dz_, ldz()};
    const WeightView<C> d_c = {d_c_, units_};
    return RunProducts<T>(
        host_, ProductWithEpilogue{to_x, store_x},
        SumOverRows<C>(
            {x_t_, input, rows, dz, gates, w_x_grad_, ldz(), b_x_grad_}),
        SumOverRows<C>({x_t_, input, rows, d_c, units_, w_x_grad_ + gates,
                        ldz(), b_x_grad_ + gates}),
        SumOverRows<C>(
            {h_t_, units_, rows, dz, ldz(), w_h_grad_, ldz(), b_h_grad_}));
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
    const Range panels = {0, w_h_t_.panels()};
    const Range rows = {0, batch_};
    if (shape_.steps == 0) {
      ZeroProduct(w_h_t_, panels, rows, epilogue);
    } else {
      MultiplyPacked(RowView<C>{dz_, ldz()}, w_h_t_, panels, rows,
                     StartAtZero(), epilogue);
    }
    KeepRounded(w_x_grad_, shape_.input * ldz(), args_.w_x_grad);
    KeepRounded(w_h_grad_, units_ * ldz(), args_.w_h_grad);
    KeepRounded(b_x_grad_, ldz(), args_.b_x_grad);
    KeepRounded(b_h_grad_, ldz(), args_.b_h_grad);
    return Status::kOk;
  }

  const GruAfterSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t batch_;
  const int64_t units_;
  const int64_t block_steps_;
  int64_t first_ = 0;  // of the block's steps
  int64_t steps_ = 0;  // in the block
  Scratch scratch_;
  const PackedWeights<C, 1> w_h_t_;  // w_hᵀ
  C* dz_ = nullptr;                  // [block steps + 1, B, 3H]: r̄, ū, hc
  C* d_c_ = nullptr;                 // [block rows, H]
  C* d_h_before_ = nullptr;          // [B, H], less what comes through w_h
  C* wide_x_ = nullptr;              // [block rows, I]
  C* x_t_ = nullptr;                 // [I + 1, block rows], the last row ones
  C* h_t_ = nullptr;                 // [H + 1, block rows], the last row ones
  C* w_x_grad_ = nullptr;            // [I, 3H]
  C* w_h_grad_ = nullptr;            // [H, 3H]
  C* b_x_grad_ = nullptr;            // [3H]
  C* b_h_grad_ = nullptr;            // [3H]
};

}  // namespace internal

template <class T, class Activations>
Status GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                               const Host& host) {
  return internal::GruAfterSequenceForward<T, Activations>(args, host).Run();
}

template <class T>
Status GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                                const Host& host) {
  return internal::GruAfterSequenceBackward<T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GRU_AFTER_SEQUENCE_H_
