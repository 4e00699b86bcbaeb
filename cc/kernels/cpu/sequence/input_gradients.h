// Implements the gradients of what a step reads: of the state before it, and of
// x.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GRADIENTS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GRADIENTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// w_hᵀ, through which the gradient of a state comes:
//   Σ over gates of factors ∘ (d · w_hᵀ), d[rows, gates · H]
// without factors in one GEMM.
template <class T, int kGates>
class StateGradWeights {
 public:
  using C = ComputeType<T>;

  // w_t: of depth gates · H, and of factors.width() units.
  StateGradWeights(const Executor& executor, Scratch* scratch,
                   const SequenceRows& rows, const WeightView<T>& w_t,
                   int64_t units, const StateFactors<T>& factors,
                   WeightUses uses)
      : rows_(rows), factors_(factors), units_(units) {
    const int64_t width = factors.width();
    if (!factors) {
      gates_[0].emplace(PanelMemory(executor, scratch), w_t, kGates * units,
                        width, uses);
      return;
    }
    for (int gate = 0; gate < kGates; ++gate) {
      gates_[gate].emplace(PanelMemory(executor, scratch),
                           w_t.From(gate * units), units, width);
    }
  }

  // The gradient that comes from the next step, whose d this is, then
  // epilogue(GateTile); rows without a next step get zeros.
  template <class Epilogue>
  void MultiplyNextStep(int64_t step, const C* d, Share share, Range rows,
                        const Epilogue& epilogue) const {
    const Range panels = share.RangeOf(gates_[0]->panels());
    const Range active = rows_.ActiveRange(step + 1, rows);
    if (!factors_) {
      MultiplyPacked({{d, kGates * units_}}, *gates_[0], panels, active,
                     share.piece, BeginAtZero(), epilogue);
    } else {
      MultiplyEachGate(d, panels, active, epilogue);
    }
    ZeroGemm(*gates_[0], panels, {std::max(active.end, rows.begin), rows.end},
             epilogue);
  }

  // The gradient of the initial state, which comes from the first step; d is
  // its.
  template <class Epilogue>
  void MultiplyFirstStep(const Executor& executor, const C* d,
                         const Epilogue& epilogue) const {
    const int64_t batch = rows_.batch();
    const auto depth = static_cast<double>(kGates * units_);
    const auto width = static_cast<double>(factors_.width());
    const auto rows = static_cast<double>(batch);
    const int pieces = std::min(
        WorkersWorth(executor, rows * depth * width, (rows + depth) * width),
        MostStepWorkers(executor));
    const bool over_rows =
        batch >= pieces * kTileRows && gates_[0]->use() != WeightUse::kOnce;
    ParallelFor(executor, pieces, pieces, [&](int, int64_t piece) {
      const Share share = {static_cast<int>(piece), pieces};
      MultiplyNextStep(-1, d, over_rows ? Share() : share,
                       (over_rows ? share : Share()).RangeOf(batch), epilogue);
    });
  }

 private:
  static constexpr int64_t kUnits = kPanelUnits<C, 1>;

  template <class Epilogue>
  void MultiplyEachGate(const C* d, Range panels, Range rows,
                        const Epilogue& epilogue) const {
    alignas(64) C share[kTileRows * kUnits];
    alignas(64) C sums[kTileRows * kUnits];
    ForEachTile(panels, rows, [&](int64_t panel, int64_t row, int64_t size) {
      const int64_t unit = panel * kUnits;
      const int64_t count = std::min(kUnits, factors_.width() - unit);
      ZeroRow(kTileRows * kUnits, sums);
      for (int gate = 0; gate < kGates; ++gate) {
        const GateRows<C> d_gate = {{d + gate * units_, kGates * units_}};
        internal::MultiplyTile<1>(
            d_gate, *gates_[gate],
            gates_[gate]->Panels(panels, rows, true, 0)[panel], panel, row,
            size, BeginAtZero(), share);
        for (int64_t r = 0; r < size; ++r) {
          factors_.MultiplyAdd(gate, row + r, unit, count, share + r * kUnits,
                               sums + r * kUnits);
        }
      }
      epilogue(GateTile<C>{size, kUnits, {row, unit, count, sums, kUnits}});
    });
  }

