// Defines the order of gates in weights, biases and gate gradients.
// Each number is a gate's block of H columns.

#ifndef BLOCKRNN_CORE_GATE_LAYOUT_H_
#define BLOCKRNN_CORE_GATE_LAYOUT_H_

namespace blockrnn {

// LSTM: input gate i, cell input ci, forget gate f, output gate o.
struct LstmGateLayout {
  int i;
  int ci;
  int f;
  int o;
};

inline constexpr int kLstmGates = 4;
// LSTMBlockCell and BlockLSTM.
inline constexpr LstmGateLayout kLstmIcfo = {0, 1, 2, 3};
// BlockLSTMV2; with other names also Keras (i, f, c, o) and cuDNN (i, f, g, o).
inline constexpr LstmGateLayout kLstmIfco = {0, 2, 1, 3};

// GRU: reset gate r, update gate u, candidate c.
struct GruGateLayout {
  int r;
  int u;
  int c;
};

// With the reset before the GEMM: r and u. The candidate has a GEMM of its own.
inline constexpr int kGruGates = 2;
// With the reset after the GEMM.
inline constexpr int kGruAfterGates = 3;
// cuDNN and PyTorch (r, u or z, then the candidate).
inline constexpr GruGateLayout kGruRuc = {0, 1, 2};
// Keras (z, r, h).
inline constexpr GruGateLayout kGruUrc = {1, 0, 2};
static_assert(kGruRuc.c == kGruAfterGates - 1 &&
                  kGruUrc.c == kGruAfterGates - 1,
              "engines treat the candidate apart, as the last gate");

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_GATE_LAYOUT_H_
