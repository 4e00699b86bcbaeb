// Implements the input GEMM x · w_x + b, which every step of a sequence adds to
// its GEMM with the state. There are two strategies, with the same bits:
//
// - hoisted: one GEMM for a block of steps, whose sums are stored in panel form
//   for the steps to begin with. Each weight is read once for many rows.
// - fused: the tile that a step multiplies with the state begins with its rows
//   of x, and nothing is stored. Saves memory and passes over it, but a step
//   reads w_x as it reads w_h; good for all but the fewest rows, and for a call
//   of a single step.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/sequence/input_panels.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// With kLastApart the last gate's share is not added to its GEMM with the
// state, which begins with b_h alone; the epilogue gets x · w_x + b beside it.
template <class T, int kGates, bool kLastApart = false,
          class P = PanelElement<T>>
class InputGemm {
 public:
  using C = ComputeType<T>;
  using V = Vec<C>;
  using Panels = InputPanels<T, kGates, kLastApart, P>;
  static constexpr int64_t kWidth = Panels::kWidth;
  static constexpr int64_t kUnits = Panels::kUnits;

  // `packed` must outlive this object. Context: ForwardContext. `depth`: of the
  // GEMM with the state. Scratch::ok() reports whether there was memory.
  template <class Context>
  InputGemm(const Context& context, const Panels& packed, int64_t depth)
      : executor_(context.executor),
        gemm_scratch_(context.executor),
        shape_(context.rows.shape()),
        input_(shape_.input),
        units_(shape_.units),
        panels_(CeilDiv(units_, kUnits)),
        packed_(packed),
        fused_(context.fuses_input && shape_.HasInputWeights()),
        may_be_fused_(context.input_may_be_fused),
        frozen_(context.panels->frozen() && shape_.HasInputWeights()),
        block_(context.rows, context.scratch),
        wide_x_(WideRowsScratch<T>(context.scratch,
                                   context.rows.MaxRowsInBlock(), input_)),
        start_(fused_ ? nullptr
                      : context.scratch->template Array<C>(
                            context.rows.MaxRowsInBlock() * panels_ *
                            kStartWidth)),
        apart_(kLastApart && fused_ && packed.w_x.use() == WeightUse::kStreamed
                   ? context.scratch->template Array<C>(shape_.batch * units_)
                   : nullptr),
        x_rows_(context.scratch, 1, context.rows.MaxRowsInBlock(),
                frozen_ ? input_ : 0),
        state_rows_(context.scratch, MostStepWorkers(executor_), shape_.batch,
                    depth) {}

  // Prepares a block of steps.
  Status BeginBlock(const StepBlock& block, const T* x) {
    SetRows(block, x);
    const Status status = MultiplyFrozen();
    if (status != Status::kOk) return status;
    return RunGemms(executor_, &gemm_scratch_, Hoisted());
  }

  // The same in parts, for cells with more than one input GEMM: SetRows, then
  // MultiplyFrozen and RunGemms of Hoisted(), of which one does nothing, or
  // both where there is nothing to hoist.
  void SetRows(const StepBlock& block, const T* x) {
    block_.Set(block);
    x_ = WideRows(executor_, block_.View(x, input_), block.rows, input_,
                  wide_x_);
    if (!shape_.HasInputWeights()) StartWithInput();
  }

  auto Hoisted() {
    Gemm<T, kGates> gemm;
    const bool hoisted =
        !fused_ && shape_.HasInputWeights() && !MultipliesFrozen();
    gemm.rows = hoisted ? block_.block().rows : 0;
    gemm.units = units_;
    gemm.num_parts = 1;
    gemm.parts[0] = {x_, input_, packed_.w_x.view()};
    gemm.bits_of_packed = may_be_fused_;
    gemm.bits_of_rows = block_.block().rows_of_whole;
    const auto store =
        RowByRow([this](const GateRun<C>& run) { StoreStart(run); });
    return GemmWithEpilogue{gemm, store};
  }

