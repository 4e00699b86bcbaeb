// Declares what a kernel sees of one call of its op: the inputs, the outputs,
// and the threads, memory and stream that it may use. TensorFlow's executor
// provides them (cc/kernels/tensorflow_call.cc), or a program that XLA compiled
// (cc/xla/ffi_call.h).

#ifndef BLOCKRNN_KERNELS_OP_CALL_H_
#define BLOCKRNN_KERNELS_OP_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

// Inputs and outputs are indexed as in the op's signature, where a list counts
// as its elements. Their memory is the device's, unless the op's row has them
// in host memory.
class OpCall : public InputShapes {
 public:
  // Nothing writes to an input, and none has the memory of an output.
  virtual const void* input(int index) const = 0;

  virtual int num_outputs() const = 0;
  // Whether the caller reads an output; true if it does not say.
  virtual bool output_required(int index) const = 0;
  virtual absl::Status AllocateOutput(int index,
                                      absl::Span<const int64_t> dims) = 0;
  // Null before its allocation. The memory may be larger than was asked for
  // where the op's shape function does not determine the size.
  virtual void* output(int index) const = 0;
  virtual int64_t output_bytes(int index) const = 0;

  // Keeps the caller from freeing the memory of an input or writing to it until
  // the result is destroyed. Null if the caller cannot do that.
  virtual std::shared_ptr<const void> Hold(int index) const = 0;
  // Whether the memory of an input is known to be another library's, which may
  // write to it between calls.
  virtual bool IsForeign(int index) const = 0;

  // The rest may be called by several threads at a time.

  // Threads worth using, the calling one included.
  virtual int num_threads() const = 0;
  // Queues run(arg) on another thread; where that fails, runs it here.
  virtual void Schedule(void (*run)(void* arg) noexcept,
                        void* arg) noexcept = 0;
  // Memory of the device, aligned to 64 on CPUs and to 256 on GPUs, which is
  // freed at the end of the call.
  virtual absl::Status AllocateScratch(std::size_t bytes, void** scratch) = 0;
  virtual bool can_be_cancelled() const = 0;
  virtual bool Cancelled() const noexcept = 0;
  virtual void* stream() const = 0;  // of a GPU
};

inline int64_t InputElements(const OpCall& call, int index) {
  int64_t elements = 1;
  for (int d = 0; d < call.rank(index); ++d) elements *= call.dim(index, d);
  return elements;
}

// Whether an optional input is left out.
inline bool LeftOut(const OpCall& call, int index) {
  return call.rank(index) == 1 && call.dim(index, 0) == 0;
}

template <class T>
const T* Input(const OpCall& call, int index) {
  return static_cast<const T*>(call.input(index));
}

// nullptr where an optional input is left out.
template <class T>
const T* InputOrNull(const OpCall& call, int index) {
  return LeftOut(call, index) ? nullptr : Input<T>(call, index);
}

template <class T>
T* Output(const OpCall& call, int index) {
  return static_cast<T*>(call.output(index));
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_OP_CALL_H_
