// Implements how the order of rows is made on the host and copied to the
// device.

#include "cc/kernels/cuda/sequence/sequence_rows.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "cc/core/row_order.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {

namespace {

// As many as a kernel's parameters hold on every device (4 KB).
constexpr int kNumbers = 480;

struct Numbers {
  int64_t value[kNumbers];
};

__global__ void __launch_bounds__(kThreads)
    StoreNumbersKernel(Numbers numbers, int64_t count, int64_t* out) {
  for (int64_t n = threadIdx.x; n < count; n += kThreads) {
    out[n] = numbers.value[n];
  }
}

// Passed as kernel parameters and not copied: a copy from memory that is not
// pinned may make the host wait for the stream.
Error CopyToDevice(const HostInterface& host, const int64_t* numbers,
                   int64_t count, int64_t* out) {
  for (int64_t done = 0; done < count; done += kNumbers) {
    Numbers part = {};
    const int64_t size = std::min<int64_t>(count - done, kNumbers);
    std::copy(numbers + done, numbers + done + size, part.value);
    if (Error error =
            Launch(StoreNumbersKernel, 1, host, part, size, out + done)) {
      return error;
    }
  }
  return nullptr;
}

}  // namespace

Error SequenceRows::SetOrder(const SequenceShape& shape, const uint8_t* mask) {
  const int64_t size = RowOrderStorage(shape, nullptr);
  if (size > 0) {
    storage_.reset(new (std::nothrow) int64_t[size]);
    if (storage_ == nullptr) return kOutOfHostMemory;
  }
  host_order_ = MakeRowOrder(shape, nullptr, storage_.get());
  host_order_.mask = mask;
  return nullptr;
}

Error SequenceRows::Prepare(const HostInterface& host, int64_t row_bytes) {
  max_block_rows_ =
      static_cast<int64_t>(host.block_bytes) / std::max<int64_t>(row_bytes, 1);
  device_order_ = host_order_;
  if (!host_order_.HasPadding()) return nullptr;
  const int64_t count = host_order_.NumDeviceNumbers();
  int64_t* numbers = nullptr;
  if (Error error = Allocate(host, count, &numbers)) return error;
  device_order_ = host_order_.WithNumbers(numbers);
  return CopyToDevice(host, host_order_.batch_rows, count, numbers);
}

}  // namespace blockrnn::cuda
