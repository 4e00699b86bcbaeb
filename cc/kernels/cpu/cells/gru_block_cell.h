// Implements one GRU step on the CPU: GRUBlockCell and its gradient. The
// equations are in cc/core/gru_cell.h.

#ifndef BLOCKRNN_KERNELS_CPU_CELLS_GRU_BLOCK_CELL_H_
#define BLOCKRNN_KERNELS_CPU_CELLS_GRU_BLOCK_CELL_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/sequence/row_passes.h"

namespace blockrnn::cpu {

// One step, forward and backward.
template <class T, class Activations>
struct GruBlockCell {
  static Status Run(const GruCellForwardArgs<T>& args,
                    const Executor& executor);
  static Status Run(const GruCellBackwardArgs<T>& args,
                    const Executor& executor);
};

// Two GEMMs, each with its gates as the epilogue:
//   [x, h_prev]     · w_ru  →  r, u, h_prev ∘ r
//   [x, h_prev ∘ r] · w_c   →  c, h
template <class T, class Activations>
Status GruBlockCell<T, Activations>::Run(const GruCellForwardArgs<T>& args,
                                         const Executor& executor) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const int64_t rows = args.dims.batch;
  const int64_t input = args.dims.input;
  const int64_t units = args.dims.units;

  Scratch scratch(executor);
  const C* x = Widened(executor, &scratch, args.x, rows, input);
  const C* h_prev = Widened(executor, &scratch, args.h_prev, rows, units);
  // u is rounded to T in the output, and h is computed from the unrounded u.
  C* u = ComputedInPlace(&scratch, args.u, rows * units);
  C* h_prev_r = scratch.Array<C>(rows * units);
  if (!scratch.ok()) return Status::kOutOfMemory;

  Gemm<T, kGruGates> gates;
  gates.rows = rows;
  gates.units = units;
  gates.num_parts = 2;
  const int64_t ld_ru = kGruGates * units;
  gates.parts[0] = {{x, input}, input, {args.w_ru, ld_ru}};
  gates.parts[1] = {{h_prev, units}, units, {args.w_ru + input * ld_ru, ld_ru}};
  const auto gates_epilogue = RowByRow([&](const GateRun<C>& run) {
    const int64_t at = run.row * units + run.unit;
    const T* b_r = args.b_ru + kGruRuc.r * units + run.unit;
    const T* b_u = args.b_ru + kGruRuc.u * units + run.unit;
    const C* r_sum = run.gates + kGruRuc.r * run.gate_stride;
    const C* u_sum = run.gates + kGruRuc.u * run.gate_stride;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V r_bar = Load<C>(r_sum + j, lanes) + Load<C>(b_r + j, lanes);
      const V u_bar = Load<C>(u_sum + j, lanes) + Load<C>(b_u + j, lanes);
      const GruGates<V> out = GruForwardGates<Activations>(
          r_bar, u_bar, Load<C>(h_prev + at + j, lanes));
      Store(args.r + at + j, out.r, lanes);
      StoreBoth(args.u + at + j, u + at + j, out.u, lanes);
      Store(h_prev_r + at + j, out.h_prev_r, lanes);
    });
  });
  GemmScratch<T> gemm_scratch(executor);
  Status status = RunGemms(executor, &gemm_scratch,
                           GemmWithEpilogue{gates, gates_epilogue});
  if (status != Status::kOk) return status;

  Gemm<T, 1> candidate;
  candidate.rows = rows;
  candidate.units = units;
  candidate.num_parts = 2;
  candidate.parts[0] = {{x, input}, input, {args.w_c, units}};
  candidate.parts[1] = {
      {h_prev_r, units}, units, {args.w_c + input * units, units}};
  const auto candidate_epilogue = RowByRow([&](const GateRun<C>& run) {
    const int64_t at = run.row * units + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V c_bar = Load<C>(run.gates + j, lanes) +
                      Load<C>(args.b_c + run.unit + j, lanes);
      const GruState<V> out = GruForwardState<Activations>(
          c_bar, Load<C>(u + at + j, lanes), Load<C>(h_prev + at + j, lanes));
      Store(args.c + at + j, out.c, lanes);
      Store(args.h + at + j, out.h, lanes);
    });
  });
  return RunGemms(executor, &gemm_scratch,
                  GemmWithEpilogue{candidate, candidate_epilogue});
}