  const SequenceRows& rows_;
  const StateFactors<T>& factors_;
  const int64_t units_;  // H
  std::optional<PackedWeights<T, 1>> gates_[kGates];
};

// Adjacent gates' gradients of pre-activations of a block, as the gradients of
// x and of its weights read them.
template <class T>
struct InputGradPart {
  using C = ComputeType<T>;

  const C* dz = nullptr;  // [block rows, gates · H]
  int64_t ld = 0;
  int gates = 0;
  WeightView<T> w_x_t;    // of depth gates · H; read only with input weights
  C* w_x_grad = nullptr;  // [I, …], gates · H columns of it; or nullptr
  int64_t ld_grad = 0;
  C* b_grad = nullptr;  // [gates · H]; or nullptr
};

// That of all gates of a cell with one w_x.
template <class T>
InputGradPart<T> InputGradOf(const SequenceShape& shape, const T* w_x,
                             const ComputeType<T>* dz, int gates,
                             ComputeType<T>* w_x_grad) {
  const int64_t width = gates * shape.units;
  return {dz,       width,
          gates,    WeightsOf(shape, w_x, shape.input, width).Transpose(),
          w_x_grad, width};
}

// x_grad without w_x, from the gates' gradients in the order of their layout:
// concatenated with projected_input, their sum with skip_input.
template <class T, std::size_t kParts>
void StoreInputGrad(const Executor& executor, const SequenceShape& shape,
                    const BlockRows& block,
                    const std::array<InputGradPart<T>, kParts>& parts,
                    T* x_grad) {
  using C = ComputeType<T>;
  if (shape.HasInputWeights()) return;
  const int64_t units = shape.units;
  int64_t gates = 0;
  for (const InputGradPart<T>& part : parts) gates += part.gates;
  const auto for_each_gate = [&](int64_t m, const auto& f) {
    for (const InputGradPart<T>& part : parts) {
      for (int gate = 0; gate < part.gates; ++gate) {
        f(part.dz + m * part.ld + gate * units);
      }
    }
  };
  ParallelForEachRow(
      executor, block.block().rows, units * gates, [&](int64_t m) {
        T* out = x_grad + block.MemoryRow(m) * shape.input;
        if (shape.projected_input) {
          for_each_gate(m, [&](const C* gate) {
            CopyRow(gate, units, out);
            out += units;
          });
          return;
        }
        ForEachVector<C>(units, [&](int64_t j, auto lanes) {
          Vec<C> sum(0);
          for_each_gate(
              m, [&](const C* gate) { sum = sum + Load<C>(gate + j, lanes); });
          Store(out + j, sum, lanes);
        });
      });
}

// The GEMM of x_grad with w_x.
template <class T, std::size_t kParts>
auto InputGradGemm(const SequenceShape& shape, const BlockRows& block,
                   const std::array<InputGradPart<T>, kParts>& parts,
                   T* x_grad) {
  using C = ComputeType<T>;
  Gemm<T, 1> gemm;
  gemm.num_parts = kParts;
  if (shape.HasInputWeights()) {
    gemm.rows = block.block().rows;
    gemm.units = shape.input;
    for (std::size_t n = 0; n < kParts; ++n) {
      const InputGradPart<T>& part = parts[n];
      gemm.parts[n] = {
          {part.dz, part.ld}, part.gates * shape.units, part.w_x_t};
    }
  }
  const auto store =
      RowByRow([&block, x_grad, width = shape.input](const GateRun<C>& run) {
        CopyRow(run.gates, run.count,
                x_grad + block.MemoryRow(run.row) * width + run.unit);
      });
  return GemmWithEpilogue{gemm, store};
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_GRADIENTS_H_
