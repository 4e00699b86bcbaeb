// Implements the input GEMM x · w_x + b, which every step of a sequence adds to
// its GEMM with the state. There are two strategies, with the same bits:
//
// - hoisted: one GEMM for a block of steps, whose sums are stored in panel form
//   for the steps to begin with. Each weight is read once for many rows.
// - fused: the tile that a step multiplies with the state begins with its rows
//   of x, and nothing is stored. Saves memory and passes over it, but a step
//   reads w_x as it reads w_h; good for all but the fewest rows.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"

namespace blockrnn::cpu {

// In a fused step, the input GEMM that a tile begins with puts the last gate's
// share of all its rows into one buffer. Streamed weights, those of few rows
// and steps, begin a tile row by row, and each row would overwrite it.
static_assert(Blocking::kRowsToFuseInputFewSteps > internal::kStreamTileRows);

// Whether the input GEMM is fused on some number of threads.
inline bool MayFuseInput(int64_t steps, int64_t rows) {
  return rows >= (steps < Blocking::kStepsToPack
                      ? Blocking::kRowsToFuseInputFewSteps
                      : Blocking::kRowsToFuseInput);
}

// Whether to fuse it in this call.
template <class T>
bool FusesInput(const StepLoop& loop, const SequenceRows& sequence,
                StepSplit split, const Executor& executor) {
  // Of all steps: rows may end before the longest does.
  const int64_t mean_rows =
      sequence.TotalRows() / std::max<int64_t>(sequence.steps(), 1);
  const int64_t workers =
      split == StepSplit::kRows ? executor.num_threads() : 1;
  const int64_t rows = mean_rows / workers;
  if (!MayFuseInput(sequence.steps(), rows)) return false;
  const int concurrent = executor.concurrent_sequences();
  if (rows >= (concurrent == 1 ? Tuning::kRowsThatHideMemory
                               : Tuning::kRowsThatHideMemoryConcurrent)) {
    return true;
  }
  const double weights = loop.macs / loop.rows + loop.input_weights;
  return weights * kPackedBytes<T> * concurrent <=
         std::min(Tuning::kBytesHiddenPerRow * rows,
                  MachineTuning().FusedWeightBytes());
}

// The weights of the input, and the biases.
template <class T, int kGates>
struct InputWeights {
  const T* w = nullptr;    // [I, gates · H]
  int64_t ldw = 0;         // from row to row of w
  bool by_unit = false;    // w is transposed
  const T* b = nullptr;    // [gates · H]
  const T* b_h = nullptr;  // [gates · H], the recurrent bias; nullptr: zeros
  int64_t column = 0;      // of the first gate, with projected_input
};

// With kLastApart the last gate's share is not added to its GEMM with the
// state, which begins with b_h alone; the epilogue gets x · w_x + b beside it.
template <class T, int kGates, bool kLastApart = false>
class InputGemm {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;
  static constexpr int64_t kWidth = kPanelWidth<C, kGates>;
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;

  // `fused`: see above. Scratch::ok() reports whether there was memory.
  InputGemm(const Executor& executor, Scratch* scratch,
            const SequenceShape& shape, const SequenceRows& rows,
            const InputWeights<T, kGates>& weights, bool fused)
      : executor_(executor),
        gemm_scratch_(executor),
        input_(shape.input),
        units_(shape.units),
        panels_(CeilDiv(shape.units, kUnits)),
        weights_(weights),
        fused_(fused && shape.HasInputWeights()),
        may_fuse_(MayFuseInput(rows.steps(), shape.batch)),
        shape_(shape),
        block_(rows, scratch),
        bias_(scratch->Array<C>(panels_ * kStartWidth)),
        wide_x_(WideRowsScratch<T>(scratch, rows.MaxRowsInBlock(), input_)),
        start_(fused_ ? nullptr
                      : scratch->Array<C>(rows.MaxRowsInBlock() * panels_ *
                                          kStartWidth)),
        w_x_(executor, scratch, View(), GateOffsets<kGates>(units_).at,
             fused_ ? input_ : 0, units_) {
    if (bias_ != nullptr) PackBias();
  }

