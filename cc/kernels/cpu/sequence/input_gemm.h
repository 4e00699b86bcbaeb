// Owns x · w_x + b, what every step of a sequence adds to its product with the
// state. There are two ways, with the same bits:
//
// - ahead: one product for a block of steps, kept in panel form for the steps
//   to begin with. Each weight is read once for many rows.
// - within: the tile that a step multiplies with the state begins with its rows
//   of x, and nothing is kept. Saves memory and passes over it, but a step
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
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/step_loop.h"

namespace blockrnn::cpu {

// Rows of a step, for one worker, from which on x joins the step: with fewer,
// reading w_x once more costs more than keeping the sums. A loop of few steps
// wants more of them, since within it w_x is packed whole. Measured
// (docs/notes/step_loop.md).
inline constexpr int64_t kRowsToJoinStep = 3;
inline constexpr int64_t kRowsToJoinFewSteps = 16;

// Bytes of both weights together that a worker's rows do not wait for in each
// step: so many for each of them, up to those that still come from the
// last-level cache, of which sequences at once have a share each. And rows that
// are many enough not to wait for more, alone and at once. Measured likewise.
inline constexpr double kBytesPerRowToJoinStep = 2 << 20;
inline constexpr double kBytesToJoinStep = 20 << 20;
inline constexpr int64_t kRowsThatNeverWait = 24;
inline constexpr int64_t kRowsAtOnceThatNeverWait = 32;

// Within a step, the product with x that a tile begins with puts the last
// gate's share of all its rows into one buffer. Streamed weights, those of few
// rows and steps, begin a tile row by row, and each row would overwrite it.
static_assert(kRowsToJoinFewSteps > internal::kStreamTileRows);

// Whether x joins the steps of some sequence with so many of them, and rows.
inline bool MayJoinStep(int64_t steps, int64_t rows) {
  return rows >= (steps < kStepsToPack ? kRowsToJoinFewSteps : kRowsToJoinStep);
}

template <class T>
bool JoinsStep(const StepLoop& loop, const SequenceRows& sequence,
               StepSplit split, const HostInterface& host) {
  // Of all steps: rows may end before the longest does.
  const int64_t mean_rows =
      sequence.Total() / std::max<int64_t>(sequence.steps(), 1);
  const int64_t workers = split == StepSplit::kRows ? host.num_threads : 1;
  const int64_t rows = mean_rows / workers;
  if (!MayJoinStep(sequence.steps(), rows)) return false;
  const bool alone = host.sequences_at_once == 1;
  if (rows >= (alone ? kRowsThatNeverWait : kRowsAtOnceThatNeverWait)) {
    return true;
  }
  const double weights = loop.multiplies / loop.rows + loop.input_weights;
  return weights * kPackedBytes<T> * host.sequences_at_once <=
         std::min(kBytesPerRowToJoinStep * rows, kBytesToJoinStep);
}

// The weights of the input, and what is added.
template <class T, int kGates>
struct InputWeights {
  const T* w = nullptr;    // [I, gates · H]
  int64_t ldw = 0;         // from row to row of w
  bool by_unit = false;    // w is transposed
  const T* b = nullptr;    // [gates · H]
  const T* b_h = nullptr;  // [gates · H], the state's share of what is added;
                           // nullptr: zeros
  int64_t column = 0;      // of the first gate, with projected_input
};

// With kLastApart the last gate's share stays by itself: its product with the
// state begins with b_h alone, and the epilogue is given x · w_x + b as well.
template <class T, int kGates, bool kLastApart = false>
class InputProduct {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;
  static constexpr int64_t kWidth = kPanelWidth<C, kGates>;
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;

  // `within`: see above. Scratch::ok() tells whether there was memory.
  InputProduct(const HostInterface& host, Scratch* scratch,
               const SequenceShape& shape, const SequenceRows& rows,
               const InputWeights<T, kGates>& weights, bool within)
      : host_(host),
        memory_(host),
        input_(shape.input),
        units_(shape.units),
        panels_(CeilDiv(shape.units, kUnits)),
        weights_(weights),
        within_(within && shape.HasInputWeights()),
        may_join_(MayJoinStep(rows.steps(), shape.batch)),
        shape_(shape),
        block_(rows, scratch),
        bias_(scratch->Array<C>(panels_ * kStartWidth)),
        wide_x_(WideRowsScratch<T>(scratch, rows.MostRowsInBlock(), input_)),
        start_(within_ ? nullptr
                       : scratch->Array<C>(rows.MostRowsInBlock() * panels_ *
                                           kStartWidth)),
        w_x_(host, scratch, View(), GateOffsets<kGates>(units_).at,
             within_ ? input_ : 0, units_) {
    if (bias_ != nullptr) PackBias();
  }

