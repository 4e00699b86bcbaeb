// Implements the engine's functions for stacks of layers: what the driver in
// cc/core/rnn_stack_forward.h needs from a device.

#include <cstddef>
#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_backward.h"
#include "cc/core/rnn_stack_forward.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/core/scratch_pool.h"
#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/stack/dropout.cuh"
#include "cc/kernels/cuda/stack/reserve_header.cuh"

namespace blockrnn::cuda {
namespace {

constexpr ReserveDevice kDevice = ReserveDevice::kCuda;

// The HostInterface of a stack's layers, which run one after the other on the
// caller's stream and reuse each other's scratch.
class LayerHost {
 public:
  explicit LayerHost(const HostInterface& caller)
      : caller_(caller), blas_{this, &RunGemm}, host_(caller) {
    host_.context = this;
    host_.allocate = &Allocate;
    host_.blas = &blas_;
  }
  LayerHost(const LayerHost&) = delete;
  LayerHost& operator=(const LayerHost&) = delete;

  const HostInterface& host() const { return host_; }

  // Releases the scratch of the calls that are queued to those that follow.
  void Recycle() { scratch_.Recycle(); }

 private:
  static void* Allocate(void* context, std::size_t bytes) noexcept {
    auto* const self = static_cast<LayerHost*>(context);
    if (void* const data = self->scratch_.Take(bytes)) return data;
    void* const data = self->caller_.allocate(self->caller_.context, bytes);
    if (data != nullptr) self->scratch_.Add(data, bytes);
    return data;
  }
  // The scratch of the BLAS lives from layer to layer, and is the caller's.
  static Error RunGemm(void* context, const BlasGemm& gemm,
                       const HostInterface&) {
    const HostInterface& caller = static_cast<LayerHost*>(context)->caller_;
    return caller.blas->gemm(caller.blas->context, gemm, caller);
  }

  const HostInterface& caller_;
  ScratchPool scratch_;
  const Blas blas_;
  HostInterface host_;
};

template <class T>
class RnnStackEngine {
 public:
  using Status = Error;
  static constexpr ReserveDevice kReserveDevice = kDevice;
  static bool Failed(Error error) { return error != nullptr; }

  RnnStackEngine(const HostInterface& host, const RnnGeometry& geometry)
      : host_(host), geometry_(geometry), layers_(host) {}

  Error Allocate(int64_t elements, T** array) const {
    std::byte* bytes = nullptr;
    const Error error =
        cuda::Allocate(host_, elements * kElementBytes<T>, &bytes);
    *array = reinterpret_cast<T*>(bytes);
    return error;
  }

  template <class ArgsOf>
  Error RunLayer(int64_t layer, const ArgsOf& args_of) {
    const HostInterface& host = layers_.host();
    const LayerDirection forward = MakeDirection(geometry_, layer, 0);
    if (geometry_.directions == 1) return RunOne(args_of(forward));
    const LayerDirection backward = MakeDirection(geometry_, layer, 1);
    bool joint = false;
    const Error error =
        RunDirections(args_of(forward), args_of(backward), host, &joint);
    layers_.Recycle();
    if (error != nullptr || joint) return error;
    if (Error first = RunOne(args_of(forward))) return first;
    return RunOne(args_of(backward));
  }

  Error DrawMask(const PhiloxState& philox, float rate, int64_t elements,
                 uint8_t* mask) const {
    return cuda::DrawMask(host_, philox, rate, elements, mask);
  }
  Error ApplyMask(const uint8_t* mask, float rate, int64_t elements,
                  const T* from, T* to) const {
    return cuda::ApplyMask(host_, mask, rate, elements, from, to);
  }
  Error FinishReserve(const ReserveLayout& layout, const ReserveHeader& header,
                      void* reserve) const {
    return cuda::FinishReserve(host_, layout, header, reserve);
  }
  Error FillZero(int64_t elements, T* array) const {
    return cuda::FillZero(array, elements * kElementBytes<T>, host_);
  }
  Error AddGradients(const T* other, int64_t elements, T* grad) const {
    return cuda::AddGradients(host_, other, elements, grad);
  }
  Error Copy(const T* from, int64_t elements, T* to) const {
    return cuda::Copy(from, elements * kElementBytes<T>, to, host_);
  }

 private:
  template <class Args>
  Error RunOne(const Args& args) {
    const Error error = cuda::Run(args, layers_.host());
    layers_.Recycle();
    return error;
  }

  const HostInterface& host_;
  const RnnGeometry& geometry_;
  LayerHost layers_;
};

template <class T>
BackwardOutputs<T> BackwardOutputsOf(const RnnStackBackwardArgs<T>& args) {
  const RnnGeometry& g = args.geometry;
  const int64_t states = g.layer_directions() * args.batch;
  // Only an LSTM has a gradient of input_c.
  const int64_t c = args.input_c_backprop != nullptr ? states * g.units : 0;
  return {{args.input_backprop, args.input_h_backprop, args.input_c_backprop,
           args.params_backprop},
          {args.steps * args.batch * g.input, states * g.proj, c,
           ParamLayout(g).size()}};
}

}  // namespace

template <class T>
Error Run(const RnnStackForwardArgs<T>& args, const HostInterface& host) {
  RnnStackEngine<T> engine(host, args.geometry);
  return RnnStackForward<T, RnnStackEngine<T>>(args, &engine).Run();
}

template <class T>
Error Run(const RnnStackBackwardArgs<T>& args, const HostInterface& host) {
  RnnStackEngine<T> engine(host, args.geometry);
  if (Error error =
          RnnStackBackward<T, RnnStackEngine<T>>(args, &engine).Run()) {
    return error;
  }
  return RejectReserve(host, args.reserve,
                       MakeReserveHeader(args, kElementBytes<T>, kDevice),
                       BackwardOutputsOf(args));
}

template Error Run(const RnnStackForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const RnnStackForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const RnnStackForwardArgs<float>&, const HostInterface&);
template Error Run(const RnnStackForwardArgs<double>&, const HostInterface&);
template Error Run(const RnnStackBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const RnnStackBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const RnnStackBackwardArgs<float>&, const HostInterface&);
template Error Run(const RnnStackBackwardArgs<double>&, const HostInterface&);

}  // namespace blockrnn::cuda
