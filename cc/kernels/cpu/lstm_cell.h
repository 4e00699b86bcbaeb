// Owns one LSTM step on the CPU. The equations are in cc/core/lstm_cell.h; here
// stand the order of the passes and what each takes in and out.

#ifndef BLOCKRNN_KERNELS_CPU_LSTM_CELL_H_
#define BLOCKRNN_KERNELS_CPU_LSTM_CELL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/activations.h"
#include "cc/core/cell_args.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/product.h"
#include "cc/kernels/cpu/rows.h"

namespace blockrnn::cpu {

namespace internal {

// Calls f with two std::bool_constants, so that a choice made once per call
// costs nothing in the loops.
template <class F>
auto WithFlags(bool first, bool second, const F& f) {
  using Yes = std::true_type;
  using No = std::false_type;
  if (first) return second ? f(Yes(), Yes()) : f(Yes(), No());
  return second ? f(No(), Yes()) : f(No(), No());
}

template <bool kPeephole, class C, class T, class Lanes>
EIGEN_ALWAYS_INLINE LstmPeepholes<Vec<C>> LoadPeepholes(
    const T* wci, const T* wcf, const T* wco, int64_t unit, Lanes lanes) {
  LstmPeepholes<Vec<C>> out = {Vec<C>(0), Vec<C>(0), Vec<C>(0)};
  if constexpr (kPeephole) {
    out.wci = Load<C>(wci + unit, lanes);
    out.wcf = Load<C>(wcf + unit, lanes);
    out.wco = Load<C>(wco + unit, lanes);
  }
  return out;
}

template <class Activations, bool kPeephole, bool kClip, class T>
Status LstmCellForward(const LstmCellForwardArgs<T>& args, const Host& host) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const int64_t rows = args.dims.batch;
  const int64_t input = args.dims.input;
  const int64_t units = args.dims.units;
  const LstmGateLayout layout = kLstmIcfo;

  Scratch scratch(host);
  const C* x = Widened(host, &scratch, args.x, rows, input);
  const C* h_prev = Widened(host, &scratch, args.h_prev, rows, units);
  if (!scratch.ok()) return Status::kOutOfMemory;

  Product<T, kLstmGates> gates;
  gates.rows = rows;
  gates.units = units;
  for (int g = 0; g < kLstmGates; ++g) gates.gate_offset[g] = g * units;
  gates.num_parts = 2;
  const int64_t ldw = kLstmGates * units;
  gates.parts[0] = {x, input, input, {args.w, ldw}};
  gates.parts[1] = {h_prev, units, units, {args.w + input * ldw, ldw}};

  const V forget_bias(static_cast<C>(args.options.forget_bias));
  const V cell_clip(static_cast<C>(args.options.cell_clip));
  const auto epilogue = [&](const GateRun<C>& run) {
    const int64_t at = run.row * units + run.unit;
    const auto bar = [&](int gate, int64_t j, auto lanes) {
      return Load<C>(run.gates + gate * run.gate_stride + j, lanes) +
             Load<C>(args.b + gate * units + run.unit + j, lanes);
    };
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const LstmPreActivations<V> bars = {
          bar(layout.i, j, lanes), bar(layout.ci, j, lanes),
          bar(layout.f, j, lanes), bar(layout.o, j, lanes)};
      const LstmStep<V> out = LstmForward<Activations, kPeephole, kClip>(
          bars, Load<C>(args.cs_prev + at + j, lanes),
          LoadPeepholes<kPeephole, C>(args.wci, args.wcf, args.wco,
                                      run.unit + j, lanes),
          forget_bias, cell_clip);
      Store(args.i + at + j, out.i, lanes);
      Store(args.cs + at + j, out.cs, lanes);
      Store(args.f + at + j, out.f, lanes);
      Store(args.o + at + j, out.o, lanes);
      Store(args.ci + at + j, out.ci, lanes);
      Store(args.co + at + j, out.co, lanes);
      Store(args.h + at + j, out.h, lanes);
    });
  };
  return RunProducts<T>(host, ProductWithEpilogue{gates, epilogue});
}

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
        LoadPeepholes<kPeephole, C>(args.wci, args.wcf, args.wco, begin + j,
                                    lanes));
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
                                     const Host& host) {
  using C = ComputeType<T>;
  const int64_t units = args.dims.units;
  // A cache line of T or more for each of the arrays.
  constexpr int64_t kUnitsPerTask = 64;
  const int64_t tasks = (units + kUnitsPerTask - 1) / kUnitsPerTask;
  Scratch scratch(host);
  C* sums = scratch.Array<C>(3 * units);
  if (!scratch.ok()) return Status::kOutOfMemory;
  const int64_t enough = 1 + args.dims.batch * units / kElementsPerTask;
  ParallelFor(
      host, NumWorkers(host, std::min(tasks, enough)), tasks,
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

// [x, h_prev] · w with everything else as its epilogue.
template <class T, class Activations>
Status LstmCellForward(const LstmCellForwardArgs<T>& args, const Host& host) {
  return internal::WithFlags(
      args.options.use_peephole, args.options.cell_clip > 0,
      [&](auto peephole, auto clip) {
        return internal::LstmCellForward<Activations, peephole(), clip()>(args,
                                                                          host);
      });
}

// Pointwise: the products with wᵀ belong to the caller of the op.
template <class T>
Status LstmCellBackward(const LstmCellBackwardArgs<T>& args, const Host& host) {
  if (args.use_peephole) {
    return internal::LstmCellBackwardWithPeepholes(args, host);
  }
  const int64_t units = args.dims.units;
  ParallelForRows(
      host, args.dims.batch, units, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          internal::LstmBackwardRow<false>(args, row, 0, units, nullptr);
        }
      });
  return Status::kOk;
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_LSTM_CELL_H_