  // Makes a block ready to be multiplied.
  Status Enter(const StepBlock& block, const T* x) {
    EnterRows(block, x);
    if (within_) return Status::kOk;
    return RunProducts(host_, &memory_, Ahead());
  }

  // The same in two parts, for whoever has more products to run: EnterRows, and
  // RunProducts of Ahead(), which with neither is empty.
  void EnterRows(const StepBlock& block, const T* x) {
    block_.Enter(block);
    x_ = WideRows(host_, block_.In(x, input_), block.rows, input_, wide_x_);
    if (!shape_.HasInputWeights()) BeginWithInput();
  }

  auto Ahead() {
    Product<T, kGates> product;
    const bool ahead = !within_ && shape_.HasInputWeights();
    product.rows = ahead ? block_.block().rows : 0;
    product.units = units_;
    const GateOffsets<kGates> offsets(units_);
    std::copy(offsets.at, offsets.at + kGates, product.gate_offset);
    product.num_parts = 1;
    product.parts[0] = {x_, input_, View()};
    product.bits_of_packed = may_join_;
    const auto keep = [this](const GateRun<C>& run) { KeepStart(run); };
    return ProductWithEpilogue{product, keep};
  }

  // x · w_x + b + state · w_h for some rows of a step and panels, then
  // epilogue(tile, last gate's share of the input for its rows). The share is
  // nothing unless it stays apart.
  template <class Epilogue>
  void Multiply(int64_t step, const GateRows<C>& state,
                const PackedWeights<T, kGates>& w_h, Range panels, Range rows,
                const Epilogue& epilogue) const {
    const int64_t first = block_.Of(step);
    if (!within_) {
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
    const BeginWithProduct begin = {*this, x_.FromRow(first), apart};
    MultiplyPacked(state, w_h, panels, rows, begin,
                   [&](const GateTile<C>& tile) {
                     epilogue(tile, RowView<C>{apart, kUnits});
                   });
  }

 private:
  // A panel of what the product with the state begins with; behind it, the last
  // gate's share that stays apart.
  static constexpr int64_t kStartWidth = kWidth + (kLastApart ? kUnits : 0);
  static constexpr int kVectors = kPanelVectors<kGates>;

  // Ahead: what was kept, the rows of a step from `first` on.
  struct BeginWithStart {
    const InputProduct& product;
    int64_t first;

    template <class Place, class Tile>
    EIGEN_ALWAYS_INLINE void operator()(Place place, Tile* tile) const {
      tile->Load(product.Start(first + place.row, place.panel),
                 product.panels_ * kStartWidth);
    }
  };

  // Within: the product with a step's rows of x. Tells what the tile's rows
  // have apart.
  struct BeginWithProduct {
    const InputProduct& product;
    RowView<C> x;
    C* apart;

    template <class Place, class Tile>
    EIGEN_ALWAYS_INLINE void operator()(Place place, Tile* tile) const {
      tile->Clear();
      MultiplyPanel<kGates, Place::kUsed>(
          internal::RowsFrom<Tile::kNumRows>(x, place.row), product.input_,
          product.w_x_.Panel(place.panel), tile);
      AddBias(product.bias_ + place.panel * kStartWidth, tile, apart);
    }
  };

  WeightView<T> View() const {
    return {weights_.w, weights_.ldw, weights_.by_unit};
  }
  C* Start(int64_t row, int64_t panel) const {
    return start_ + (row * panels_ + panel) * kStartWidth;
  }
  static bool Apart(int gate) { return kLastApart && gate == kGates - 1; }

  // What is added to the product with the input; behind it what the product
  // with the state begins with for the gate that stays apart.
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

  // Sums of the input's product, with the bias, to where steps begin.
  void KeepStart(const GateRun<C>& run) const {
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
  void BeginWithInput() {
    const int64_t rows = block_.block().rows;
    const int64_t stride = shape_.projected_input ? units_ : 0;
    const int64_t column = shape_.projected_input ? weights_.column : 0;
    ParallelForRows(
        host_, rows, kGates * units_, [&](int64_t begin, int64_t end) {
          for (int64_t m = begin; m < end; ++m) {
            KeepStart(GateRun<C>{m, 0, units_, x_.Row(m) + column, stride});
          }
        });
  }

  const HostInterface& host_;
  ProductMemory<T> memory_;
  const int64_t input_;
  const int64_t units_;
  const int64_t panels_;
  const InputWeights<T, kGates> weights_;
  const bool within_;
  const bool may_join_;  // with another number of threads
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