// A pointwise pass and two sections of GEMMs:
//   d_h                          →  d_c_bar, d_u_bar
//   d_c_bar · w_cᵀ, h columns    →  d_hr  →  d_r_bar, and d_hr ∘ r + d_h ∘ u
//   d_c_bar · w_cᵀ + [d_r_bar d_u_bar] · w_ruᵀ, x columns  →  d_x
//   [d_r_bar d_u_bar] · w_ruᵀ, h columns                   →  d_h_prev
template <class T, class Activations>
Status GruBlockCell<T, Activations>::Run(const GruCellBackwardArgs<T>& args,
                                         const Executor& executor) {
  using C = ComputeType<T>;
  using V = Vec<C>;
  const int64_t rows = args.dims.batch;
  const int64_t input = args.dims.input;
  const int64_t units = args.dims.units;
  const int64_t ld_ru = kGruGates * units;

  Scratch scratch(executor);
  C* d_c_bar = ComputedInPlace(&scratch, args.d_c_bar, rows * units);
  C* d_ru_bar = ComputedInPlace(&scratch, args.d_r_bar_u_bar, rows * ld_ru);
  C* d_hr = scratch.Array<C>(rows * units);
  if (!scratch.ok()) return Status::kOutOfMemory;

  ParallelForRows(executor, rows, units, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * units;
      const int64_t at_u = row * ld_ru + kGruRuc.u * units;
      ForEachVector<C>(units, [&](int64_t j, auto lanes) {
        const GruStateGrad<V> out = GruBackwardState(
            Load<C>(args.d_h + at + j, lanes), Load<C>(args.u + at + j, lanes),
            Load<C>(args.c + at + j, lanes),
            Load<C>(args.h_prev + at + j, lanes));
        StoreBoth(args.d_c_bar + at + j, d_c_bar + at + j, out.d_c_bar, lanes);
        StoreBoth(args.d_r_bar_u_bar + at_u + j, d_ru_bar + at_u + j,
                  out.d_u_bar, lanes);
      });
    }
  });

  const WeightView<T> w_c_x = {args.w_c, units, true};
  const WeightView<T> w_c_h = {args.w_c + input * units, units, true};
  const WeightView<T> w_ru_x = {args.w_ru, ld_ru, true};
  const WeightView<T> w_ru_h = {args.w_ru + input * ld_ru, ld_ru, true};

  Gemm<T, 1> reset;
  reset.rows = rows;
  reset.units = units;
  reset.num_parts = 1;
  reset.parts[0] = {{d_c_bar, units}, units, w_c_h};
  const auto reset_epilogue = RowByRow([&](const GateRun<C>& run) {
    const int64_t at = run.row * units + run.unit;
    const int64_t at_r = run.row * ld_ru + kGruRuc.r * units + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V d_hr_sum = Load<C>(run.gates + j, lanes);
      const V d_r_bar =
          GruBackwardReset(d_hr_sum, Load<C>(args.h_prev + at + j, lanes),
                           Load<C>(args.r + at + j, lanes));
      StoreBoth(args.d_r_bar_u_bar + at_r + j, d_ru_bar + at_r + j, d_r_bar,
                lanes);
      Store(d_hr + at + j, d_hr_sum, lanes);
    });
  });
  GemmScratch<T> gemm_scratch(executor);
  Status status = RunGemms(executor, &gemm_scratch,
                           GemmWithEpilogue{reset, reset_epilogue});
  if (status != Status::kOk) return status;

  Gemm<T, 1> to_x;
  to_x.rows = rows;
  to_x.units = input;
  to_x.num_parts = 2;
  to_x.parts[0] = {{d_c_bar, units}, units, w_c_x};
  to_x.parts[1] = {{d_ru_bar, ld_ru}, ld_ru, w_ru_x};
  const auto x_epilogue = RowByRow([&](const GateRun<C>& run) {
    T* d_x = args.d_x + run.row * input + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      Store(d_x + j, Load<C>(run.gates + j, lanes), lanes);
    });
  });
  Gemm<T, 1> to_h;
  to_h.rows = rows;
  to_h.units = units;
  to_h.num_parts = 1;
  to_h.parts[0] = {{d_ru_bar, ld_ru}, ld_ru, w_ru_h};
  const auto h_epilogue = RowByRow([&](const GateRun<C>& run) {
    const int64_t at = run.row * units + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      const V d_h_prev = GruBackwardPrevious(
          Load<C>(run.gates + j, lanes), Load<C>(d_hr + at + j, lanes),
          Load<C>(args.r + at + j, lanes), Load<C>(args.d_h + at + j, lanes),
          Load<C>(args.u + at + j, lanes));
      Store(args.d_h_prev + at + j, d_h_prev, lanes);
    });
  });
  return RunGemms(executor, &gemm_scratch, GemmWithEpilogue{to_x, x_epilogue},
                  GemmWithEpilogue{to_h, h_epilogue});
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CELLS_GRU_BLOCK_CELL_H_