  // Prepares a block of steps.
  Status Enter(const StepBlock& block, const T* x) {
    EnterRows(block, x);
    if (fused_) return Status::kOk;
    return RunGemms(executor_, &gemm_scratch_, Hoisted());
  }

  // The same in two parts, for cells with more than one input GEMM: EnterRows,
  // then RunGemms of Hoisted(), which is empty where there is nothing to hoist.
  void EnterRows(const StepBlock& block, const T* x) {
    block_.Enter(block);
    x_ = WideRows(executor_, block_.View(x, input_), block.rows, input_,
                  wide_x_);
    if (!shape_.HasInputWeights()) StartWithInput();
  }

  auto Hoisted() {
    Gemm<T, kGates> gemm;
    const bool hoisted = !fused_ && shape_.HasInputWeights();
    gemm.rows = hoisted ? block_.block().rows : 0;
    gemm.units = units_;
    const GateOffsets<kGates> offsets(units_);
    std::copy(offsets.at, offsets.at + kGates, gemm.gate_offset);
    gemm.num_parts = 1;
    gemm.parts[0] = {x_, input_, View()};
    gemm.bits_of_packed = may_fuse_;
    const auto store = [this](const GateTile<C>& tile) {
      tile.ForEachRow([&](const GateRun<C>& run) { StoreStart(run); });
    };
    return GemmWithEpilogue{gemm, store};
  }

  // x · w_x + b + state · w_h for some rows of a step and panels, then
  // epilogue(tile, the last gate's x · w_x + b for the tile's rows; only with
  // kLastApart).
  template <class Epilogue>
  void Multiply(int64_t step, const GateRows<C>& state,
                const PackedWeights<T, kGates>& w_h, Range panels, Range rows,
                const Epilogue& epilogue) const {
    const int64_t first = block_.FirstRow(step);
    if (!fused_) {
      MultiplyPacked(
          state, w_h, panels, rows, BeginWithStart{*this, first},
          [&](const GateTile<C>& tile) {
            const C* start =
                Start(first + tile.first.row, tile.first.unit / kUnits);
            epilogue(tile, RowView<C>{start + kWidth, panels_ * kStartWidth});
          });
      return;
    }
    alignas(64) C apart[kTileRows * kUnits];
    const BeginWithInputGemm begin = {*this, x_.FromRow(first), apart};
    MultiplyPacked(state, w_h, panels, rows, begin,
                   [&](const GateTile<C>& tile) {
                     epilogue(tile, RowView<C>{apart, kUnits});
                   });
  }

 private:
  // A panel of what the GEMM with the state begins with, then the last gate's
  // share with kLastApart.
  static constexpr int64_t kStartWidth = kWidth + (kLastApart ? kUnits : 0);
  static constexpr int kVectors = kPanelVectors<kGates>;

  // Hoisted: the stored sums of the rows of a step from `first` on.
  struct BeginWithStart {
    const InputGemm& gemm;
    int64_t first;

    template <class Place, class Tile>
    EIGEN_ALWAYS_INLINE void operator()(Place place, Tile* tile) const {
      tile->Load(gemm.Start(first + place.row, place.panel),
                 gemm.panels_ * kStartWidth);
    }
  };

  // Fused: the GEMM with a step's rows of x. Puts the last gate's share into
  // `apart` with kLastApart.
  struct BeginWithInputGemm {
    const InputGemm& gemm;
    RowView<C> x;
    C* apart;

    template <class Place, class Tile>
    EIGEN_ALWAYS_INLINE void operator()(Place place, Tile* tile) const {
      tile->Clear();
      MultiplyPanel<kGates, Place::kUsed>(
          internal::RowsFrom<Tile::kNumRows>(x, place.row), gemm.input_,
          gemm.w_x_.Panel(place.panel), tile);
      AddBias(gemm.bias_ + place.panel * kStartWidth, tile, apart);
    }
  };

