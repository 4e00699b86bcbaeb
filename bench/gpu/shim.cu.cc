// Defines the C functions through which bench/gpu calls the engine:
// stacks on memory and a stream of the caller. Nothing waits for the device.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/engine.h"
#include "tests/gpu/scratch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTNEXTLINE: bench/gpu/contenders.py mirrors it.
struct PlainBench {
  int64_t dtype;  // half, bfloat16, float
  int64_t mode, layers, directions, input, units, steps, batch;
  int64_t allow_tf32, persistent;
  int64_t blas_step_work;  // 0: the engine's own
};

namespace blockrnn::cuda {
namespace {

// Scratch that is reused from call to call, as TensorFlow's allocator does: the
// n-th array of a call is the n-th one of the previous call.
class Arena {
 public:
  ~Arena() {
    for (const Array& array : arrays_) static_cast<void>(cudaFree(array.data));
  }

  void Begin() { next_ = 0; }

  static void* Allocate(void* context, std::size_t bytes) noexcept {
    return static_cast<Arena*>(context)->Next(bytes);
  }

 private:
  struct Array {
    void* data;
    std::size_t bytes;
  };

  void* Next(std::size_t bytes) {
    if (next_ < arrays_.size() && arrays_[next_].bytes < bytes) {
      static_cast<void>(cudaFree(arrays_[next_].data));  // waits for the device
      arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(next_));
    }
    if (next_ == arrays_.size() || arrays_[next_].bytes < bytes) {
      void* data = nullptr;
      if (cudaMalloc(&data, bytes) != cudaSuccess) return nullptr;
      arrays_.insert(arrays_.begin() + static_cast<std::ptrdiff_t>(next_),
                     {data, bytes});
    }
    return arrays_[next_++].data;
  }

  std::vector<Array> arrays_;
  std::size_t next_ = 0;
};

struct Bench {
  PlainBench plain;
  Arena forward;
  Arena backward;
};

RnnGeometry GeometryOf(const PlainBench& plain) {
  RnnGeometry g;
  g.mode = static_cast<RnnMode>(plain.mode);
  g.layers = plain.layers;
  g.directions = plain.directions;
  g.input = plain.input;
  g.units = plain.units;
  g.proj = plain.units;
  return g;
}

template <class Args>
Args ArgsOf(const PlainBench& plain) {
  Args args;
  args.geometry = GeometryOf(plain);
  args.steps = plain.steps;
  args.batch = plain.batch;
  return args;
}

template <class... T>
void Fill(void* const* pointers, T**... fields) {
  ((*fields = static_cast<T*>(*pointers++)), ...);
}

template <class T>
Error Forward(const PlainBench& plain, void* const* pointers,
              const HostInterface& host) {
  auto args = ArgsOf<RnnStackForwardArgs<T>>(plain);
  Fill(pointers, &args.input, &args.input_h, &args.input_c, &args.params,
       &args.output, &args.output_h, &args.output_c, &args.reserve);
  return Run(args, host);
}

template <class T>
Error Backward(const PlainBench& plain, void* const* pointers,
               const HostInterface& host) {
  auto args = ArgsOf<RnnStackBackwardArgs<T>>(plain);
  Fill(pointers, &args.input, &args.input_h, &args.input_c, &args.params,
       &args.output, &args.output_backprop, &args.reserve, &args.input_backprop,
       &args.input_h_backprop, &args.input_c_backprop, &args.params_backprop);
  return Run(args, host);
}

// By the dtype of PlainBench: forward and backward.
constexpr Error (*kRuns[][2])(const PlainBench&, void* const*,
                              const HostInterface&) = {
    {&Forward<Eigen::half>, &Backward<Eigen::half>},
    {&Forward<Eigen::bfloat16>, &Backward<Eigen::bfloat16>},
    {&Forward<float>, &Backward<float>},
};

Error RunBench(bool backward, Bench* bench, void* stream,
               void* const* pointers) {
  const PlainBench& plain = bench->plain;
  Arena& arena = backward ? bench->backward : bench->forward;
  arena.Begin();
  const CublasCall cublas(plain.allow_tf32 != 0);
  HostInterface host;
  host.context = &arena;
  host.stream = stream;
  host.allocate = &Arena::Allocate;
  host.allow_tf32 = plain.allow_tf32 != 0;
  host.persistent = plain.persistent != 0;
  if (plain.blas_step_work != 0) host.blas_step_work = plain.blas_step_work;
  host.persistent_kernels = &persistent_kernels;
  host.blas = cublas.blas();
  return kRuns[plain.dtype][backward ? 1 : 0](plain, pointers, host);
}

}  // namespace
}  // namespace blockrnn::cuda

using blockrnn::cuda::Bench;
using blockrnn::cuda::Error;

EXPORT void* blockrnn_bench_open(const PlainBench* plain) {
  return new Bench{*plain, {}, {}};
}

EXPORT void blockrnn_bench_close(void* bench) {
  delete static_cast<Bench*>(bench);
}

// Elements of params, bytes of a reserve space.
EXPORT void blockrnn_bench_sizes(const PlainBench* plain, int64_t* params,
                                 int64_t* reserve) {
  const blockrnn::RnnGeometry g = blockrnn::cuda::GeometryOf(*plain);
  *params = blockrnn::ParamLayout::Count(g).value_or(-1);
  *reserve = blockrnn::ReserveLayout::Bytes(g, plain->steps, plain->batch,
                                            plain->steps * plain->batch,
                                            plain->dtype == 2 ? 4 : 2, false)
                 .value_or(-1);
}

// pointers: in the order of the argument structs' fields, except for the
// gradients of the final states. Null for success, else the error.
EXPORT Error blockrnn_bench_run(int backward, void* bench, void* stream,
                                void* const* pointers) {
  return blockrnn::cuda::RunBench(backward != 0, static_cast<Bench*>(bench),
                                  stream, pointers);
}
