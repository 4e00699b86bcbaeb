// Implements how the steps of a block are queued: as one persistent kernel for
// all of them, or as a launch for each GEMM of each step. The directions of a
// layer that run together share the persistent kernel.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_STEP_LOOP_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_STEP_LOOP_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/sequence_rows.cuh"
#include "cc/kernels/cuda/step/mma.cuh"
#include "cc/kernels/cuda/step/persistent.cuh"
#include "cc/kernels/cuda/step/persistent_plan.h"
#include "cc/kernels/cuda/step/step_matrix.cuh"
#include "cc/kernels/cuda/step/step_panel.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// The steps of a block in the order in which they run: forward each reads the
// state that the previous step computed, backward what the next step computed.
struct BlockSteps {
  RowOrder rows;
  StepBlock block;
  bool backwards = false;

  BLOCKRNN_HOST_DEVICE StepRange operator()(int64_t n) const {
    StepRange range;
    range.step =
        backwards ? block.first + block.steps - 1 - n : block.first + n;
    range.state = backwards ? range.step + 1 : range.step;
    range.rows = rows.ActiveRows(range.step);
    // The last step has no next one, whose state would be read.
    range.state_rows = backwards ? rows.ActiveRows(range.step + 1) : range.rows;
    return range;
  }
};

// A GEMM of a step: its weights, its epilogue, and whether it reads a state of
// this same step (PersistentWork).
template <class T, int kGates, bool kSliced, class Epilogue>
struct StepWork {
  using Element = T;
  // E: T, or Tf32.
  template <class E>
  using OnDevice = PersistentWork<E, kGates, kSliced, Epilogue>;

  const StepMatrix<T, kGates, kSliced>& matrix;
  Epilogue epilogue;
  bool reads_this_step = false;
};

template <class T, int kGates, bool kSliced, class Epilogue>
StepWork<T, kGates, kSliced, Epilogue> Work(
    const StepMatrix<T, kGates, kSliced>& matrix, const Epilogue& epilogue,
    bool reads_this_step = false) {
  return {matrix, epilogue, reads_this_step};
}

// A GEMM of a step in each of the calls that run together (calls.cuh).
template <class FirstWork, class... Others>
ByDirection<FirstWork, 1 + sizeof...(Others)> MakeByDirection(
    const FirstWork& first, const Others&... others) {
  return {{first, others...}};
}

// The description of a GEMM from which PlanPersistent chooses. E: T, or Tf32.
template <class E, class T, int kGates, bool kSliced>
PersistentGemm Describe(const StepMatrix<T, kGates, kSliced>& matrix) {
  const PackedWeights<E> weights = matrix.template PackedForFew<E>();
  PersistentGemm gemm;
  gemm.rows = matrix.shape().rows;
  gemm.panels = weights.panels();
  gemm.chunks = weights.chunks();
  gemm.slices = kSliced ? kGates : 1;
  gemm.tensor_cores = kTensorCores<E>;
  gemm.weight_bytes = gemm.state_bytes = sizeof(typename StorageOf<E>::Type);
  gemm.compute_bytes = sizeof(ComputeType<E>);
  return gemm;
}

inline Error QueryDevice(PersistentDevice* device) {
  int current = 0;
  int cooperative = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;
  int major = 0;
  const auto query = [&](cudaDeviceAttr attribute, int* value) {
    return ToError(cudaDeviceGetAttribute(value, attribute, current));
  };
  Error error = nullptr;
  if ((error = ToError(cudaGetDevice(&current))) ||
      (error = query(cudaDevAttrCooperativeLaunch, &cooperative)) ||
      (error = query(cudaDevAttrMultiProcessorCount, &multiprocessors)) ||
      (error = query(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_bytes)) ||
      (error = query(cudaDevAttrComputeCapabilityMajor, &major))) {
    return error;
  }
  device->cooperative = cooperative != 0;
  device->tf32 = kHasTf32 && major >= 8;
  device->multiprocessors = multiprocessors;
  device->shared_bytes = shared_bytes;
  return nullptr;
}

