// Owns one LSTM step on the CPU. The equations are in cc/core/lstm_cell.h; here
// stand the order of the passes and what each takes in and out.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/activations.h"
#include "cc/core/cell_args.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

namespace internal {

// Calls f with a std::bool_constant. The question is put for each run of units:
// a loop over them is compiled for either answer, and nothing around it is.
template <class F>
EIGEN_ALWAYS_INLINE void WithFlag(bool flag, const F& f) {
  if (flag) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
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

// Where one row of a step stands: [H] each. Outputs may be nullptr. S is the
// type that the state is kept in.
template <class T, class S>
struct LstmForwardRow {
  const S* cs_prev;
  T* i;
  T* cs;
  T* f;
  T* o;
  T* ci;
  T* co;
  T* h;
};

// What is the same for all rows of a call.
template <class T>
struct LstmForwardCall {
  LstmOptions options;
  const T* wci;
  const T* wcf;
  const T* wco;
};

// Calls each(run, cells) for the rows of a tile, and each may call cells(row,
// state) for what to do with one: the equations, whose outputs go to the row;
// state(unit, lanes, step) may keep what came out. bar(run, j, lanes) gives the
// pre-activations of the units run.unit + j and on. A function for each of the
// flags: all four in one would be too much to inline the activations into.
template <class Activations, bool kPeephole, bool kClip, class T, class C,
          class Bar, class Each>
EIGEN_DONT_INLINE void LstmForwardRows(const LstmForwardCall<T>& call,
                                       const GateTile<C>& tile, const Bar& bar,
                                       const Each& each) {
  using V = Vec<C>;
  const V forget_bias(static_cast<C>(call.options.forget_bias));
  const V cell_clip(static_cast<C>(call.options.cell_clip));
  tile.ForEachRow([&](const GateRun<C>& run) {
    each(run, [&](const auto& row, const auto& state) {
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const int64_t at = run.unit + j;
        const LstmStep<V> out = LstmForward<Activations, kPeephole, kClip>(
            bar(run, j, lanes), Load<C>(row.cs_prev + at, lanes),
            LoadPeepholes<kPeephole, C>(call.wci, call.wcf, call.wco, at,
                                        lanes),
            forget_bias, cell_clip);
        const auto store = [&](T* to, const V& v) {
          if (to != nullptr) Store(to + at, v, lanes);
        };
        store(row.i, out.i);
        store(row.cs, out.cs);
        store(row.f, out.f);
        store(row.o, out.o);
        store(row.ci, out.ci);
        store(row.co, out.co);
        store(row.h, out.h);
        state(at, lanes, out);
      });
    });
  });
}

template <class Activations, class T, class C, class Bar, class Each>
void LstmForwardTile(const LstmForwardCall<T>& call, const GateTile<C>& tile,
                     const Bar& bar, const Each& each) {
  WithFlag(call.options.use_peephole, [&](auto peephole) {
    WithFlag(call.options.cell_clip > 0, [&](auto clip) {
      LstmForwardRows<Activations, peephole(), clip()>(call, tile, bar, each);
    });
  });
}

}  // namespace internal

// [x, h_prev] · w with everything else as its epilogue.
template <class T, class Activations>
Status LstmCellForward(const LstmCellForwardArgs<T>& args,
                       const HostInterface& host) {
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
  const GateOffsets<kLstmGates> offsets(units);
  std::copy(offsets.at, offsets.at + kLstmGates, gates.gate_offset);
  gates.num_parts = 2;
  const int64_t ldw = kLstmGates * units;
  gates.parts[0] = {{x, input}, input, {args.w, ldw}};
  gates.parts[1] = {{h_prev, units}, units, {args.w + input * ldw, ldw}};

  const internal::LstmForwardCall<T> call = {args.options, args.wci, args.wcf,
                                             args.wco};
  const auto bar = [&](const GateRun<C>& run, int64_t j, auto lanes) {
    const auto gate = [&](int g) {
      return Load<C>(run.gates + g * run.gate_stride + j, lanes) +
             Load<C>(args.b + g * units + run.unit + j, lanes);
    };
    return LstmPreActivations<V>{gate(layout.i), gate(layout.ci),
                                 gate(layout.f), gate(layout.o)};
  };
  const auto each = [&](const GateRun<C>& run, const auto& cells) {
    const int64_t at = run.row * units;
    cells(
        internal::LstmForwardRow<T, T>{args.cs_prev + at, args.i + at,
                                       args.cs + at, args.f + at, args.o + at,
                                       args.ci + at, args.co + at, args.h + at},
        [](int64_t, auto, const LstmStep<V>&) {});
  };
  const auto epilogue = [&](const GateRun<C>& run) {
    internal::LstmForwardTile<Activations>(call, GateTile<C>{1, 0, run}, bar,
                                           each);
  };
  ProductMemory<T> memory(host);
  return RunProducts(host, &memory, ProductWithEpilogue{gates, epilogue});
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
                                     const HostInterface& host) {
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

// Pointwise: the products with wᵀ belong to the caller of the op.
template <class T>
Status LstmCellBackward(const LstmCellBackwardArgs<T>& args,
                        const HostInterface& host) {
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

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_LSTM_BLOCK_CELL_H_
