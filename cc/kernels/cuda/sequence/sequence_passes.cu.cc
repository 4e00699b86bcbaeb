// Implements the kernels of these passes for every type.

#include "cc/kernels/cuda/sequence/sequence_passes.cuh"

#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

namespace {

// Calls pass(row) for each row, by a warp: a row's indices are computed once
// for all its elements. As in PointwiseKernel one block per multiprocessor is
// requested, so that registers do not spill.
template <class Pass>
__global__ void __launch_bounds__(kThreads, 1)
    RowsKernel(int64_t rows, Pass pass) {
  for (int64_t row = int64_t{blockIdx.x} * kWarps + Warp(); row < rows;
       row += int64_t{gridDim.x} * kWarps) {
    pass(row);
  }
}

template <class Pass>
Error RunRows(const HostInterface& host, int64_t rows, const Pass& pass) {
  return Launch(RowsKernel<Pass>, (rows + kWarps - 1) / kWarps, host, rows,
                pass);
}

// Calls pass(order, place) for each place in a block of steps, by a warp.
template <class Pass>
Error RunPlaces(const HostInterface& host, const RowOrder& order,
                const StepBlock& block, const Pass& pass) {
  return RunRows(host, block.steps * block.widest,
                 BlockPass<Pass>{order, block.first, block.widest, pass});
}

template <class T>
struct GatherInputPass {
  using C = ComputeType<T>;
  const T* x;
  int64_t width;
  T* out;

  __device__ void operator()(const RowOrder& order,
                             const BlockPlace& place) const {
    const bool masked = order.IsMasked(place.step, place.b);
    const int64_t from = order.MemoryRow(place.step, place.b) * width;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      Store(out, place.row * width + j, masked ? C(0) : Load(x, from + j));
    }
  }
};

template <class T>
struct GatherStatesPass {
  using C = ComputeType<T>;
  States<T> states;
  const T* factors;
  T* out;

  __device__ void operator()(const RowOrder& order,
                             const BlockPlace& place) const {
    const int64_t width = states.width;
    const bool masked = order.IsMasked(place.step, place.b);
    const bool first = place.step == 0;
    const T* from = first ? states.first : states.h;
    const int64_t at =
        first ? order.FirstStateRow(place.b) * width
              : order.MemoryRow(place.step - 1, place.b) * states.ld;
    const bool zero = masked || at < 0;
    const int64_t factors_at = order.BatchRow(place.b) * width;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      C value = zero ? C(0) : Load(from, at + j);
      if (factors != nullptr && !masked) value *= Load(factors, factors_at + j);
      Store(out, place.row * width + j, value);
    }
  }
};

template <class T>
struct ScatterPass {
  const ComputeType<T>* rows;
  int64_t width;
  T* out;

  __device__ void operator()(const RowOrder& order,
                             const BlockPlace& place) const {
    const int64_t to = order.MemoryRow(place.step, place.b) * width;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      Store(out, to + j, rows[place.row * width + j]);
    }
  }
};

template <class T>
struct StoreGatesPass {
  using C = ComputeType<T>;
  const T* gates;
  int64_t count;
  int64_t units;
  bool sum;
  T* x_grad;

  __device__ void operator()(const RowOrder& order,
                             const BlockPlace& place) const {
    const int64_t width = count * units;
    const int64_t to =
        order.MemoryRow(place.step, place.b) * (sum ? units : width);
    const int64_t from = place.row * width;
    for (int64_t j = Lane(); j < (sum ? units : width); j += kLanes) {
      C value = Load(gates, from + j);
      for (int64_t gate = 1; sum && gate < count; ++gate) {
        value += Load(gates, from + gate * units + j);
      }
      Store(x_grad, to + j, value);
    }
  }
};

// For each step and row: n = step · batch + b.
template <class T>
struct ZeroPaddingPass {
  RowOrder order;
  T* out;
  int64_t width;
  int64_t ld;

  __device__ void operator()(int64_t n) const {
    const int64_t step = n / order.batch;
    const int64_t b = n % order.batch;
    if (step >= order.UnusedSteps(b)) return;
    // Active steps are all of a row's length here.
    const int64_t to = order.UnusedRow(step, b, order.ActiveSteps(b), 0) * ld;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      Store(out, to + j, ComputeType<T>(0));
    }
  }
};

__device__ int64_t StateRow(const RowOrder& order, RowEnd end, int64_t b) {
  return end == RowEnd::kFirst ? order.FirstStateRow(b) : order.LastStateRow(b);
}

template <class T>
struct LoadStatesPass {
  using C = ComputeType<T>;
  RowOrder order;
  RowEnd end;
  const T* from;
  int64_t width;
  C* to;
  T* stored;

