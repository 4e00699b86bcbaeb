// Implements one LSTM step on the CPU: LSTMBlockCell and its gradient. The
// equations are in cc/core/lstm_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/cells/lstm_peepholes.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

// One step, forward and backward.
template <class T, class Activations>
struct LstmBlockCell {
  static Status Run(const LstmCellForwardArgs<T>& args,
                    const Executor& executor);
  static Status Run(const LstmCellBackwardArgs<T>& args,
                    const Executor& executor);
};

// [x, h_prev] · w with everything else as its epilogue.
template <class T, class Activations>
Status LstmBlockCell<T, Activations>::Run(const LstmCellForwardArgs<T>& args,
                                          const Executor& executor) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const int64_t rows = args.dims.batch;
  const int64_t input = args.dims.input;
  const int64_t units = args.dims.units;
  const LstmGateLayout layout = kLstmIcfo;

  Scratch scratch(executor);
  const C* x = Widened(executor, &scratch, args.x, rows, input);
  const C* h_prev = Widened(executor, &scratch, args.h_prev, rows, units);
  if (!scratch.ok()) return Status::kOutOfMemory;

  Gemm<T, kLstmGates> gates;
  gates.rows = rows;
  gates.units = units;
  gates.num_parts = 2;
  const int64_t ldw = kLstmGates * units;
  gates.parts[0] = {{x, input}, input, {args.w, ldw}};
  gates.parts[1] = {{h_prev, units}, units, {args.w + input * ldw, ldw}};

  const V forget_bias(static_cast<C>(args.options.forget_bias));
  const V cell_clip(static_cast<C>(args.options.cell_clip));
  const auto cells = [&](const GateRun<C>& run, auto peephole, auto clip) {
    const int64_t at = run.row * units + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const auto bar = [&](int gate) {
        return Load<C>(run.gates + gate * run.gate_stride + j, lanes) +
               Load<C>(args.b + gate * units + run.unit + j, lanes);
      };
      const LstmPreActivations<V> bars = {bar(layout.i), bar(layout.ci),
                                          bar(layout.f), bar(layout.o)};
      const LstmStep<V> out = LstmForward<Activations, peephole(), clip()>(
          bars, Load<C>(args.cs_prev + at + j, lanes),
          LoadPeepholes<peephole(), C>(args, run.unit + j, lanes), forget_bias,
          cell_clip);
      Store(args.i + at + j, out.i, lanes);
      Store(args.cs + at + j, out.cs, lanes);
      Store(args.f + at + j, out.f, lanes);
      Store(args.o + at + j, out.o, lanes);
      Store(args.ci + at + j, out.ci, lanes);
      Store(args.co + at + j, out.co, lanes);
      Store(args.h + at + j, out.h, lanes);
    });
  };
  const auto epilogue = [&](const GateTile<C>& tile) {
    WithFlag(args.options.use_peephole, [&](auto peephole) {
      WithFlag(args.options.cell_clip > 0, [&](auto clip) {
        tile.ForEachRow(
            [&](const GateRun<C>& run) { cells(run, peephole, clip); });
      });
    });
  };
  GemmScratch<T> gemm_scratch(executor);
  return RunGemms(executor, &gemm_scratch, GemmWithEpilogue{gates, epilogue});
}

namespace internal {

// One row, units [begin, end). With peepholes also adds to the three sums,
// which start at `begin`.
template <bool kPeephole, class T>
void LstmBackwardRow(const LstmCellBackwardArgs<T>& args, int64_t row,
                     int64_t begin, int64_t end, ComputeType<T>* sums) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const int64_t units = args.dims.units;
  const int64_t count = end - begin;
  const int64_t at = row * units + begin;
  T* dicfo = args.dicfo + row * kLstmGates * units + begin;
  const LstmGateLayout layout = kLstmIcfo;
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    LstmStep<V> step;
    step.i = Load<C>(args.i + at + j, lanes);
    step.cs = Load<C>(args.cs + at + j, lanes);
    step.f = Load<C>(args.f + at + j, lanes);
    step.o = Load<C>(args.o + at + j, lanes);
    step.ci = Load<C>(args.ci + at + j, lanes);
    step.co = Load<C>(args.co + at + j, lanes);
    const V cs_prev = Load<C>(args.cs_prev + at + j, lanes);
    const LstmStepGrad<V> out = LstmBackward<kPeephole>(
        step, cs_prev, Load<C>(args.cs_grad + at + j, lanes),
        Load<C>(args.h_grad + at + j, lanes),
        LoadPeepholes<kPeephole, C>(args, begin + j, lanes));
    Store(dicfo + layout.i * units + j, out.di, lanes);
    Store(dicfo + layout.ci * units + j, out.dci, lanes);
    Store(dicfo + layout.f * units + j, out.df, lanes);
    Store(dicfo + layout.o * units + j, out.d_o, lanes);
    Store(args.cs_prev_grad + at + j, out.cs_prev_grad, lanes);
    if constexpr (kPeephole) {
      const auto add = [&](int which, const V& v) {
        C* sum = sums + which * count + j;
        Store(sum, Load<C>(sum, lanes) + v, lanes);
      };
      add(0, out.di * cs_prev);
      add(1, out.df * cs_prev);
      add(2, out.d_o * step.cs);
    }
  });
}

// wci_grad = Σ di∘cs_prev   wcf_grad = Σ df∘cs_prev   wco_grad = Σ do∘cs
// A task takes a run of units for all rows, so each sum has the order of the
// rows whoever does it.
template <class T>
Status LstmCellBackwardWithPeepholes(const LstmCellBackwardArgs<T>& args,
                                     const Executor& executor) {
  using C = ComputeType<T>;
  const int64_t units = args.dims.units;
  // A cache line of T or more for each of the arrays.
  constexpr int64_t kUnitsPerTask = 64;
  const int64_t tasks = (units + kUnitsPerTask - 1) / kUnitsPerTask;
  Scratch scratch(executor);
  C* sums = scratch.Array<C>(3 * units);
  if (!scratch.ok()) return Status::kOutOfMemory;
  const int64_t enough = 1 + args.dims.batch * units / Tuning::kElementsPerTask;
  ParallelFor(
      executor, NumWorkers(executor, std::min(tasks, enough)), tasks,
      [&](int, int64_t task) {
        const int64_t begin = task * kUnitsPerTask;
        const int64_t end = std::min(begin + kUnitsPerTask, units);
        const int64_t count = end - begin;
        C* mine = sums + 3 * begin;
        std::fill(mine, mine + 3 * count, C(0));
        for (int64_t row = 0; row < args.dims.batch; ++row) {
          LstmBackwardRow<true>(args, row, begin, end, mine);
        }
        T* const grads[3] = {args.wci_grad, args.wcf_grad, args.wco_grad};
        for (int which = 0; which < 3; ++which) {
          ForEachVector<C>(count, [&](int64_t j, auto lanes) {
            Store(grads[which] + begin + j,
                  Load<C>(mine + which * count + j, lanes), lanes);
          });
        }
      });
  return Status::kOk;
}

}  // namespace internal

// Pointwise: the GEMMs with wᵀ are left to the caller of the op.
template <class T, class Activations>
Status LstmBlockCell<T, Activations>::Run(const LstmCellBackwardArgs<T>& args,
                                          const Executor& executor) {
  if (args.options.use_peephole) {
    return internal::LstmCellBackwardWithPeepholes(args, executor);
  }
  const int64_t units = args.dims.units;
  ParallelForRows(
      executor, args.dims.batch, units, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          internal::LstmBackwardRow<false>(args, row, 0, units, nullptr);
        }
      });
  return Status::kOk;
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_