  // The hoisted GEMM with frozen weights.
  Status MultiplyFrozen() {
    if (fused_ || !MultipliesFrozen() || panels_ == 0) return Status::kOk;
    const int64_t rows = block_.block().rows;
    const GateRows<C> x = {x_};
    const OperandRows<T, P> operand = x_rows_(x, {0, 0}, 0);
    if constexpr (std::is_same_v<P, Int8Quad>) {
      // A row without values has a scale as well.
      ParallelForRows(executor_, rows, std::max<int64_t>(input_, 1),
                      [&](int64_t begin, int64_t end) {
                        x_rows_(x, {begin, end}, 0);
                      });
    }
    const auto depth = static_cast<double>(input_);
    const auto width = static_cast<double>(kGates * units_);
    const auto num_rows = static_cast<double>(rows);
    const int workers = WorkersWorth(executor_, num_rows * depth * width,
                                     (depth + num_rows) * width);
    // Two tasks per worker, so that others can take work from a slow one.
    const int64_t pieces = workers > 1 ? 2 * workers : 1;
    const int64_t panel_pieces = std::min(pieces, panels_);
    const int64_t row_pieces =
        std::clamp<int64_t>(pieces / panel_pieces, 1, CeilDiv(rows, kTileRows));
    const auto store =
        RowByRow([this](const GateRun<C>& run) { StoreStart(run); });
    Cancellation cancellation(executor_);
    ParallelFor(
        executor_, workers, panel_pieces * row_pieces, [&](int, int64_t task) {
          if (cancellation.Seen()) return;
          const auto part = [](int64_t piece, int64_t of) {
            return Share{static_cast<int>(piece), static_cast<int>(of)};
          };
          MultiplyPacked(operand, packed_.w_x,
                         part(task / row_pieces, panel_pieces).RangeOf(panels_),
                         part(task % row_pieces, row_pieces).RangeOf(rows),
                         /*worker=*/0, BeginAtZero(), store);
        });
    return cancellation.status();
  }

  // Where it is hoisted: what a row of the block begins with, panel after
  // panel, [panels, kWidth]; and the first row of a step. To be read and
  // changed between BeginBlock and the next one.
  C* StartRow(int64_t row) const {
    static_assert(!kLastApart);
    return Start(row, 0);
  }
  int64_t FirstRow(int64_t step) const { return block_.FirstRow(step); }

  // x · w_x + b + state · w_h for some rows of a step and panels, then
  // epilogue(tile, the last gate's x · w_x + b for the tile's rows; only with
  // kLastApart).
  template <class Epilogue>
  void Multiply(int64_t step, const GateRows<C>& state,
                const PackedWeights<T, kGates, P>& w_h, Share share, Range rows,
                const Epilogue& epilogue) const {
    if (rows.begin >= rows.end) return;
    const int64_t first = block_.FirstRow(step);
    const Range panels = share.RangeOf(panels_);
    const OperandRows<T, P> operand = state_rows_(state, rows, share.piece);
    if (!fused_) {
      MultiplyPacked(
          operand, w_h, panels, rows, share.piece, BeginWithStart{*this, first},
          [&](const GateTile<C>& tile) {
            const C* start =
                Start(first + tile.first.row, tile.first.unit / kUnits);
            epilogue(tile, RowView<C>{start + kWidth, panels_ * kStartWidth});
          });
      return;
    }
    if constexpr (!std::is_same_v<P, Int8Quad>) {
      const RowView<C> x = x_.FromRow(first);
      if (w_h.use() == WeightUse::kStreamed) {
        internal::MultiplyStreamed<C, kGates>(
            operand.rows, w_h.view(), w_h.depth(), units_, panels, rows,
            [&](const auto& sums) { StreamInput(x, sums); },
            [&](const GateTile<C>& tile) {
              epilogue(tile, RowView<C>{Apart(tile.first.row, tile.first.unit),
                                        units_});
            });
        return;
      }
      alignas(64) C apart[kTileRows * kUnits];
      const auto finish = [&](const GateTile<C>& tile) {
        epilogue(tile, RowView<C>{apart, kUnits});
      };
      const PackedWeights<T, kGates, P>& w_x = packed_.w_x;
      const bool same_rows = !EachGateHasRows(operand);
      ForEachPacking(w_x, panels, [&](Range some) {
        const PackedPanels<T, kGates, P> packed_x =
            w_x.Panels(some, rows, same_rows, share.piece);
        const BeginWithInputGemm<false> begin = {*this, x, packed_x, apart};
        if (packed_x.in_passing == nullptr) {
          MultiplyPacked(operand, w_h, some, rows, share.piece, begin, finish);
          return;
        }
        // w_h, of the same units, is packed in passing as well.
        MultiplyPanels(
            operand, w_h, w_h.Panels(some, rows, same_rows, share.piece), some,
            rows, BeginWithInputGemm<true>{*this, x, packed_x, apart}, begin,
            finish);
      });
    }
  }

 private:
  static constexpr int64_t kStartWidth = Panels::kStartWidth;
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

  // Fused: the GEMM with a step's rows of x, which with kPacks packs the panel
  // in passing. Puts the last gate's share into `apart` with kLastApart.
  template <bool kPacks>
  struct BeginWithInputGemm {
    const InputGemm& gemm;
    RowView<C> x;
    PackedPanels<T, kGates, P> w_x;
    C* apart;