  WeightView<T> View() const {
    return {weights_.w, weights_.ldw, weights_.by_unit};
  }
  C* Start(int64_t row, int64_t panel) const {
    return start_ + (row * panels_ + panel) * kStartWidth;
  }
  static bool Apart(int gate) { return kLastApart && gate == kGates - 1; }

  // What is added to the input GEMM, then what the GEMM with the state begins
  // with for the last gate with kLastApart.
  void PackBias() {
    std::fill(bias_, bias_ + panels_ * kStartWidth, C(0));
    for (int gate = 0; gate < kGates; ++gate) {
      for (int64_t unit = 0; unit < units_; ++unit) {
        C* panel = bias_ + unit / kUnits * kStartWidth;
        C* b = panel + gate * kUnits + unit % kUnits;
        *b = static_cast<C>(weights_.b[gate * units_ + unit]);
        if (weights_.b_h == nullptr) continue;
        const C b_h = static_cast<C>(weights_.b_h[gate * units_ + unit]);
        if (Apart(gate)) {
          panel[kWidth + unit % kUnits] = b_h;
        } else {
          *b += b_h;
        }
      }
    }
  }

  // Stores the sums of the input GEMM, with the bias, for the steps.
  void StoreStart(const GateRun<C>& run) const {
    for (int gate = 0; gate < kGates; ++gate) {
      const C* sums = run.gates + gate * run.gate_stride;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const int64_t panel = (run.unit + j) / kUnits;
        const int64_t lane = (run.unit + j) % kUnits;
        C* start = Start(run.row, panel);
        const C* bias = bias_ + panel * kStartWidth;
        const int64_t at = gate * kUnits + lane;
        const V sum = Load<C>(sums + j, lanes) + Load<C>(bias + at);
        if (Apart(gate)) {
          Store(start + kWidth + lane, sum);
          Store(start + at, Load<C>(bias + kWidth + lane));
        } else {
          Store(start + at, sum);
        }
      });
    }
  }

  // The same in a tile.
  template <class Tile>
  static EIGEN_ALWAYS_INLINE void AddBias(const C* bias, Tile* tile, C* apart) {
    constexpr int kRows = std::decay_t<Tile>::kNumRows;
    BLOCKRNN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V b = Load<C>(bias + v * V::kSize);
      BLOCKRNN_UNROLL
      for (int r = 0; r < kRows; ++r) tile->sum[r][v] = tile->sum[r][v] + b;
    }
    if constexpr (kLastApart) {
      constexpr int kFirst = (kGates - 1) * kGateVectors<kGates>;
      BLOCKRNN_UNROLL
      for (int v = 0; v < kGateVectors<kGates>; ++v) {
        const V b_h = Load<C>(bias + kWidth + v * V::kSize);
        BLOCKRNN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          Store(apart + r * kUnits + v * V::kSize, tile->sum[r][kFirst + v]);
          tile->sum[r][kFirst + v] = b_h;
        }
      }
    }
  }

  // Without weights every gate's share is in x itself, or is x itself.
  void StartWithInput() {
    const int64_t rows = block_.block().rows;
    const int64_t stride = shape_.projected_input ? units_ : 0;
    const int64_t column = shape_.projected_input ? weights_.column : 0;
    ParallelForRows(
        executor_, rows, kGates * units_, [&](int64_t begin, int64_t end) {
          for (int64_t m = begin; m < end; ++m) {
            StoreStart(GateRun<C>{m, 0, units_, x_.Row(m) + column, stride});
          }
        });
  }

  const Executor& executor_;
  GemmScratch<T> gemm_scratch_;
  const int64_t input_;
  const int64_t units_;
  const int64_t panels_;
  const InputWeights<T, kGates> weights_;
  const bool fused_;
  const bool may_fuse_;  // on some number of threads
  const SequenceShape& shape_;
  BlockRows block_;
  C* bias_;
  C* wide_x_;
  C* start_;
  const PackedWeights<T, kGates> w_x_;
  RowView<C> x_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_
