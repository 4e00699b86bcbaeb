// Owns an LSTM over a whole sequence on the CPU, forward and backward. The
// equations are in cc/core/lstm_cell.h; here stand the order of the products
// and what is kept from step to step.

#ifndef BLOCKRNN_KERNELS_CPU_LSTM_SEQUENCE_H_
#define BLOCKRNN_KERNELS_CPU_LSTM_SEQUENCE_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/lstm_cell.h"
#include "cc/kernels/cpu/packed_weights.h"
#include "cc/kernels/cpu/product.h"
#include "cc/kernels/cpu/rows.h"
#include "cc/kernels/cpu/sequence.h"
#include "cc/kernels/cpu/step_loop.h"

namespace blockrnn::cpu {

namespace internal {

// For each block of steps:
//   x · w_x + b for all its steps as one product, then, step after step,
//   that + h · w_h  →  the gates and the state, in the product's epilogue.
template <class Activations, bool kPeephole, bool kClip, class T>
Status LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                           const Host& host) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const SequenceShape& shape = args.shape;
  const int64_t batch = shape.batch;
  const int64_t units = shape.units;
  const int64_t block_steps = StepsInBlock(shape);
  const LstmGateLayout layout = args.layout;

  int64_t gate_offset[kLstmGates];
  for (int g = 0; g < kLstmGates; ++g) gate_offset[g] = g * units;

  Scratch scratch(host);
  const PackedWeights<C, kLstmGates> w_h(
      host, &scratch, WeightView<T>{args.w_h, kLstmGates * units}, gate_offset,
      units, units);
  const int64_t panels = w_h.panels();
  C* start = scratch.Array<C>(block_steps * batch * panels *
                              kPanelWidth<C, kLstmGates>);
  C* wide_x = WideRowsScratch<T>(&scratch, block_steps * batch, shape.input);
  // The state before and after a step: h in two copies, since other workers
  // still read the old one; cs in one, since a unit reads only its own.
  C* h_state[2] = {scratch.Array<C>(batch * units),
                   scratch.Array<C>(batch * units)};
  C* cs_state = scratch.Array<C>(batch * units);
  if (!scratch.ok()) return Status::kOutOfMemory;
  CopyRow(args.h_prev, batch * units, h_state[0]);
  CopyRow(args.cs_prev, batch * units, cs_state);

  StepLoop loop;
  loop.rows = batch;
  loop.panels = panels;
  loop.multiplies = static_cast<double>(batch) * units * units * kLstmGates;
  loop.steps = shape.steps;
  const StepSplit split = ChooseSplit(loop, host.num_threads);

