// Defines the arguments of a whole sequence, as an engine takes them: dims,
// typed pointers with their shapes, and the layout of rows and steps in memory.
// T is the storage type: half and bfloat16 are computed in float32.
//
// A sequence array, written [steps, batch, …] below, is dense and either
// time-major, [T, B, …], or batch-major, [B, T, …]; all of one call are alike.
// Rows may have lengths of their own: a row takes part in its first steps only,
// with `backwards` from the last of them to the first. Past it the outputs that
// are sequences are zeros, and the inputs are not read.
//
// A mask has a byte for each step and row, in the same order; where it is 0 the
// step is masked: the state is carried over it, and the outputs of the step are
// the carried state (h, cs) or zero (all others). No mask: every step counts.
//
// Recurrent dropout: factors by which the state before a step is multiplied in
// its GEMM with the recurrent weights, different ones for each gate, in the
// order of the weights' gates, and the same at all steps. nullptr: none.
//
// Zoneout: which elements of a state a step leaves as they were before it, or,
// without draws, the share of the state before in the mean that takes their
// place. Masked steps leave all of them.
//
// Spans: with span_steps > 0 a forward call saves its states before every span
// of steps, each of which has at least so many, and a backward call computes
// what it needs besides h from them again, span after span. What is saved is
// the engine's own, in the compute type: span_states has room for
// ceil(T / span_steps) - 1 times the states of all rows.
//
// An engine trusts these: whoever fills them has checked every size.

#ifndef BLOCKRNN_CORE_SEQUENCE_ARGS_H_
#define BLOCKRNN_CORE_SEQUENCE_ARGS_H_

#include <cstdint>

#include "cc/core/cell_args.h"
#include "cc/core/gate_layout.h"
#include "cc/core/portable.h"

namespace blockrnn {

struct SequenceShape {
  int64_t steps = 0;  // T
  int64_t batch = 0;  // B
  int64_t input = 0;  // I
  int64_t units = 0;  // H
  bool time_major = true;
  bool backwards = false;            // the last step in memory is done first
  const int64_t* lengths = nullptr;  // [B], each in 0..T; nullptr: all are T

  // There is no w_x:
  bool skip_input = false;  // I is H, and x itself stands for x · w_x of
                            // every gate
  bool projected_input =
      false;  // I is gates · H, and x is x · w_x of all gates

  // The layout in memory.
  int64_t state_stride = 1;  // from the state of a row of the batch to the next
                             // one's, in states: a state may be one of several
  int64_t h_width = 0;       // elements from one row of h (and h_grad) to the
                             // next; 0: the width of the state
  bool weights_by_unit = false;  // weights and their gradients are transposed:
                                 // w_x is [gates · H, I]
  // Arrays that are saved for backward alone (the gates, cs) are in the order
  // of cc/core/row_order.h: step after step, in each the active rows. x, h, the
  // mask and all gradients, cs_grad too, stay in memory order.
  bool saved_in_steps = false;

  bool HasInputWeights() const { return !skip_input && !projected_input; }

  // Steps that row b of the batch has.
  int64_t Length(int64_t b) const {
    return lengths == nullptr ? steps : lengths[b];
  }

  // The row of [steps · batch, …] that the step-th step done has for `b`.
  int64_t Row(int64_t step, int64_t b) const {
    return TimeRow(backwards ? Length(b) - 1 - step : step, b);
  }
  // The row that step t of `b`, in the order of memory, has.
  int64_t TimeRow(int64_t t, int64_t b) const {
    return time_major ? t * batch + b : b * steps + t;
  }
};

// How packed weights are stored, and with what numbers a GEMM multiplies.
enum class Precision : int32_t {
  kStorage = 0,   // as weights that a call packs itself: the same bits
  kBFloat16 = 1,  // weights in bfloat16; sums in float32
  kInt8 = 2,      // weights in int8 with a scale for each column, and rows that
                  // are quantised for each GEMM; sums in int32
};

// Weights and biases that the engine has packed (cc/core/frozen_weights.h).
struct FrozenWeights {
  Precision precision = Precision::kStorage;
  const void* packed = nullptr;
};

// Zoneout of one state, of a width W. The derivative takes the draws as they
// are.
struct Zoneout {
  const uint8_t* kept = nullptr;  // [steps, batch, W], in the order of x; 1
                                  // where the state before the step stays
  double rate = 0;  // in 0..1, read only without `kept`: the state after a step
                    // is rate · before + (1 − rate) · new

