// Owns the border between the CUDA engine and whoever calls it. Free of
// TensorFlow and of CUDA headers, so a host compiler reads it and a machine
// without TensorFlow builds the engine. Everything is queued on the caller's
// stream; nothing waits for the device.

#ifndef BLOCKRNN_KERNELS_CUDA_ENGINE_H_
#define BLOCKRNN_KERNELS_CUDA_ENGINE_H_

#include <cstddef>
#include <cstdint>

#include "cc/core/cell_args.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/core/sequence_args.h"

namespace Eigen {
struct half;
struct bfloat16;
}  // namespace Eigen

namespace blockrnn::cuda {

// nullptr for success, else a static text that says what failed.
using Error = const char*;

struct Blas;  // cc/kernels/cuda/blas/blas.h

struct HostInterface;

// Who follows a call over a whole sequence, block of steps by block. Functions
// that are nullptr are not wanted.
struct BlockWatch {
  using Told = Error (*)(void* context, std::int64_t first, std::int64_t steps,
                         const HostInterface& host);

  void* context = nullptr;
  Told enter = nullptr;  // before anything is queued that reads these steps
  Told leave = nullptr;  // when all is queued that they need
  std::int64_t most_steps = 0;  // of a block
};

// What an engine call borrows.
struct HostInterface {
  void* context = nullptr;
  void* stream = nullptr;  // a cudaStream_t; device memory below belongs to it
  // Device scratch of that many bytes, aligned to 256, which the host keeps
  // until the work queued on the stream is done; nullptr when there is none.
  void* (*allocate)(void* context, std::size_t bytes) = nullptr;
  // Whether kernels may be launched whose blocks all run at once.
  bool persistent = true;
  // Calls that run side by side, each on a stream of its own, and each with
  // such kernels in its part of the device: so they wait for none of each
  // other.
  int side_by_side = 1;
  const Blas* blas = nullptr;  // large products; nullptr: the engine's own
  // About how much scratch a block of steps may take. More of it makes the
  // large products, of which each block has a few, larger.
  std::size_t block_bytes = std::size_t{128} << 20;
  // Multiplications from which on a step's own product is left to the BLAS:
  // there its launches cost less than it gains. An estimate, not measured yet.
  std::int64_t blas_step_work = 80'000'000;
  // Layers of a stack run side by side in blocks of at least that many steps;
  // 0: one after the other. An estimate, not measured yet.
  std::int64_t overlap_steps = 16;
  const BlockWatch* watch = nullptr;
  // Where given, counts the blocks of steps that ran as a persistent kernel.
  std::int64_t* persistent_blocks = nullptr;
};

// The engine's functions, each identified by the struct of its arguments
// (cc/core/engine_args.h). T is float, double, Eigen::half or Eigen::bfloat16;
// all pointers are to device memory, but those to the lengths of rows, which
// are to host memory and need not outlive the call.
template <class T>
Error Run(const GruCellForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const GruCellBackwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const LstmCellForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const LstmCellBackwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const LstmSequenceForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const LstmSequenceBackwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const GruSequenceForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const GruSequenceBackwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const GruAfterSequenceForwardArgs<T>& args,
          const HostInterface& host);
template <class T>
Error Run(const GruAfterSequenceBackwardArgs<T>& args,
          const HostInterface& host);
template <class T>
Error Run(const SimpleRnnForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const SimpleRnnBackwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const RnnStackForwardArgs<T>& args, const HostInterface& host);
template <class T>
Error Run(const RnnStackBackwardArgs<T>& args, const HostInterface& host);

// Sets `bytes` bytes of device memory to zero.
Error FillZero(void* device, std::size_t bytes, const HostInterface& host);
// Copies `bytes` bytes of device memory to others.
Error Copy(const void* from, std::size_t bytes, void* to,
           const HostInterface& host);

// What Error is when HostInterface::allocate gave nothing.
inline constexpr char kOutOfMemory[] = "out of device memory";

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_ENGINE_H_
