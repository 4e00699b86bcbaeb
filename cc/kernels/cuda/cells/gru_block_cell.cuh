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
struct GruGatesElement {
  using C = ComputeType<T>;
  GruCellForwardArgs<T> args;
  const C* sums;  // [B, 2H], gates r, u
  C* u;           // [B, H]
  T* h_prev_r;    // [B, H]

  __device__ void operator()(int64_t row, int64_t unit) const {
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const auto bar = [&](int gate) {
      return sums[(row * kGruGates + gate) * units + unit] +
             Load(args.b_ru, gate * units + unit);
    };
    const GruGates<C> out = GruForwardGates<Activations>(
        bar(kGruRuc.r), bar(kGruRuc.u), Load(args.h_prev, at));
    Store(args.r, at, out.r);
    StoreBoth(args.u, u, at, out.u);
    Store(h_prev_r, at, out.h_prev_r);
  }
};

// [x, h_prev ∘ r] · w_c  →  c, h
template <class T, class Activations>
struct GruStateElement {
  using C = ComputeType<T>;
  GruCellForwardArgs<T> args;
  const C* sums;  // [B, H]
  const C* u;     // [B, H]

  __device__ void operator()(int64_t row, int64_t unit) const {
    const int64_t at = row * args.dims.units + unit;
    const C c_bar = sums[at] + Load(args.b_c, unit);
    const GruState<C> out =
        GruForwardState<Activations>(c_bar, u[at], Load(args.h_prev, at));
    Store(args.c, at, out.c);
    Store(args.h, at, out.h);
  }
};

template <class T, class Activations>
Error GruForward(const GruCellForwardArgs<T>& args, const HostInterface& host) {
  using C = ComputeType<T>;
  const int64_t rows = args.dims.batch;
  const int64_t units = args.dims.units;
  C* gate_sums = nullptr;
  C* state_sums = nullptr;
  C* u = nullptr;
  T* h_prev_r = nullptr;
  Error error = nullptr;
  if ((error = ComputedInPlace(host, args.u, rows * units, &u)) ||
      (error = AllocateStored(host, rows * units, &h_prev_r)) ||
      (error = MultiplyBoth(host, args.dims, args.x, args.h_prev, args.w_ru,
                            kGruGates * units, &gate_sums)) ||
      (error = RunPointwise(
           host, rows, units,
           GruGatesElement<T, Activations>{args, gate_sums, u, h_prev_r})) ||
      (error = MultiplyBoth<T>(host, args.dims, args.x, h_prev_r, args.w_c,
                               units, &state_sums))) {
    return error;
  }
  return RunPointwise(host, rows, units,
                      GruStateElement<T, Activations>{args, state_sums, u});
}

// d_h  →  d_c_bar, d_u_bar
template <class T>
struct GruStateGradElement {
  GruCellBackwardArgs<T> args;

  __device__ void operator()(int64_t row, int64_t unit) const {
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const int64_t at_u = (row * kGruGates + kGruRuc.u) * units + unit;
    const auto out = GruBackwardState(Load(args.d_h, at), Load(args.u, at),
                                      Load(args.c, at), Load(args.h_prev, at));
    Store(args.d_c_bar, at, out.d_c_bar);
    Store(args.d_r_bar_u_bar, at_u, out.d_u_bar);
  }
};

// d_c_bar · w_cᵀ, h columns  →  d_r_bar
template <class T>
struct GruResetGradElement {
  GruCellBackwardArgs<T> args;
  const ComputeType<T>* c_sums;  // [B, I+H]

  __device__ void operator()(int64_t row, int64_t unit) const {
    const int64_t input = args.dims.input;
    const int64_t units = args.dims.units;
    const int64_t at = row * units + unit;
    const int64_t at_r = (row * kGruGates + kGruRuc.r) * units + unit;
    Store(args.d_r_bar_u_bar, at_r,
          GruBackwardReset(c_sums[row * (input + units) + input + unit],
                           Load(args.h_prev, at), Load(args.r, at)));
  }
};

// d_c_bar · w_cᵀ, [d_r_bar d_u_bar] · w_ruᵀ  →  d_x, d_h_prev
template <class T>
struct GruInputGradElement {
  GruCellBackwardArgs<T> args;
  const ComputeType<T>* c_sums;   // [B, I+H]
  const ComputeType<T>* ru_sums;  // [B, I+H]

  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t input = args.dims.input;
    const int64_t units = args.dims.units;
    const int64_t sum = row * (input + units) + column;
    if (column < input) {
      Store(args.d_x, row * input + column, c_sums[sum] + ru_sums[sum]);
      return;
    }
    const int64_t at = row * units + column - input;
    Store(args.d_h_prev, at,
          GruBackwardPrevious(ru_sums[sum], c_sums[sum], Load(args.r, at),
                              Load(args.d_h, at), Load(args.u, at)));
  }
};

template <class T>
Error GruBackward(const GruCellBackwardArgs<T>& args,
                  const HostInterface& host) {
  const int64_t rows = args.dims.batch;
  const int64_t units = args.dims.units;
  ComputeType<T>* c_sums = nullptr;
  ComputeType<T>* ru_sums = nullptr;
  Error error = nullptr;
  if ((error = RunPointwise(host, rows, units, GruStateGradElement<T>{args})) ||
      (error = MultiplyTransposed<T>(host, args.dims, args.d_c_bar, args.w_c,
                                     units, &c_sums)) ||
      (error = RunPointwise(host, rows, units,
                            GruResetGradElement<T>{args, c_sums})) ||
      (error = MultiplyTransposed<T>(host, args.dims, args.d_r_bar_u_bar,
                                     args.w_ru, kGruGates * units, &ru_sums))) {
    return error;
  }
  return RunPointwise(host, rows, args.dims.input + units,
                      GruInputGradElement<T>{args, c_sums, ru_sums});
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
