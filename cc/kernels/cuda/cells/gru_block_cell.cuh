// Implements one GRU step on the GPU. The equations are in cc/core/gru_cell.h;
// this file has the order of the kernels and the inputs and outputs of each.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_GRU_BLOCK_CELL_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_GRU_BLOCK_CELL_CUH_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/kernels/cuda/cells/block_cell_gemm.cuh"
#include "cc/kernels/cuda/pointwise.cuh"

namespace blockrnn::cuda {

// [x, h_prev] · w_ru  →  r, u, h_prev ∘ r
template <class T, class Activations>
struct GruGatesEpilogue {
  using C = ComputeType<T>;
  GruCellForwardArgs<T> args;
  C* u;         // [B, H]
  C* h_prev_r;  // [B, H]

  __device__ void operator()(int64_t row, int64_t unit,
                             const C (&sums)[kGruGates]) const {
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const C r_bar = sums[kGruRu.r] + Load(args.b_ru, kGruRu.r * units + unit);
    const C u_bar = sums[kGruRu.u] + Load(args.b_ru, kGruRu.u * units + unit);
    const GruGates<C> out =
        GruForwardGates<Activations>(r_bar, u_bar, Load(args.h_prev, at));
    Store(args.r, at, out.r);
    StoreBoth(args.u, u, at, out.u);
    h_prev_r[at] = out.h_prev_r;
  }
};

// [x, h_prev ∘ r] · w_c  →  c, h
template <class T, class Activations>
struct GruStateEpilogue {
  using C = ComputeType<T>;
  GruCellForwardArgs<T> args;
  const C* u;  // [B, H]

  __device__ void operator()(int64_t row, int64_t unit,
                             const C (&sums)[1]) const {
    const int64_t at = row * args.dims.units + unit;
    const C c_bar = sums[0] + Load(args.b_c, unit);
    const GruState<C> out =
        GruForwardState<Activations>(c_bar, u[at], Load(args.h_prev, at));
    Store(args.c, at, out.c);
    Store(args.h, at, out.h);
  }
};

template <class T, class Activations>
Error GruForward(const GruCellForwardArgs<T>& args, const HostInterface& host) {
  using C = ComputeType<T>;
  const auto [rows, input, units] = args.dims;
  const int64_t gates = kGruGates * units;
  C* u = nullptr;
  C* h_prev_r = nullptr;
  const GateGemm<T, T, T, kGruGates, false> to_gates = {
      rows,
      units,
      {args.x, input, args.w_ru, gates, input},
      {args.h_prev, units, Offset(args.w_ru, input * gates), gates, units}};
  Error error = nullptr;
  if ((error = ComputedInPlace(host, args.u, rows * units, &u)) ||
      (error = Allocate(host, rows * units, &h_prev_r)) ||
      (error =
           RunGateGemm(host, to_gates,
                       GruGatesEpilogue<T, Activations>{args, u, h_prev_r}))) {
    return error;
  }
  const GateGemm<T, C, T, 1, false> to_state = {
      rows,
      units,
      {args.x, input, args.w_c, units, input},
      {h_prev_r, units, Offset(args.w_c, input * units), units, units}};
  return RunGateGemm(host, to_state, GruStateEpilogue<T, Activations>{args, u});
}

// Intermediate results of a backward step, unrounded.
template <class T>
struct GruBackwardScratch {
  using C = ComputeType<T>;
  C* d_c_bar = nullptr;   // [B, H]
  C* d_ru_bar = nullptr;  // [B, 2H], gates r, u
  C* d_hr = nullptr;      // [B, H]
};

// d_h  →  d_c_bar, d_u_bar
template <class T>
struct GruStateGradElement {
  GruCellBackwardArgs<T> args;
  GruBackwardScratch<T> scratch;

