// The inner loop of the float GEMM for full tiles, whose instructions
// tools/inner_loops.py counts.

#include <cstdint>

#include "cc/kernels/cpu/gemm/panel.h"

namespace blockrnn::cpu {
namespace {

template <int kGates>
void MultiplyFullTile(const RowPointers<float, kTileRows>& a, int64_t k,
                      const float* panel, float* sums) {
  Tile<float, kTileRows, kPanelVectors<kGates>> tile;
  tile.Clear();
  MultiplyPanel<kGates, kGateVectors<kGates>>(a, k, panel, &tile);
  tile.Store(sums, kPanelWidth<float, kGates>);
}

}  // namespace
}  // namespace blockrnn::cpu

extern "C" {

using Rows = blockrnn::cpu::RowPointers<float, blockrnn::cpu::kTileRows>;

void full_tile_1_gate(const Rows& a, int64_t k, const float* w, float* sums) {
  blockrnn::cpu::MultiplyFullTile<1>(a, k, w, sums);
}
void full_tile_2_gates(const Rows& a, int64_t k, const float* w, float* sums) {
  blockrnn::cpu::MultiplyFullTile<2>(a, k, w, sums);
}
void full_tile_3_gates(const Rows& a, int64_t k, const float* w, float* sums) {
  blockrnn::cpu::MultiplyFullTile<3>(a, k, w, sums);
}
void full_tile_4_gates(const Rows& a, int64_t k, const float* w, float* sums) {
  blockrnn::cpu::MultiplyFullTile<4>(a, k, w, sums);
}

}  // extern "C"