// Lets a block of the kernel have that much dynamic shared memory on the
// current device. The limit of a kernel is only ever raised, so that threads
// whose calls need different amounts do not take it from each other.
inline cudaError_t AllowSharedMemory(const void* kernel, int64_t bytes) {
  constexpr int64_t kDefaultLimit = 48 * 1024;  // of every kernel
  if (bytes <= kDefaultLimit) return cudaSuccess;
  // Never destroyed: calls may run until the process ends.
  static auto* const mutex = new std::mutex;
  static auto* const limits =
      new std::map<std::pair<int, const void*>, int64_t>;
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  const std::lock_guard<std::mutex> lock(*mutex);
  int64_t& limit = (*limits)[{device, kernel}];
  if (bytes <= limit) return cudaSuccess;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
  if (code == cudaSuccess) limit = bytes;
  return code;
}

// Whether a launch that failed with this error was refused for lack of room, so
// that nothing was queued and the steps can run one by one: too many blocks for
// the multiprocessors of this process (MPS, MIG), or more registers or shared
// memory than the device or a tool beside the program leaves.
inline constexpr cudaError_t kRefusals[] = {
    cudaErrorInvalidValue, cudaErrorInvalidConfiguration,
    cudaErrorLaunchOutOfResources, cudaErrorCooperativeLaunchTooLarge};
inline bool IsRefused(cudaError_t code) {
  return std::find(std::begin(kRefusals), std::end(kRefusals), code) !=
         std::end(kRefusals);
}

// Logs the first refusal for each error. The results are right without the
// kernel, so nothing else would tell that an argument of ours was wrong.
inline void LogRefusal(cudaError_t code, int64_t blocks, int64_t shared_bytes) {
  static std::atomic<bool> logged[std::size(kRefusals)];
  const cudaError_t* const refusal =
      std::find(std::begin(kRefusals), std::end(kRefusals), code);
  if (logged[refusal - kRefusals].exchange(true)) return;
  std::fprintf(stderr,
               "tf_blockrnn: CUDA refused a persistent kernel of %lld blocks "
               "of %d threads and %lld bytes of shared memory: error %d, %s\n",
               static_cast<long long>(blocks), kThreads,
               static_cast<long long>(shared_bytes), static_cast<int>(code),
               cudaGetErrorString(code));
}

class StepLoop {
 public:
  // matrices: those of a step's GEMMs, in their order, before they are
  // prepared.
  template <class T, int kGates, bool kSliced, class... Others>
  Error Plan(const HostInterface& host, int64_t steps,
             StepMatrix<T, kGates, kSliced>& first, Others&... others) {
    // The persistent kernel does not support factors of a state.
    if (!host.persistent || first.shape().state_per_gate ||
        (others.shape().state_per_gate || ...)) {
      return nullptr;
    }
    PersistentDevice device;
    if (Error error = QueryDevice(&device)) return error;
    device.multiprocessors /= host.concurrent_calls;
    if constexpr (std::is_same_v<T, float>) {
      // A tile of tensor cores is no faster for one or two rows.
      if (host.allow_tf32 && device.tf32 &&
          first.shape().rows > kFewPersistentRows) {
        Choose<Tf32>(device, steps, first, others...);
        as_tf32_ = persistent();
      }
    }
    if (!persistent()) Choose<T>(device, steps, first, others...);
    if (persistent()) {
      first.KeepResident(as_tf32_);
      (others.KeepResident(as_tf32_), ...);
    }
    return nullptr;
  }

  bool persistent() const { return plan_.rows > 0; }

  // works: the GEMMs of a step, each in kDirections calls; their loops have the
  // same plan.
  template <int kDirections, class... Works>
  Error Run(const HostInterface& host, const SequenceRows& rows,
            const StepBlock& block, bool backwards,
            const ByDirection<Works, kDirections>&... works) const {
    if (persistent()) {
      const BlockSteps steps = {rows.order(), block, backwards};
      const cudaError_t code = RunPersistent(host, steps, works...);
      if (!IsRefused(code)) {
        if (code == cudaSuccess && host.persistent_kernels != nullptr) {
          ++*host.persistent_kernels;
        }
        return ToError(code);
      }
      LogRefusal(code, plan_.blocks * kDirections, plan_.shared_bytes);
      if (host.refused_kernels != nullptr) ++*host.refused_kernels;
      static_cast<void>(ToError(code));
      if constexpr (kDirections > 1) {
        // There may be room for one of them.
        for (int n = 0; n < kDirections; ++n) {
          if (Error error = Run(host, rows, block, backwards,
                                MakeByDirection(works.of[n])...)) {
            return error;
          }
        }
        return nullptr;
      }
    }
    const BlockSteps steps = {rows.host_order(), block, backwards};
    for (int64_t n = 0; n < block.steps; ++n) {
      const StepRange range = steps(n);
      Error error = nullptr;
      static_cast<void>(((error = RunOne(host, range, works)) || ...));
      if (error) return error;
    }
    return nullptr;
  }

