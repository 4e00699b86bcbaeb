// Defines the weights of a cell with which the input GEMM and the steps
// multiply, packed, and the biases.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_PANELS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_PANELS_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/gemm/weight_use.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"

namespace blockrnn::cpu {

// The weights of the input, and the biases.
template <class T>
struct InputWeights {
  WeightView<T> w;         // [I, gates · H]
  const T* b = nullptr;    // [gates · H]; nullptr: zeros
  const T* b_h = nullptr;  // [gates · H], the recurrent bias; nullptr: zeros
  int64_t column = 0;      // of the first gate, with projected_input
};

// What the input GEMM reads at every step, packed: w_x and the biases. With
// kLastApart the bias of the last gate is that of x alone, and b_h of that gate
// follows behind the panel.
template <class T, int kGates, bool kLastApart, class P>
struct InputPanels {
  using C = ComputeType<T>;
  static constexpr int64_t kWidth = kPanelWidth<C, kGates>;
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  // A panel of what the GEMM with the state begins with, then the last gate's
  // share with kLastApart.
  static constexpr int64_t kStartWidth = kWidth + (kLastApart ? kUnits : 0);

  InputPanels(PanelMemory* memory, const SequenceShape& shape,
              const InputWeights<T>& input, const Packing& packing)
      : weights(input),
        w_x(memory, input.w,
            packing.fuses_input && shape.HasInputWeights() ? shape.input : 0,
            shape.units, packing.InputUses()) {
    C* const packed = memory->Take<C>(w_x.panels() * kStartWidth);
    bias = packed;
    if (packed != nullptr && !memory->frozen()) PackBias(packed);
  }

  static bool Apart(int gate) { return kLastApart && gate == kGates - 1; }

  const InputWeights<T> weights;
  PackedWeights<T, kGates, P> w_x;
  const C* bias;  // [panels, kStartWidth]

 private:
  void PackBias(C* packed) const {
    std::fill(packed, packed + w_x.panels() * kStartWidth, C(0));
    const int64_t units = w_x.units();
    for (int gate = 0; gate < kGates; ++gate) {
      for (int64_t unit = 0; unit < units; ++unit) {
        C* panel = packed + unit / kUnits * kStartWidth;
        C* b = panel + gate * kUnits + unit % kUnits;
        if (weights.b != nullptr) {
          *b = static_cast<C>(weights.b[gate * units + unit]);
        }
        if (weights.b_h == nullptr) continue;
        const C b_h = static_cast<C>(weights.b_h[gate * units + unit]);
        if (Apart(gate)) {
          panel[kWidth + unit % kUnits] = b_h;
        } else {
          *b += b_h;
        }
      }
    }
  }
};

// The weights of a cell with one matrix for x and one for h.
template <class T, int kGates, bool kLastApart, class P>
struct GatePanels {
  // args: of a forward call; width: of h.
  template <class Args>
  GatePanels(const Args& args, const T* b, const T* b_h, int64_t width,
             PanelMemory* memory, const Packing& packing)
      : w_h(memory, Gates(args.shape, args.w_h, width), width, args.shape.units,
            packing.StateUses()),
        x(memory, args.shape,
          {Gates(args.shape, args.w_x, args.shape.input), b, b_h}, packing) {}

  PackedWeights<T, kGates, P> w_h;
  InputPanels<T, kGates, kLastApart, P> x;

 private:
  static WeightView<T> Gates(const SequenceShape& shape, const T* w,
                             int64_t depth) {
    return WeightsOf(shape, w, depth, kGates * shape.units);
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_INPUT_PANELS_H_