    template <class Place, class Tile>
    EIGEN_ALWAYS_INLINE void operator()(Place place, Tile* tile) const {
      const auto rows = internal::RowsFrom<Tile::kNumRows>(x, place.row);
      tile->Clear();
      if constexpr (kPacks) {
        MultiplyAndPack<kGates>(
            rows, gemm.input_,
            gemm.packed_.w_x.view().FromColumn(place.panel * kUnits),
            gemm.units_, w_x.in_passing, tile);
      } else {
        MultiplyPanel<kGates, Place::kUsed>(rows, gemm.input_, w_x[place.panel],
                                            tile);
      }
      AddBias(gemm.packed_.bias + place.panel * kStartWidth, tile, apart);
    }
  };

  // The same for streamed weights, with the last gate's share in apart_.
  EIGEN_DONT_INLINE void StreamInput(
      const RowView<C>& x, const internal::StreamedSums<C, kGates>& to) const {
    for (int gate = 0; gate < kGates; ++gate) {
      const bool apart = Panels::Apart(gate);
      C* const first = apart ? Apart(to.rows.begin, to.unit) : to.Gate(gate);
      const int64_t stride = apart ? units_ : to.stride();
      for (int64_t r = 0; r < to.num_rows(); ++r) {
        ZeroRow(to.count, first + r * stride);
      }
      to.Multiply(x, packed_.w_x.view(), input_, units_, gate, first, stride);
      for (int64_t r = 0; r < to.num_rows(); ++r) {
        ForEachVector<C>(to.count, [&](int64_t j, auto lanes) {
          const int64_t unit = to.unit + j;
          const C* const bias = packed_.bias + unit / kUnits * kStartWidth;
          const int64_t at = gate * kUnits + unit % kUnits;
          C* const sum = first + r * stride + j;
          Store(sum, Load<C>(sum, lanes) + Load<C>(bias + at), lanes);
          if (apart) {
            Store(to.Gate(gate) + r * to.stride() + j,
                  Load<C>(bias + kWidth + unit % kUnits), lanes);
          }
        });
      }
    }
  }

  C* Start(int64_t row, int64_t panel) const {
    return start_ + (row * panels_ + panel) * kStartWidth;
  }
  // Fused and streamed: the last gate's share, with kLastApart.
  C* Apart(int64_t row, int64_t unit) const {
    return kLastApart ? apart_ + row * units_ + unit : nullptr;
  }

  // Whether the hoisted GEMM reads the packed w_x. Not where its bits differ
  // from those of the GEMM of weights that are not frozen: where it rounds
  // operands to pairs of bfloat16 and that does not, and where that streams
  // transposed weights.
  bool MultipliesFrozen() const {
    if (std::is_same_v<P, PanelElement<T>> && packed_.weights.w.transposed &&
        !may_be_fused_ && block_.block().rows <= Blocking::kStreamRows) {
      return false;
    }
    if constexpr (std::is_same_v<P, PanelElement<T>> &&
                  !std::is_same_v<typename Elements<P>::Operand, C>) {
      return frozen_ &&
             (may_be_fused_ || (block_.block().rows > Blocking::kStreamRows &&
                                input_ > Blocking::kUnroundedDepth));
    }
    return frozen_;
  }

  // Stores the sums of the input GEMM, with the bias, for the steps.
  void StoreStart(const GateRun<C>& run) const {
    for (int gate = 0; gate < kGates; ++gate) {
      const C* sums = run.gates + gate * run.gate_stride;
      ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
        const int64_t panel = (run.unit + j) / kUnits;
        const int64_t lane = (run.unit + j) % kUnits;
        C* start = Start(run.row, panel);
        const C* bias = packed_.bias + panel * kStartWidth;
        const int64_t at = gate * kUnits + lane;
        const V sum = Load<C>(sums + j, lanes) + Load<C>(bias + at);
        if (Panels::Apart(gate)) {
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
    const int64_t column = shape_.projected_input ? packed_.weights.column : 0;
    ParallelForRows(
        executor_, rows, kGates * units_, [&](int64_t begin, int64_t end) {
          for (int64_t m = begin; m < end; ++m) {
            StoreStart(GateRun<C>{m, 0, units_, x_.Row(m) + column, stride});
          }
        });
  }

  const Executor& executor_;
  GemmScratch<T> gemm_scratch_;
  const SequenceShape& shape_;
  const int64_t input_;
  const int64_t units_;
  const int64_t panels_;
  const Panels& packed_;
  const bool fused_;
  const bool may_be_fused_;  // on some number of threads
  const bool frozen_;        // w_x is there, and packed
  BlockRows block_;
  C* wide_x_;
  C* start_;
  C* const apart_;  // [B, H]
  const StepRows<T, P> x_rows_;
  const StepRows<T, P> state_rows_;
  RowView<C> x_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GEMM_H_
