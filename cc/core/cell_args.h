// Defines the arguments of one cell step, as an engine (CPU or CUDA) takes
// them: dims and typed pointers, each with its shape. All arrays are row-major
// and dense; none of the outputs overlaps an input or another output. T is the
// storage type: half and bfloat16 are computed in float32.
//
// An engine trusts these: whoever fills them has checked every size.

#ifndef BLOCKRNN_CORE_CELL_ARGS_H_
#define BLOCKRNN_CORE_CELL_ARGS_H_

#include <cstdint>

namespace blockrnn {

struct CellDims {
  int64_t batch = 0;  // B
  int64_t input = 0;  // I
  int64_t units = 0;  // H
};

// GRUBlockCell: cc/core/gru_cell.h.
template <class T>
struct GruCellForwardArgs {
  CellDims dims;
  const T* x = nullptr;       // [B, I]
  const T* h_prev = nullptr;  // [B, H]
  const T* w_ru = nullptr;    // [I+H, 2H], gates r, u
  const T* w_c = nullptr;     // [I+H, H]
  const T* b_ru = nullptr;    // [2H]
  const T* b_c = nullptr;     // [H]
  T* r = nullptr;             // [B, H]
  T* u = nullptr;             // [B, H]
  T* c = nullptr;             // [B, H]
  T* h = nullptr;             // [B, H]
};

// GRUBlockCellGrad. x and the biases are not read by the equations.
template <class T>
struct GruCellBackwardArgs {
  CellDims dims;
  const T* h_prev = nullptr;   // [B, H]
  const T* w_ru = nullptr;     // [I+H, 2H], gates r, u
  const T* w_c = nullptr;      // [I+H, H]
  const T* r = nullptr;        // [B, H]
  const T* u = nullptr;        // [B, H]
  const T* c = nullptr;        // [B, H]
  const T* d_h = nullptr;      // [B, H]
  T* d_x = nullptr;            // [B, I]
  T* d_h_prev = nullptr;       // [B, H]
  T* d_c_bar = nullptr;        // [B, H]
  T* d_r_bar_u_bar = nullptr;  // [B, 2H], gates r, u
};

struct LstmOptions {
  float forget_bias = 0.0f;
  float cell_clip = 0.0f;  // no clip unless > 0
  bool use_peephole = false;
};

// LSTMBlockCell: cc/core/lstm_cell.h.
template <class T>
struct LstmCellForwardArgs {
  CellDims dims;
  LstmOptions options;
  const T* x = nullptr;        // [B, I]
  const T* cs_prev = nullptr;  // [B, H]
  const T* h_prev = nullptr;   // [B, H]
  const T* w = nullptr;        // [I+H, 4H], gates i, ci, f, o
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* b = nullptr;        // [4H]
  T* i = nullptr;              // [B, H]
  T* cs = nullptr;             // [B, H]
  T* f = nullptr;              // [B, H]
  T* o = nullptr;              // [B, H]
  T* ci = nullptr;             // [B, H]
  T* co = nullptr;             // [B, H]
  T* h = nullptr;              // [B, H]
};

// LSTMBlockCellGrad. x, h_prev, w and b are not read by the equations.
// The peephole gradients are written only with use_peephole.
template <class T>
struct LstmCellBackwardArgs {
  CellDims dims;
  bool use_peephole = false;
  const T* cs_prev = nullptr;  // [B, H]
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* i = nullptr;        // [B, H]
  const T* cs = nullptr;       // [B, H]
  const T* f = nullptr;        // [B, H]
  const T* o = nullptr;        // [B, H]
  const T* ci = nullptr;       // [B, H]
  const T* co = nullptr;       // [B, H]
  const T* cs_grad = nullptr;  // [B, H]
  const T* h_grad = nullptr;   // [B, H]
  T* cs_prev_grad = nullptr;   // [B, H]
  T* dicfo = nullptr;          // [B, 4H], gates i, ci, f, o
  T* wci_grad = nullptr;       // [H]
  T* wcf_grad = nullptr;       // [H]
  T* wco_grad = nullptr;       // [H]
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_CELL_ARGS_H_