  const LstmForwardUnits<T> call = {args.options, args.wci, args.wcf, args.wco};
  for (int64_t first = 0; first < shape.steps; first += block_steps) {
    loop.steps = std::min(block_steps, shape.steps - first);
    Product<T, kLstmGates> from_x;
    from_x.rows = loop.steps * batch;
    from_x.units = units;
    std::copy(gate_offset, gate_offset + kLstmGates, from_x.gate_offset);
    from_x.num_parts = 1;
    from_x.parts[0] = {WideStepRows(host, shape, args.x, shape.input, first,
                                    from_x.rows, wide_x),
                       shape.input,
                       {args.w_x, kLstmGates * units}};
    const T* const bias[kLstmGates] = {args.b, args.b + units,
                                       args.b + 2 * units, args.b + 3 * units};
    const auto keep_start = [&](const GateRun<C>& run) {
      StoreStart<C, kLstmGates>(run, bias, panels, start);
    };
    Status status =
        RunProducts<T>(host, ProductWithEpilogue{from_x, keep_start});
    if (status != Status::kOk) return status;

    const auto body = [&](int64_t step, int, Share share, Range rows) {
      const C* h_in = h_state[(first + step) % 2];
      C* h_out = h_state[(first + step + 1) % 2];
      const auto start_of = [&](int64_t row, int64_t panel) {
        return start + ((step * batch + row) * panels + panel) *
                           kPanelWidth<C, kLstmGates>;
      };
      const auto epilogue = [&](const GateRun<C>& run) {
        const int64_t in_memory = shape.Row(first + step, run.row);
        const auto at = [&](T* p) {
          return p == nullptr ? nullptr : p + in_memory * units;
        };
        const int64_t state = run.row * units;
        const LstmForwardRow<T, C> row = {
            cs_state + state, at(args.i),  at(args.cs), at(args.f),
            at(args.o),       at(args.ci), at(args.co), at(args.h)};
        if (args.mask != nullptr && args.mask[in_memory] == 0) {
          for (T* out : {row.i, row.f, row.o, row.ci, row.co}) {
            if (out != nullptr) ZeroRow(run.count, out + run.unit);
          }
          ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
            const int64_t unit = run.unit + j;
            const V h = Load<C>(h_in + state + unit, lanes);
            Store(h_out + state + unit, h, lanes);
            if (row.h != nullptr) Store(row.h + unit, h, lanes);
            if (row.cs != nullptr) {
              Store(row.cs + unit, Load<C>(cs_state + state + unit, lanes),
                    lanes);
            }
          });
          return;
        }
        const auto bar = [&](int64_t j, auto lanes) {
          const auto gate = [&](int g) {
            return Load<C>(run.gates + g * run.gate_stride + j, lanes);
          };
          return LstmPreActivations<V>{gate(layout.i), gate(layout.ci),
                                       gate(layout.f), gate(layout.o)};
        };
        LstmForwardRun<Activations, kPeephole, kClip>(
            call, row, run.unit, run.count, bar,
            [&](int64_t unit, auto lanes, const LstmStep<V>& out) {
              Store(cs_state + state + unit, out.cs, lanes);
              Store(h_out + state + unit, out.h, lanes);
            });
      };
      MultiplyPacked(RowView<C>{h_in, units}, w_h, share.Of(panels), rows,
                     start_of, epilogue);
    };
    status = RunSteps(host, loop, split, body);
    if (status != Status::kOk) return status;
  }
  if (args.h_last != nullptr) {
    CopyRow(h_state[shape.steps % 2], batch * units, args.h_last);
  }
  if (args.cs_last != nullptr) CopyRow(cs_state, batch * units, args.cs_last);
  return Status::kOk;
}

// For each block of steps, the last one first: step after step,
//   dZ · w_hᵀ of the step after it  →  h_grad  →  dZ = [di dci df do]
// in the layout's order, then for all steps of the block
//   x_grad = dZ · w_xᵀ    w_x_grad += xᵀ · dZ
//   [w_h_grad; b_grad] += [h before the step, 1]ᵀ · dZ
template <bool kPeephole, class T>
class LstmSequenceBackward {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;

  LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                       const Host& host)
      : args_(args),
        host_(host),
        shape_(args.shape),
        batch_(args.shape.batch),
        units_(args.shape.units),
        block_steps_(StepsInBlock(args.shape)),
        scratch_(host),
        w_h_t_(host, &scratch_,
               WeightView<T>{args.w_h, kLstmGates * args.shape.units, true},
               kOneGate, kLstmGates * args.shape.units, args.shape.units) {}

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
  static constexpr int64_t kOneGate[1] = {0};

  int64_t ldz() const { return kLstmGates * units_; }

  void Allocate() {
    const int64_t rows = block_steps_ * batch_;
    dz_ = scratch_.Array<C>((rows + batch_) * ldz());
    cs_grad_ = scratch_.Array<C>(batch_ * units_);
    if (args_.mask != nullptr || args_.h_last_grad != nullptr) {
      h_grad_ = scratch_.Array<C>(batch_ * units_);
    }
    if (kPeephole) peephole_grads_ = scratch_.Array<C>(3 * batch_ * units_);
    wide_x_ = WideRowsScratch<T>(&scratch_, rows, shape_.input);
    const int64_t stride = TransposedStride<C>(rows);
    x_t_ = scratch_.Array<C>(shape_.input * stride);
    h_t_ = scratch_.Array<C>((units_ + 1) * stride);
    w_x_grad_ =
        ComputedInPlace(&scratch_, args_.w_x_grad, shape_.input * ldz());
    w_h_grad_ = ComputedInPlace(&scratch_, args_.w_h_grad, units_ * ldz());
    b_grad_ = ComputedInPlace(&scratch_, args_.b_grad, ldz());
  }

  void Begin() {
    const int64_t state = batch_ * units_;
    if (args_.cs_last_grad != nullptr) {
      CopyRow(args_.cs_last_grad, state, cs_grad_);
    } else {
      ZeroRow(state, cs_grad_);
    }
    if (args_.h_last_grad != nullptr) {
      CopyRow(args_.h_last_grad, state, h_grad_);
    } else if (h_grad_ != nullptr) {
      ZeroRow(state, h_grad_);
    }
    if (kPeephole) ZeroRow(3 * state, peephole_grads_);
    ZeroRow(shape_.input * ldz(), w_x_grad_);
    ZeroRow(units_ * ldz(), w_h_grad_);
    ZeroRow(ldz(), b_grad_);
  }

  Status Steps() {
    StepLoop loop;
    loop.steps = steps_;
    loop.rows = batch_;
    loop.panels = w_h_t_.panels();
    loop.multiplies = static_cast<double>(batch_) * units_ * ldz();
    const auto body = [&](int64_t k, int, Share share, Range rows) {
      const int64_t step = steps_ - 1 - k;
      const auto epilogue = [&](const GateRun<C>& run) { Step(step, run); };
      if (first_ + step + 1 == shape_.steps) {
        ZeroProduct(w_h_t_, share.Of(loop.panels), rows, epilogue);
        return;
      }
      // The last step of a block reads what the block after it has left behind
      // the buffer's end.
      const int64_t after = k == 0 ? block_steps_ : step + 1;
      MultiplyPacked(RowView<C>{dz_ + after * batch_ * ldz(), ldz()}, w_h_t_,
                     share.Of(loop.panels), rows, StartAtZero(), epilogue);
    };
    StepLoop whole = loop;
    whole.steps = shape_.steps;
    return RunSteps(host_, loop, ChooseSplit(whole, host_.num_threads), body);
  }

  // run.gates: dZ · w_hᵀ of the step after it.
  void Step(int64_t step, const GateRun<C>& run) {
    const int64_t in_memory = shape_.Row(first_ + step, run.row);
    const int64_t state = run.row * units_;
    const int64_t at = in_memory * units_;
    C* dz = dz_ + (step * batch_ + run.row) * ldz();
    const T* cs_prev =
        StateBefore(shape_, args_.cs, args_.cs_prev, first_ + step, run.row);
    const bool skip = args_.mask != nullptr && args_.mask[in_memory] == 0;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const int64_t unit = run.unit + j;
      const auto optional = [&](const T* p) {
        return p == nullptr ? V(0) : Load<C>(p + at + unit, lanes);
      };
      C* const cs_grad_state = cs_grad_ + state + unit;
      V h_grad = Load<C>(run.gates + j, lanes) + optional(args_.h_grad);
      const V cs_grad = Load<C>(cs_grad_state, lanes) + optional(args_.cs_grad);
      if (h_grad_ != nullptr) {
        C* const h_grad_state = h_grad_ + state + unit;
        h_grad = h_grad + Load<C>(h_grad_state, lanes);
        Store(h_grad_state, skip ? h_grad : V(0), lanes);
      }
      if (skip) {
        Store(cs_grad_state, cs_grad, lanes);
        for (int g = 0; g < kLstmGates; ++g) {
          Store(dz + g * units_ + unit, V(0), lanes);
        }
        return;
      }
      LstmStep<V> saved;
      saved.i = Load<C>(args_.i + at + unit, lanes);
      saved.cs = Load<C>(args_.cs + at + unit, lanes);
      saved.f = Load<C>(args_.f + at + unit, lanes);
      saved.o = Load<C>(args_.o + at + unit, lanes);
      saved.ci = Load<C>(args_.ci + at + unit, lanes);
      saved.co = args_.co == nullptr ? Tanh(saved.cs)
                                     : Load<C>(args_.co + at + unit, lanes);
      const V before = Load<C>(cs_prev + unit, lanes);
      const LstmStepGrad<V> out = LstmBackward<kPeephole>(
          saved, before, cs_grad, h_grad,
          LoadPeepholes<kPeephole, C>(args_.wci, args_.wcf, args_.wco, unit,
                                      lanes));
      Store(dz + args_.layout.i * units_ + unit, out.di, lanes);
      Store(dz + args_.layout.ci * units_ + unit, out.dci, lanes);
      Store(dz + args_.layout.f * units_ + unit, out.df, lanes);
      Store(dz + args_.layout.o * units_ + unit, out.d_o, lanes);
      Store(cs_grad_state, out.cs_prev_grad, lanes);
      if constexpr (kPeephole) {
        // A sum for each row of the batch, so that rows are independent.
        const auto add = [&](int which, const V& v) {
          C* sum = peephole_grads_ + (which * batch_ + run.row) * units_ + unit;
          Store(sum, Load<C>(sum, lanes) + v, lanes);
        };
        add(0, out.di * before);
        add(1, out.df * before);
        add(2, out.d_o * saved.cs);
      }
    });
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
                        return StateBefore(shape_, args_.h, args_.h_prev,
                                           first_ + m / batch_, m % batch_);
                      }),
                      rows, units_, h_t_);
    std::fill_n(h_t_ + units_ * stride, rows, C(1));

    Product<T, 1> to_x;
    to_x.rows = rows;
    to_x.units = shape_.input;
    to_x.num_parts = 1;
    to_x.parts[0] = {{dz_, ldz()}, ldz(), {args_.w_x, ldz(), true}};
    const StoreStepRows<T> store_x = {shape_, first_, args_.x_grad,
                                      shape_.input};
    const WeightView<C> dz = {dz_, ldz()};
    return RunProducts<T>(host_, ProductWithEpilogue{to_x, store_x},
                          SumOverRows<C>({x_t_, shape_.input, rows, dz, ldz(),
                                          w_x_grad_, ldz(), nullptr}),
                          SumOverRows<C>({h_t_, units_, rows, dz, ldz(),
                                          w_h_grad_, ldz(), b_grad_}));
  }

  Status Finish() {
    const int64_t state = batch_ * units_;
    if (shape_.steps == 0) {
      // The state passed through, and so does its gradient.
      if (h_grad_ != nullptr) {
        CopyRow(h_grad_, state, args_.h_prev_grad);
      } else {
        std::fill_n(args_.h_prev_grad, state, T(0));
      }
    } else {
      const auto epilogue = [&](const GateRun<C>& run) {
        const int64_t at = run.row * units_ + run.unit;
        ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
          V h_grad = Load<C>(run.gates + j, lanes);
          if (h_grad_ != nullptr) {
            h_grad = h_grad + Load<C>(h_grad_ + at + j, lanes);
          }
          Store(args_.h_prev_grad + at + j, h_grad, lanes);
        });
      };
      MultiplyPacked(RowView<C>{dz_, ldz()}, w_h_t_, {0, w_h_t_.panels()},
                     {0, batch_}, StartAtZero(), epilogue);
    }
    CopyRow(cs_grad_, state, args_.cs_prev_grad);
    KeepRounded(w_x_grad_, shape_.input * ldz(), args_.w_x_grad);
    KeepRounded(w_h_grad_, units_ * ldz(), args_.w_h_grad);
    KeepRounded(b_grad_, ldz(), args_.b_grad);
    if (kPeephole) {
      T* const grads[3] = {args_.wci_grad, args_.wcf_grad, args_.wco_grad};
      for (int which = 0; which < 3; ++which) {
        SumRows(peephole_grads_ + which * state, batch_, units_, grads[which]);
      }
    }
    return Status::kOk;
  }

  const LstmSequenceBackwardArgs<T>& args_;
  const Host& host_;
  const SequenceShape& shape_;
  const int64_t batch_;
  const int64_t units_;
  const int64_t block_steps_;
  int64_t first_ = 0;  // of the block's steps
  int64_t steps_ = 0;  // in the block
  Scratch scratch_;
  const PackedWeights<C, 1> w_h_t_;  // w_hᵀ
  C* dz_ = nullptr;                  // [block steps + 1, B, 4H]
  C* cs_grad_ = nullptr;             // [B, H], from the step after
  C* h_grad_ = nullptr;  // [B, H], what skipped steps hand on; may be nullptr
  C* peephole_grads_ = nullptr;  // [3, B, H]
  C* wide_x_ = nullptr;          // [block rows, I]
  C* x_t_ = nullptr;             // [I, block rows]
  C* h_t_ = nullptr;             // [H + 1, block rows], the last row ones
  C* w_x_grad_ = nullptr;        // [I, 4H]
  C* w_h_grad_ = nullptr;        // [H, 4H]
  C* b_grad_ = nullptr;          // [4H]
};

}  // namespace internal

template <class T, class Activations>
Status LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                           const Host& host) {
  return internal::WithFlags(
      args.options.use_peephole, args.options.cell_clip > 0,
      [&](auto peephole, auto clip) {
        return internal::LstmSequenceForward<Activations, peephole(), clip()>(
            args, host);
      });
}

template <class T>
Status LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                            const Host& host) {
  if (args.use_peephole) {
    return internal::LstmSequenceBackward<true, T>(args, host).Run();
  }
  return internal::LstmSequenceBackward<false, T>(args, host).Run();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_LSTM_SEQUENCE_H_