  __device__ void operator()(int64_t b) const {
    const int64_t at = StateRow(order, end, b) * width;
    const bool zero = from == nullptr || at < 0;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      const C value = zero ? C(0) : Load(from, at + j);
      to[b * width + j] = value;
      StoreIf(stored, b * width + j, value);
    }
  }
};

template <class T>
struct StoreStatesPass {
  using C = ComputeType<T>;
  RowOrder order;
  RowEnd end;
  const C* even;
  const C* odd;
  int64_t width;
  T* to;

  __device__ void operator()(int64_t b) const {
    const C* from = order.ActiveSteps(b) % 2 == 0 ? even : odd;
    const int64_t at = StateRow(order, end, b) * width;
    if (at < 0) return;
    for (int64_t j = Lane(); j < width; j += kLanes) {
      Store(to, at + j, from[b * width + j]);
    }
  }
};

template <class T>
struct RowElement {
  const T* rows;
  int64_t ld;

  __device__ void operator()(int64_t row, int64_t unit,
                             ComputeType<T> (&sums)[1]) const {
    sums[0] += Load(rows, row * ld + unit);
  }
};

template <class T>
struct RoundElement {
  const ComputeType<T>* sums;
  int64_t width;
  T* out;
  int64_t ld;

  __device__ void operator()(int64_t row, int64_t column) const {
    Store(out, row * ld + column, sums[row * width + column]);
  }
};

}  // namespace

template <class T>
Error SequencePasses<T>::GatherInput(const StepBlock& block, const T* x,
                                     int64_t width, T* out) const {
  return RunPlaces(host, order, block, GatherInputPass<T>{x, width, out});
}

template <class T>
Error SequencePasses<T>::GatherStates(const StepBlock& block,
                                      const States<T>& states, const T* factors,
                                      T* out) const {
  return RunPlaces(host, order, block,
                   GatherStatesPass<T>{states, factors, out});
}

template <class T>
Error SequencePasses<T>::ScatterRows(const StepBlock& block, const C* rows,
                                     int64_t width, T* out) const {
  if (out == nullptr) return nullptr;
  return RunPlaces(host, order, block, ScatterPass<T>{rows, width, out});
}

template <class T>
Error SequencePasses<T>::StoreGates(const StepBlock& block,
                                    const SequenceShape& shape, const T* gates,
                                    int64_t count, T* x_grad) const {
  if (shape.HasInputWeights() || x_grad == nullptr) return nullptr;
  return RunPlaces(host, order, block,
                   StoreGatesPass<T>{gates, count, shape.units,
                                     !shape.projected_input, x_grad});
}

template <class T>
Error SequencePasses<T>::ZeroPadding(T* out, int64_t width, int64_t ld) const {
  if (order.most_unused_steps == 0 || out == nullptr) return nullptr;
  return RunRows(host, order.most_unused_steps * order.batch,
                 ZeroPaddingPass<T>{order, out, width, ld});
}

template <class T>
Error SequencePasses<T>::LoadStates(RowEnd end, const T* from, int64_t width,
                                    C* to, T* stored) const {
  return RunRows(host, order.batch,
                 LoadStatesPass<T>{order, end, from, width, to, stored});
}

template <class T>
Error SequencePasses<T>::StoreStates(RowEnd end, const C* even, const C* odd,
                                     int64_t width, T* to) const {
  if (to == nullptr) return nullptr;
  return RunRows(host, order.batch,
                 StoreStatesPass<T>{order, end, even, odd, width, to});
}

template <class T>
int64_t RowSums<T>::Slices(int64_t count) {
  return Tiles<kSliceRows>{count, 1}.down();
}

template <class T>
Error RowSums<T>::Add(const HostInterface& host, const T* rows, int64_t ld,
                      int64_t count, int64_t width, C* slices, C* sums) {
  const Tiles<kSliceRows> tiles = {count, width};
  if (Error error = Launch(SumSlicesKernel<1, C, RowElement<T>>, tiles.count(),
                           host, tiles, RowElement<T>{rows, ld}, slices)) {
    return error;
  }
  const Tiles<1> all = {1, width};
  return Launch(AddSlicesKernel<1, C>, all.count(), host, all, tiles.down(),
                slices, SumOutputs<C, 1>{{sums}}, /*accumulate=*/true);
}

template <class T>
Error RowSums<T>::RoundTo(const HostInterface& host, const C* sums,
                          int64_t rows, int64_t width, T* out, int64_t ld) {
  if (out == nullptr) return nullptr;
  return RunPointwise(host, rows, width, RoundElement<T>{sums, width, out, ld});
}

template struct SequencePasses<Eigen::half>;
template struct SequencePasses<Eigen::bfloat16>;
template struct SequencePasses<float>;
template struct SequencePasses<double>;
template struct RowSums<Eigen::half>;
template struct RowSums<Eigen::bfloat16>;
template struct RowSums<float>;
template struct RowSums<double>;

}  // namespace blockrnn::cuda