  BLOCKRNN_HOST_DEVICE explicit operator bool() const {
    return kept != nullptr || rate > 0;
  }
};

// What the calls of all cells take. P is H but for an LSTM with a projection;
// G are the gates that the recurrent weights have.
template <class T>
struct SequenceInputs {
  SequenceShape shape;
  const uint8_t* mask = nullptr;         // [steps, batch], or nullptr
  const T* x = nullptr;                  // [steps, batch, I]
  const T* h_prev = nullptr;             // [B, P], the state before the first
                                         // step
  const T* recurrent_dropout = nullptr;  // [G, B, P], or nullptr
  Zoneout zoneout_h;                     // of h, W = P
};

// Outputs of all forward calls; each may be nullptr where it is not wanted.
template <class T>
struct SequenceForwardArgs : SequenceInputs<T> {
  // Instead of weights and biases, which may be nullptr then, except that short
  // calls of bfloat16 read them. No dropout.
  const FrozenWeights* frozen = nullptr;
  // Each row has the bits that it has in a call of that row alone. Not promised
  // for bfloat16 and with weights_by_unit.
  bool rows_apart = false;
  int64_t span_steps = 0;    // 0: no states are saved
  T* h = nullptr;            // [steps, batch, P]
  T* h_last = nullptr;       // [B, P], the state after the last step
  T* span_states = nullptr;  // see above; nullptr where they are not wanted
};

// The gradient of a forward call, whose outputs are taken unchanged.
template <class T>
struct SequenceBackwardArgs : SequenceInputs<T> {
  const T* h = nullptr;            // [steps, batch, P]
  const T* h_grad = nullptr;       // [steps, batch, P]; nullptr: zeros
  const T* h_last_grad = nullptr;  // [B, P]; nullptr: zeros
  // Not 0: that of the forward call. The other arrays that it saved for
  // backward are not read then, but its biases and options are.
  int64_t span_steps = 0;
  const T* span_states = nullptr;
  T* x_grad = nullptr;       // [steps, batch, I]
  T* h_prev_grad = nullptr;  // [B, P]
};

// BlockLSTM: cc/core/lstm_cell.h, step after step. With a projection,
// h = w_p · (o ∘ tanh(cs)), and P is its size; without, P is H.
template <class T>
struct LstmSequenceForwardArgs : SequenceForwardArgs<T> {
  LstmGateLayout layout = kLstmIcfo;
  LstmOptions options;
  Zoneout zoneout_c;           // of cs, W = H; h is made of cs before it
  const T* cs_prev = nullptr;  // [B, H], the state before the first step
  const T* w_x = nullptr;      // [I, 4H]
  const T* w_h = nullptr;      // [P, 4H]
  int64_t proj = 0;            // P where there is a projection, else 0
  const T* w_p = nullptr;      // [P, H]; read only with one
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* b = nullptr;        // [4H]
  const T* b_h = nullptr;      // [4H], added to b; nullptr: zeros
  // Outputs; each may be nullptr where it is not wanted.
  T* i = nullptr;        // [steps, batch, H]
  T* cs = nullptr;       // [steps, batch, H]
  T* f = nullptr;        // [steps, batch, H]
  T* o = nullptr;        // [steps, batch, H]
  T* ci = nullptr;       // [steps, batch, H]
  T* co = nullptr;       // [steps, batch, H]
  T* cs_last = nullptr;  // [B, H], the state after the last step
};

// The gradient of it. i, cs, f, o, ci, h are the outputs of the forward call,
// unchanged.
template <class T>
struct LstmSequenceBackwardArgs : SequenceBackwardArgs<T> {
  LstmGateLayout layout = kLstmIcfo;
  bool use_peephole = false;
  LstmOptions options;              // read only with span_steps, but for the
                                    // clip, which zoneout_c reads, too
  Zoneout zoneout_c;                // of cs, W = H; no co then
  const T* b = nullptr;             // [4H]; read only with span_steps
  const T* cs_prev = nullptr;       // [B, H]
  const T* w_x = nullptr;           // [I, 4H]
  const T* w_h = nullptr;           // [P, 4H]
  int64_t proj = 0;                 // P where there is a projection, else 0
  const T* w_p = nullptr;           // [P, H]; read only with one
  const T* wci = nullptr;           // [H]; read only with use_peephole
  const T* wcf = nullptr;           // [H]; read only with use_peephole
  const T* wco = nullptr;           // [H]; read only with use_peephole
  const T* i = nullptr;             // [steps, batch, H]
  const T* cs = nullptr;            // [steps, batch, H]
  const T* f = nullptr;             // [steps, batch, H]
  const T* o = nullptr;             // [steps, batch, H]
  const T* ci = nullptr;            // [steps, batch, H]
  const T* co = nullptr;            // [steps, batch, H]; nullptr: tanh(cs)
  const T* cs_grad = nullptr;       // [steps, batch, H]; nullptr: zeros
  const T* cs_last_grad = nullptr;  // [B, H]; nullptr: zeros
  T* cs_prev_grad = nullptr;        // [B, H]
  T* w_x_grad = nullptr;            // [I, 4H]; not without w_x
  T* w_h_grad = nullptr;            // [P, 4H]
  T* w_p_grad = nullptr;            // [P, H]; written only with a projection
  T* wci_grad = nullptr;            // [H]; written only with use_peephole
  T* wcf_grad = nullptr;            // [H]; written only with use_peephole
  T* wco_grad = nullptr;            // [H]; written only with use_peephole
  T* b_grad = nullptr;              // [4H]
};

// An LSTM with layer normalisation: cc/core/layer_norm.h. gamma and beta of the
// norms of x · w_x, of h · w_h and of the cell state.
template <class T>
struct LayerNormLstmForwardArgs : SequenceForwardArgs<T> {
  LstmGateLayout layout = kLstmIfco;
  double epsilon = 1e-3;  // added to the variances
  // Whether h alone is made of the norm of the cell state; else the next step's
  // cell state is, too.
  bool norm_output_only = false;
  const T* cs_prev = nullptr;  // [B, H], the state before the first step
  const T* w_x = nullptr;      // [I, 4H]
  const T* w_h = nullptr;      // [H, 4H]
  const T* b = nullptr;        // [4H]
  const T* gamma_x = nullptr;  // [4H]
  const T* beta_x = nullptr;   // [4H]
  const T* gamma_h = nullptr;  // [4H]
  const T* beta_h = nullptr;   // [4H]
  const T* gamma_c = nullptr;  // [H]
  const T* beta_c = nullptr;   // [H]
  // Outputs; each may be nullptr where it is not wanted. Those that are saved
  // for backward alone, besides cs, are zeros at masked steps.
  T* x_hat = nullptr;  // [steps, batch, 4H], x · w_x normalised
  T* h_hat = nullptr;  // [steps, batch, 4H], h · w_h normalised
  T* rstd = nullptr;   // [steps, batch, 2], 1 / √(variance + epsilon) of both
  T* cs = nullptr;     // [steps, batch, H]
  T* cs_last = nullptr;  // [B, H], the state after the last step
};

// The gradient of it. x_hat, h_hat, rstd, cs and h are the outputs of the
// forward call, unchanged. The arrays whose name ends in _grad and that are no
// inputs are written, all of them.
template <class T>
struct LayerNormLstmBackwardArgs : SequenceBackwardArgs<T> {
  LstmGateLayout layout = kLstmIfco;
  double epsilon = 1e-3;
  bool norm_output_only = false;
  const T* cs_prev = nullptr;       // [B, H]
  const T* w_x = nullptr;           // [I, 4H]
  const T* w_h = nullptr;           // [H, 4H]
  const T* b = nullptr;             // [4H]
  const T* gamma_x = nullptr;       // [4H]
  const T* beta_x = nullptr;        // [4H]
  const T* gamma_h = nullptr;       // [4H]
  const T* beta_h = nullptr;        // [4H]
  const T* gamma_c = nullptr;       // [H]
  const T* beta_c = nullptr;        // [H]
  const T* x_hat = nullptr;         // [steps, batch, 4H]
  const T* h_hat = nullptr;         // [steps, batch, 4H]
  const T* rstd = nullptr;          // [steps, batch, 2]
  const T* cs = nullptr;            // [steps, batch, H]
  const T* cs_grad = nullptr;       // [steps, batch, H]; nullptr: zeros
  const T* cs_last_grad = nullptr;  // [B, H]; nullptr: zeros
  T* cs_prev_grad = nullptr;        // [B, H]
  T* w_x_grad = nullptr;            // [I, 4H]; not without w_x
  T* w_h_grad = nullptr;            // [H, 4H]
  T* b_grad = nullptr;              // [4H]
  T* gamma_x_grad = nullptr;        // [4H]
  T* beta_x_grad = nullptr;         // [4H]
  T* gamma_h_grad = nullptr;        // [4H]
  T* beta_h_grad = nullptr;         // [4H]
  T* gamma_c_grad = nullptr;        // [H]
  T* beta_c_grad = nullptr;         // [H]
};

// BlockGRU: cc/core/gru_cell.h, step after step.
template <class T>
struct GruSequenceForwardArgs : SequenceForwardArgs<T> {
  const T* w_ru_x = nullptr;  // [I, 2H], gates r, u
  const T* w_ru_h = nullptr;  // [H, 2H], gates r, u
  const T* w_c_x = nullptr;   // [I, H]
  const T* w_c_h = nullptr;   // [H, H]
  const T* b_ru = nullptr;    // [2H]
  const T* b_c = nullptr;     // [H]
  // Outputs; each may be nullptr where it is not wanted.
  T* r = nullptr;  // [steps, batch, H]
  T* u = nullptr;  // [steps, batch, H]
  T* c = nullptr;  // [steps, batch, H]
};

template <class T>
struct GruSequenceBackwardArgs : SequenceBackwardArgs<T> {
  const T* w_ru_x = nullptr;  // [I, 2H], gates r, u
  const T* w_ru_h = nullptr;  // [H, 2H], gates r, u
  const T* w_c_x = nullptr;   // [I, H]
  const T* w_c_h = nullptr;   // [H, H]
  const T* b_ru = nullptr;    // [2H]; read only with span_steps
  const T* b_c = nullptr;     // [H]; read only with span_steps
  const T* r = nullptr;       // [steps, batch, H]
  const T* u = nullptr;       // [steps, batch, H]
  const T* c = nullptr;       // [steps, batch, H]
  T* w_ru_x_grad = nullptr;   // [I, 2H]
  T* w_ru_h_grad = nullptr;   // [H, 2H]
  T* w_c_x_grad = nullptr;    // [I, H]
  T* w_c_h_grad = nullptr;    // [H, H]
  T* b_ru_grad = nullptr;     // [2H]
  T* b_c_grad = nullptr;      // [H]
};

// GRU with the reset after the GEMM, as Keras' default and cuDNN's. The
// candidate's gate is the last in every layout.
template <class T>
struct GruAfterSequenceForwardArgs : SequenceForwardArgs<T> {
  GruAfterGateLayout layout = kGruRuc;
  const T* w_x = nullptr;  // [I, 3H]
  const T* w_h = nullptr;  // [H, 3H]
  const T* b_x = nullptr;  // [3H]
  const T* b_h = nullptr;  // [3H]
  // Outputs; each may be nullptr where it is not wanted.
  T* r = nullptr;   // [steps, batch, H]
  T* u = nullptr;   // [steps, batch, H]
  T* c = nullptr;   // [steps, batch, H]
  T* hc = nullptr;  // [steps, batch, H], h_prev · R_c + b_h,c
};

template <class T>
struct GruAfterSequenceBackwardArgs : SequenceBackwardArgs<T> {
  GruAfterGateLayout layout = kGruRuc;
  const T* w_x = nullptr;  // [I, 3H]
  const T* w_h = nullptr;  // [H, 3H]
  const T* b_x = nullptr;  // [3H]; read only with span_steps
  const T* b_h = nullptr;  // [3H]; read only with span_steps
  const T* r = nullptr;    // [steps, batch, H]
  const T* u = nullptr;    // [steps, batch, H]
  const T* c = nullptr;    // [steps, batch, H]
  const T* hc = nullptr;   // [steps, batch, H]
  T* w_x_grad = nullptr;   // [I, 3H]; not without w_x
  T* w_h_grad = nullptr;   // [H, 3H]
  T* b_x_grad = nullptr;   // [3H]
  T* b_h_grad = nullptr;   // [3H]
};

// A GRU, reset after the GEMM, with layer normalisation: cc/core/layer_norm.h.
// gamma and beta of the norms of x · w_x and of h · w_h. The candidate's gate
// is the last in every layout.
template <class T>
struct LayerNormGruForwardArgs : SequenceForwardArgs<T> {
  GruAfterGateLayout layout = kGruRuc;
  double epsilon = 1e-3;       // added to the variances
  const T* w_x = nullptr;      // [I, 3H]
  const T* w_h = nullptr;      // [H, 3H]
  const T* b_x = nullptr;      // [3H]
  const T* b_h = nullptr;      // [3H]
  const T* gamma_x = nullptr;  // [3H]
  const T* beta_x = nullptr;   // [3H]
  const T* gamma_h = nullptr;  // [3H]
  const T* beta_h = nullptr;   // [3H]
  // Outputs; each may be nullptr where it is not wanted. All three are saved
  // for backward alone, and zeros at masked steps.
  T* x_hat = nullptr;  // [steps, batch, 3H], x · w_x normalised
  T* h_hat = nullptr;  // [steps, batch, 3H], h · w_h normalised
  T* rstd = nullptr;   // [steps, batch, 2], 1 / √(variance + epsilon) of both
};

// The gradient of it. x_hat, h_hat, rstd and h are the outputs of the forward
// call, unchanged. The arrays whose name ends in _grad and that are no inputs
// are written, all of them.
template <class T>
struct LayerNormGruBackwardArgs : SequenceBackwardArgs<T> {
  GruAfterGateLayout layout = kGruRuc;
  double epsilon = 1e-3;       // read only with span_steps
  const T* w_x = nullptr;      // [I, 3H]
  const T* w_h = nullptr;      // [H, 3H]
  const T* b_x = nullptr;      // [3H]
  const T* b_h = nullptr;      // [3H]
  const T* gamma_x = nullptr;  // [3H]
  const T* beta_x = nullptr;   // [3H]
  const T* gamma_h = nullptr;  // [3H]
  const T* beta_h = nullptr;   // [3H]
  const T* x_hat = nullptr;    // [steps, batch, 3H]
  const T* h_hat = nullptr;    // [steps, batch, 3H]
  const T* rstd = nullptr;     // [steps, batch, 2]
  T* w_x_grad = nullptr;       // [I, 3H]; not without w_x
  T* w_h_grad = nullptr;       // [H, 3H]
  T* b_x_grad = nullptr;       // [3H]
  T* b_h_grad = nullptr;       // [3H]
  T* gamma_x_grad = nullptr;   // [3H]
  T* beta_x_grad = nullptr;    // [3H], equal to b_x_grad
  T* gamma_h_grad = nullptr;   // [3H]
  T* beta_h_grad = nullptr;    // [3H], equal to b_h_grad
};

// h = act(x · w_x + h_prev · w_h + b), act relu or tanh:
// cc/core/simple_rnn_cell.h.
template <class T>
struct SimpleRnnForwardArgs : SequenceForwardArgs<T> {
  bool relu = false;
  const T* w_x = nullptr;  // [I, H]
  const T* w_h = nullptr;  // [H, H]
  const T* b = nullptr;    // [H]
  const T* b_h = nullptr;  // [H], added to b; nullptr: zeros
  // Outputs; each may be nullptr where it is not wanted.
};

template <class T>
struct SimpleRnnBackwardArgs : SequenceBackwardArgs<T> {
  bool relu = false;
  const T* w_x = nullptr;  // [I, H]
  const T* w_h = nullptr;  // [H, H]
  T* w_x_grad = nullptr;   // [I, H]; not without w_x
  T* w_h_grad = nullptr;   // [H, H]
  T* b_grad = nullptr;     // [H]
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_SEQUENCE_ARGS_H_
