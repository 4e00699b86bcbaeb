// Implements the engine's functions for stacks of layers: what the driver in
// cc/core/rnn_stack_forward.h needs from a device.

#include <cstddef>
#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/rnn_stack_backward.h"
#include "cc/core/rnn_stack_forward.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/stack/concurrency.cuh"
#include "cc/kernels/cuda/stack/dropout.cuh"
#include "cc/kernels/cuda/stack/reserve_header.cuh"
#include "cc/kernels/cuda/stack/streams.cuh"

namespace blockrnn::cuda {
namespace {

constexpr ReserveDevice kDevice = ReserveDevice::kCuda;

template <class T>
class RnnStackEngine {
 public:
  using Status = Error;
  using Context = cuda::HostInterface;
  static constexpr ReserveDevice kReserveDevice = kDevice;
  static bool Failed(Error error) { return error != nullptr; }

  // args: of a stack, forward or backward; concurrency: from ChooseConcurrency.
  template <class Args>
  RnnStackEngine(const HostInterface& host, const Args& args,
                 const StackConcurrency& concurrency)
      : host_(host),
        streams_(host, args.geometry, {0, args.steps}, concurrency) {}

  Error Allocate(int64_t elements, T** array) const {
    std::byte* bytes = nullptr;
    const Error error =
        cuda::Allocate(host_, elements * kElementBytes<T>, &bytes);
    *array = reinterpret_cast<T*>(bytes);
    return error;
  }

  template <class Take, class ArgsOf, class After>
  Error RunLayer(int64_t layer, const Take& take, const ArgsOf& args_of,
                 const After& after) {
    return streams_.Run(
        layer, take, [&](const HostInterface& host, const auto&... directions) {
          Error error = RunSequences(host, args_of(directions)...);
          static_cast<void>(error != nullptr ||
                            ((error = after(directions, host)) || ...));
          return error;
        });
  }

  Error DrawMask(const PhiloxState& philox, float rate, int64_t elements,
                 uint8_t* mask) const {
    return cuda::DrawMask(host_, philox, rate, elements, mask);
  }
  Error ApplyMask(const uint8_t* mask, float rate, const ElementSpan& span,
                  const T* from, T* to, const HostInterface& host) const {
    return cuda::ApplyMask(host, mask, rate, span, from, to);
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
  Error Copy(const T* from, int64_t elements, T* to,
             const HostInterface& host) const {
    return cuda::Copy(from, elements * kElementBytes<T>, to, host);
  }

 private:
  template <class Args>
  static Error RunSequences(const HostInterface& host, const Args& args) {
    return cuda::Run(args, host);
  }
  template <class Args>
  static Error RunSequences(const HostInterface& host, const Args& first,
                            const Args& second) {
    return RunDirections(first, second, host);
  }

  const HostInterface& host_;
  LayerStreams streams_;
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
  StackConcurrency concurrency;
  if (Error error = ChooseConcurrency(host, args, &concurrency)) return error;
  RnnStackEngine<T> engine(host, args, concurrency);
  return RnnStackForward<T, RnnStackEngine<T>>(args, &engine).Run();
}

template <class T>
Error Run(const RnnStackBackwardArgs<T>& args, const HostInterface& host) {
  StackConcurrency concurrency;
  if (Error error = ChooseConcurrency(host, args, &concurrency)) return error;
  RnnStackEngine<T> engine(host, args, concurrency);
  if (Error error =
          RnnStackBackward<T, RnnStackEngine<T>>(args, &engine).Run()) {
    return error;
  }
  return RejectReserve(host, args.reserve,
                       MakeReserveHeader(args, kElementBytes<T>, kDevice),
                       BackwardOutputsOf(args));
}

BLOCKRNN_INSTANTIATE_RUN(RnnStackForwardArgs)
BLOCKRNN_INSTANTIATE_RUN(RnnStackBackwardArgs)

}  // namespace blockrnn::cuda
