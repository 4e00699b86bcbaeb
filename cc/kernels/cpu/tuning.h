// Defines the tuning parameters of the CPU engine: the constants that were
// measured rather than derived. None of them changes a bit of any result except
// those of `Blocking`, which fix the order of sums and so must not depend on
// the machine.
//
// The measurements are in docs/notes/gemm.md and docs/notes/step_loop.md.

#ifndef BLOCKRNN_KERNELS_CPU_TUNING_H_
#define BLOCKRNN_KERNELS_CPU_TUNING_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cc/kernels/cpu/cache_size.h"

namespace blockrnn::cpu {

// What fixes the order of sums: the same on every machine.
struct Blocking {
  // Up to so many rows a GEMM streams its weights, above it packs them.
  static constexpr int64_t kStreamRows = 16;
  // Depth to which a group of panels is packed at a time. A group of 4 takes
  // 256 KB, which leaves room in a second-level cache of 1 MB (or just fits one
  // of 512 KB) beside the rows of A.
  static constexpr int64_t kPackedDepth = 256;
  // A GEMM whose sums have at most so many terms packs float32 even where the
  // processor multiplies pairs of bfloat16, to which the operands would be
  // rounded. The fewer the terms, the more often the largest of them cancel,
  // and the rounding of a gradient is then several units in the last place of
  // their sum. With so few terms, reading and writing take most of the time.
  static constexpr int64_t kUnroundedDepth = 16;
  // A loop of fewer steps may stream its weights if its rows are few: packing
  // them reads and writes what a step reads.
  static constexpr int64_t kStepsToPack = 12;
  // Rows of a step from which on the input GEMM may be fused into it, on some
  // number of threads: the sums are then those of packed weights.
  static constexpr int64_t kRowsToFuseInput = 3;
  static constexpr int64_t kRowsToFuseInputFewSteps = 16;
  // A block of steps is closed once it has so many rows (steps × batch), or so
  // many elements of the widest of x, h and cs. Enough that a GEMM over the
  // block runs at full speed and that barriers are far apart; few enough that
  // what a block hands to its steps mostly stays in the last-level cache.
  static constexpr int64_t kRowsPerBlock = 480;
  static constexpr int64_t kElementsPerBlock = 1 << 16;
};

struct Tuning {
  // Adjacent panels packed together: a row of weights is then read in runs of
  // 256 bytes and more. With single panels, 64 bytes from each row, packing
  // wide weights is bound by address translation.
  static constexpr int64_t kPanelsPerGroup = 4;
  // Size of a group of panels that are packed just before the GEMM that reads
  // them, at least one: a quarter of a second-level cache of 1 MB.
  static constexpr int64_t kBytesPackedAtOnce = 256 * 1024;
  // Rows of all steps of a loop together, up to which weights are streamed that
  // have the same bits packed.
  static constexpr int64_t kMostRowsToStream = 24;
  // Up to so many terms, sums that are only stored are stored from registers.
  static constexpr int64_t kShallowDepth = 16;
  // Rows that share a packing: their sums, 1 KB each, stay in the second-level
  // cache as well.
  static constexpr int64_t kRowsPerPacking = 264;
  // Elements that a task of a pointwise pass takes at least; below, waking a
  // worker costs more than the work.
  static constexpr int64_t kElementsPerTask = 16 * 1024;
  // Multiply-adds of a GEMM that are worth one more worker, whose waking costs
  // a few tens of microseconds; reading a weight or writing a result costs as
  // much as `kMacsPerElement` of them, which counts where rows are few.
  static constexpr double kMacsPerWorker = 1e6;
  static constexpr double kMacsPerElement = 4;
  // The same for a loop over steps, where the first read of a weight counts.
  static constexpr double kMacsPerLoopWorker = 1e6;
  static constexpr double kMacsPerAwakeLoopWorker = 0.4e6;
  static constexpr double kMacsPerFirstRead = 1.5;
  // Multiply-adds of a single step, its input included, from which on workers
  // that sleep are woken.
  static constexpr double kMacsToShareSingleStep = 2e6;
  // A step is split by units from so many multiply-adds per stage on: a barrier
  // takes half a microsecond, which is 25,000 of them at full speed. With rows
  // enough for a tile per worker it pays only where the weights are large.
  static constexpr double kMacsPerBarrier = 60e3;
  static constexpr double kMacsPerBarrierWithTiles = 2e6;
  // Rows per worker from which on a loop is split by rows, and those that fill
  // a tile or so.
  static constexpr int64_t kRowsPerWorker = 12;
  static constexpr int64_t kRowsPerWorkerTile = 4;

  // Rows that hide the time that both weights take to come from memory, with
  // one sequence running and with several.
  static constexpr int64_t kRowsThatHideMemory = 24;
  static constexpr int64_t kRowsThatHideMemoryConcurrent = 32;
  // Bytes of w_x and w_h together that each row of a step hides.
  static constexpr double kBytesHiddenPerRow = 2 << 20;
  // Rows from which on the directions of a layer always run concurrently.
  static constexpr int64_t kRowsForConcurrentDirections = 16;

  // Elements of a row of x per row of a step, above which weights that come
  // from a far cache are read for a block of steps at once.
  static constexpr int64_t kInputPerRowToHoist = 2;

  // Weights of so many bytes come to a core as fast as few rows need them.
  double near_cache = std::numeric_limits<double>::infinity();
  // The last-level cache that a core can count on.
  double last_level_cache = 32 << 20;
  // w_x and w_h together may be so large for the input GEMM to be fused: what
  // still comes from the last-level cache in every step.
  double FusedWeightBytes() const { return last_level_cache * 5 / 8; }
  // The recurrent weights of both directions of a layer may be so large
  // together for the directions to run concurrently with few rows.
  double ConcurrentWeightBytes() const { return last_level_cache / 2; }
};

// Whether a core gets far fewer bytes per cycle from the last-level cache than
// few rows need. Of Intel's servers 14, less than half of what AMD's give:
// measured. On AArch64 it is assumed: the cores of servers there have
// second-level caches of their own, too, and share the last level over a mesh.
inline bool HasFarLastLevelCache() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// The parameters of this machine. The cache's size is capped at the 32 MB that
// the rules were measured with: virtual machines report the sum of a package's
// caches, of which a core sees one.
inline const Tuning& MachineTuning() {
  static const Tuning tuning = [] {
    Tuning of_machine;
    if (const double bytes = CacheSize(3); bytes > 0) {
      of_machine.last_level_cache =
          std::min(bytes, of_machine.last_level_cache);
    }
    if (HasFarLastLevelCache()) {
      if (const double bytes = CacheSize(2); bytes > 0) {
        of_machine.near_cache = bytes;
      }
    }
    return of_machine;
  }();
  return tuning;
}

// Whether the two directions of a layer, each with so many bytes of recurrent
// weights, may run concurrently.
//
// With few rows a step waits for its recurrent weights. Those of both
// directions together may be more than the last-level cache holds, and then
// come from memory in every step, where one direction's stay. Those of one
// direction may be more than is near to one core, where the cores that share a
// direction have a part each. Measured; see docs/adr/0009-threads.md.
inline bool DirectionsFitConcurrently(int64_t batch, double weight_bytes) {
  const Tuning& tuning = MachineTuning();
  return batch > Tuning::kRowsForConcurrentDirections ||
         (weight_bytes <= tuning.near_cache &&
          2 * weight_bytes <= tuning.ConcurrentWeightBytes());
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_TUNING_H_