 private:
  template <class E, class... Matrices>
  void Choose(const PersistentDevice& device, int64_t steps,
              const Matrices&... matrices) {
    const PersistentGemm gemms[] = {Describe<E>(matrices)...};
    plan_ = PlanPersistent(device, steps, gemms,
                           static_cast<int>(sizeof...(matrices)));
  }

  template <int kDirections, class OneWork>
  static Error RunOne(const HostInterface& host, StepRange range,
                      const ByDirection<OneWork, kDirections>& works) {
    for (const OneWork& work : works.of) {
      if (work.reads_this_step) range.state_rows = range.rows;
      if (Error error = work.matrix.Run(host, range, work.epilogue)) {
        return error;
      }
    }
    return nullptr;
  }

  template <class E, class OneWork>
  typename OneWork::template OnDevice<E> ForDevice(const OneWork& work,
                                                   int stage) const {
    return {work.matrix.template ResidentGemm<E>(), work.epilogue,
            work.reads_this_step, plan_.stages[stage]};
  }

  // The GEMMs of one direction.
  template <class E, class... Works>
  PersistentWorks<typename Works::template OnDevice<E>...> AllForDevice(
      const Works&... works) const {
    int stage = 0;
    return {ForDevice<E>(works, stage++)...};
  }

  template <int kDirections, class... Works>
  cudaError_t RunPersistent(
      const HostInterface& host, const BlockSteps& steps,
      const ByDirection<Works, kDirections>&... works) const {
    static_assert(sizeof...(Works) <= kMaxPersistentStages);
    using Elements = std::tuple<typename Works::Element...>;
    using Element = std::tuple_element_t<0, Elements>;  // that of all of them
    constexpr int kMany =
        kTensorCores<Element> ? kTensorPersistentRows : kManyPersistentRows;
    if constexpr (std::is_same_v<Element, float>) {
      if (as_tf32_) {
        return RunRows<kTensorPersistentRows, Tf32>(host, steps, works...);
      }
    }
    if constexpr (sizeof...(Works) == 1 && !kTensorCores<Element>) {
      if (plan_.rows == kFewPersistentRows) {
        return RunRows<kFewPersistentRows, Element>(host, steps, works...);
      }
    }
    return RunRows<kMany, Element>(host, steps, works...);
  }

  template <int kRows, class E, int kDirections, class... Works>
  cudaError_t RunRows(const HostInterface& host, const BlockSteps& steps,
                      const ByDirection<Works, kDirections>&... works) const {
    using OfDirection =
        PersistentWorks<typename Works::template OnDevice<E>...>;
    ByDirection<OfDirection, kDirections> on_device;
    for (int n = 0; n < kDirections; ++n) {
      on_device.of[n] = AllForDevice<E>(works.of[n]...);
    }
    return LaunchCooperative(
        PersistentKernel<kRows, kDirections, BlockSteps, OfDirection>, host,
        steps, on_device);
  }

  template <class Kernel, class Works, int kDirections>
  cudaError_t LaunchCooperative(
      Kernel* kernel, const HostInterface& host, const BlockSteps& steps,
      const ByDirection<Works, kDirections>& works) const {
    const cudaError_t code = AllowSharedMemory(
        reinterpret_cast<const void*>(kernel), plan_.shared_bytes);
    if (code != cudaSuccess) return code;
    cudaLaunchAttribute cooperative = {};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(plan_.blocks * kDirections));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(plan_.shared_bytes);
    config.stream = static_cast<cudaStream_t>(host.stream);
    config.attrs = &cooperative;
    config.numAttrs = 1;
    // CUDA before 12.1 has no room for more.
    static_assert(sizeof(steps) + sizeof(PersistentGrid) + sizeof(works) <=
                  4096);
    const PersistentGrid grid = {
        steps.block.steps, static_cast<int>(plan_.blocks),
        static_cast<int>(plan_.sums_at), static_cast<int>(plan_.states_at),
        static_cast<int>(plan_.next_state)};
    return cudaLaunchKernelEx(&config, kernel, steps, grid, works);
  }

  PersistentPlan plan_;
  bool as_tf32_ = false;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_STEP_LOOP_CUH_