  __device__ void operator()(int64_t row, int64_t unit) const {
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const int64_t at_u = (row * kGruGates + kGruRu.u) * units + unit;
    const auto out = GruBackwardState(Load(args.d_h, at), Load(args.u, at),
                                      Load(args.c, at), Load(args.h_prev, at));
    StoreBoth(args.d_c_bar, scratch.d_c_bar, at, out.d_c_bar);
    StoreBoth(args.d_r_bar_u_bar, scratch.d_ru_bar, at_u, out.d_u_bar);
  }
};

// The GEMMs of a backward step. One kernel serves all three; all threads take
// the same branch.
enum class GruGradGemm {
  kReset,  // d_c_bar · w_cᵀ, h columns  →  d_hr, d_r_bar
  kInput,  // d_c_bar · w_cᵀ + [d_r_bar d_u_bar] · w_ruᵀ, x columns  →  d_x
  kPrevious,  // [d_r_bar d_u_bar] · w_ruᵀ, h columns  →  d_h_prev
};

template <class T>
struct GruGradEpilogue {
  using C = ComputeType<T>;
  GruCellBackwardArgs<T> args;
  GruBackwardScratch<T> scratch;
  GruGradGemm gemm;

  __device__ void operator()(int64_t row, int64_t unit,
                             const C (&sums)[1]) const {
    switch (gemm) {
      case GruGradGemm::kReset:
        return Reset(row, unit, sums[0]);
      case GruGradGemm::kInput:
        return Store(args.d_x, row * args.dims.input + unit, sums[0]);
      case GruGradGemm::kPrevious:
        return Previous(row * args.dims.units + unit, sums[0]);
    }
  }

 private:
  __device__ __forceinline__ void Reset(int64_t row, int64_t unit,
                                        C d_hr) const {
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const int64_t at_r = (row * kGruGates + kGruRu.r) * units + unit;
    const C d_r_bar =
        GruBackwardReset(d_hr, Load(args.h_prev, at), Load(args.r, at));
    StoreBoth(args.d_r_bar_u_bar, scratch.d_ru_bar, at_r, d_r_bar);
    scratch.d_hr[at] = d_hr;
  }
  __device__ __forceinline__ void Previous(int64_t at, C dh1) const {
    const C d_h_prev =
        GruBackwardPrevious(dh1, scratch.d_hr[at], Load(args.r, at),
                            Load(args.d_h, at), Load(args.u, at));
    Store(args.d_h_prev, at, d_h_prev);
  }
};

template <class T>
Error GruBackward(const GruCellBackwardArgs<T>& args,
                  const HostInterface& host) {
  using C = ComputeType<T>;
  const auto [rows, input, units] = args.dims;
  const int64_t gates = kGruGates * units;
  GruBackwardScratch<T> scratch;
  Error error = nullptr;
  if ((error = ComputedInPlace(host, args.d_c_bar, rows * units,
                               &scratch.d_c_bar)) ||
      (error = ComputedInPlace(host, args.d_r_bar_u_bar, rows * gates,
                               &scratch.d_ru_bar)) ||
      (error = Allocate(host, rows * units, &scratch.d_hr)) ||
      (error = RunPointwise(host, rows, units,
                            GruStateGradElement<T>{args, scratch}))) {
    return error;
  }

  using BackwardGemm = GateGemm<C, C, T, 1, true>;
  const auto run = [&](const BackwardGemm& gemm, GruGradGemm which) {
    return RunGateGemm(host, gemm, GruGradEpilogue<T>{args, scratch, which});
  };
  const BackwardGemm to_reset = {
      rows,
      units,
      {scratch.d_c_bar, units, Offset(args.w_c, input * units), units, units},
      {}};
  if ((error = run(to_reset, GruGradGemm::kReset))) return error;

  // Without units both parts are empty, and d_x becomes zeros.
  const BackwardGemm to_x = {
      rows,
      input,
      {scratch.d_c_bar, units, args.w_c, units, units},
      {scratch.d_ru_bar, gates, args.w_ru, gates, gates}};
  if ((error = run(to_x, GruGradGemm::kInput))) return error;

  const BackwardGemm to_h = {
      rows,
      units,
      {scratch.d_ru_bar, gates, Offset(args.w_ru, input * gates), gates, gates},
      {}};
  return run(to_h, GruGradGemm::kPrevious);
}

template <class T>
struct FunctionOf<GruCellForwardArgs<T>> {
  static constexpr auto Run = &GruForward<T, StandardActivations>;
};
template <class T>
struct FunctionOf<GruCellBackwardArgs<T>> {
  static constexpr auto Run = &GruBackward<T>;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_GRU_BLOCK_CELL_CUH_
