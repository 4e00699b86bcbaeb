// Owns how the order of rows is made on the host and brought to the device.

#include "cc/kernels/cuda/sequence/sequence_rows.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

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

// As parameters of kernels and not as a copy: a copy of memory that is not
// pinned may make the host wait for the stream.
Error ToDevice(const HostInterface& host, const int64_t* numbers, int64_t count,
               int64_t* out) {
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

// order[B], lengths[B] and before[T + 1] of cuda::RowMap.
void OrderRows(const SequenceShape& shape, int64_t* order, int64_t* lengths,
               int64_t* before) {
  // Rows longer than a step, which is where rows of its length come to stand.
  int64_t* place = before;
  std::fill(place, place + shape.steps + 1, 0);
  for (int64_t b = 0; b < shape.batch; ++b) ++place[shape.lengths[b]];
  int64_t longer = 0;
  for (int64_t step = shape.steps; step >= 0; --step) {
    const int64_t equal = place[step];
    place[step] = longer;
    longer += equal;
  }
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t at = place[shape.lengths[b]]++;
    order[at] = b;
    lengths[at] = shape.lengths[b];
  }
  // The places are used up; now the sums.
  int64_t active = shape.batch;
  int64_t rows = 0;
  for (int64_t step = 0; step <= shape.steps; ++step) {
    while (active > 0 && lengths[active - 1] <= step) --active;
    before[step] = rows;
    rows += active;
  }
}

}  // namespace

Error SequenceRows::Prepare(const HostInterface& host,
                            const SequenceShape& shape, const uint8_t* mask,
                            int64_t row_bytes) {
  map_.steps = shape.steps;
  map_.batch = shape.batch;
  map_.state_stride = shape.state_stride;
  map_.time_major = shape.time_major;
  map_.backwards = shape.backwards;
  map_.saved_in_steps = shape.saved_in_steps;
  map_.mask = mask;
  most_ =
      static_cast<int64_t>(host.block_bytes) / std::max<int64_t>(row_bytes, 1);
  most_steps_ = host.watch == nullptr ? shape.steps : host.watch->most_steps;
  steps_ = shape.batch == 0 ? 0 : shape.steps;
  if (shape.lengths == nullptr || steps_ == 0) return nullptr;

  const int64_t count = 2 * shape.batch + shape.steps + 1;
  numbers_.reset(new (std::nothrow) int64_t[count]);
  if (numbers_ == nullptr) return "out of host memory";
  const auto bind = [&](int64_t* numbers, RowMap* map) {
    map->order = numbers;
    map->lengths = numbers + shape.batch;
    map->before = numbers + 2 * shape.batch;
  };
  int64_t* const numbers = numbers_.get();
  OrderRows(shape, numbers, numbers + shape.batch, numbers + 2 * shape.batch);
  host_map_ = map_;
  bind(numbers, &host_map_);
  steps_ = host_map_.lengths[0];
  int64_t* on_device = nullptr;
  if (Error error = Allocate(host, count, &on_device)) return error;
  bind(on_device, &map_);
  return ToDevice(host, numbers, count, on_device);
}

}  // namespace blockrnn::cuda
