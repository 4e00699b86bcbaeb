// Defines what the arguments of all cells have in common, as an engine takes
// them: dims, typed pointers with their shapes, and the layout of rows and
// steps in memory. The rest is beside the equations of each cell. T is the
// storage type: half and bfloat16 are computed in float32.
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
// Resets have a byte for each step and row, in the same order and in host
// memory for either engine: where one is not 0, a new sequence begins with the
// step, and no state passes between it and the step before it in memory.
// Engines run what lies between as rows of their own (cc/core/row_pieces.h).
//
// Recurrent dropout: factors by which the state before a step is multiplied in
// its GEMM with the recurrent weights, different ones for each gate, in the
// order of the weights' gates, and the same at all steps. nullptr: none.
//
// Zoneout: which elements of a state a step leaves as they were before it, or,
// without draws, the share of the state before in the mean that takes their
// place. Masked steps leave all of them.
//
// Checkpoint segments: with span_steps > 0 a forward call saves its states
// before every segment of steps, each of which has at least so many, and a
// backward call computes what it needs besides h from them again, segment after
// segment. What is saved is the engine's own, in the compute type: span_states
// has room for ceil(T / span_steps) - 1 times the states of all rows. The CPU
// engine writes all of it, zeros where it saves nothing; the CUDA engine saves
// nothing and leaves it alone.
//
// A cell's forward and backward call share two structs: …Weights has what both
// of them read, with the cell's options, and …SavedArrays the arrays that the
// one writes and the other reads.
//
// All arrays are row-major; no output overlaps an input or another output.
// An engine trusts these: whoever fills them has checked every size.

#ifndef BLOCKRNN_CORE_SEQUENCE_ARGS_H_
#define BLOCKRNN_CORE_SEQUENCE_ARGS_H_

#include <cstdint>
#include <limits>

#include "cc/core/portable.h"

namespace blockrnn {

// Of one step.
struct CellDims {
  int64_t batch = 0;  // B
  int64_t input = 0;  // I
  int64_t units = 0;  // H
};

// Where rows are pieces of longer ones: cc/core/row_pieces.h.
struct RowPieces {
  int64_t batch = 0;              // rows in memory
  const int64_t* rows = nullptr;  // of each piece, its row in memory; nullptr:
                                  // rows are no pieces
  const int64_t* begins = nullptr;  // of each piece, its first step there
};

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
  RowPieces pieces = {};  // B are their number then, T the steps in memory

  bool HasInputWeights() const { return !skip_input && !projected_input; }

  // Steps that row b of the batch has.
  int64_t Length(int64_t b) const {
    return lengths == nullptr ? steps : lengths[b];
  }

  // B of sequence arrays, and of the factors of recurrent dropout.
  int64_t MemoryBatch() const {
    return pieces.rows == nullptr ? batch : pieces.batch;
  }

  // The row of [steps · batch, …] that the step-th step done has for `b`.
  int64_t Row(int64_t step, int64_t b) const {
    return TimeRow(backwards ? Length(b) - 1 - step : step, b);
  }
  // The row that step t of `b`, in the order of memory, has.
  int64_t TimeRow(int64_t t, int64_t b) const {
    if (pieces.rows != nullptr) {
      t += pieces.begins[b];
      b = pieces.rows[b];
    }
    return time_major ? t * MemoryBatch() + b : b * steps + t;
  }
};

// How packed weights are stored, and with what numbers a GEMM multiplies.
enum class Precision : int32_t {
  kStorage = 0,   // as weights that a call packs itself: the same bits
  kBFloat16 = 1,  // weights in bfloat16; sums in float32
  kInt8 = 2,      // weights in int8 with a scale for each column, and rows that
                  // are quantised for each GEMM; sums in int32
};

// Weights and biases that the engine has packed; see FreezeArgs.
struct FrozenWeights {
  Precision precision = Precision::kStorage;
  const void* packed = nullptr;
};

// Inputs, units and outputs that a layer of int8 may have at most: int32 holds
// any sum of so many products.
inline constexpr int64_t kMostInt8Depth =
    std::numeric_limits<int32_t>::max() / (127 * 127);

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
  const uint8_t* resets = nullptr;       // [steps, batch], or nullptr
  const T* x = nullptr;                  // [steps, batch, I]
  const T* h_prev = nullptr;             // [B, P], the state before the first
                                         // step
  const T* recurrent_dropout = nullptr;  // [G, B, P], or nullptr
  Zoneout zoneout_h;                     // of h, W = P
};

// All forward calls. Each output, those of a cell too, may be nullptr where it
// is not wanted.
template <class T>
struct SequenceForwardArgs : SequenceInputs<T> {
  // Instead of weights and biases, which may be nullptr then, except that short
  // calls of bfloat16 read them. No dropout.
  const FrozenWeights* frozen = nullptr;
  // Each row has the bits that it has in a call of that row alone. Not promised
  // for bfloat16 and with weights_by_unit.
  bool batch_invariant = false;
  int64_t span_steps = 0;    // 0: no states are saved
  T* h = nullptr;            // [steps, batch, P]
  T* h_last = nullptr;       // [B, P], the state after the last step
  T* span_states = nullptr;  // see above; nullptr where they are not wanted
};

// The gradient of a forward call, whose outputs are taken unchanged. Its other
// members named …_grad that are no inputs are all written.
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

// Packs weights once for any number of calls: inference with weights that no
// longer change. The caller provides the memory and keeps it as long as calls
// read it. What is in it depends on the engine, so it is never stored or sent
// elsewhere.
//
// Packs the weights and biases of `layer`, whose shape has the input and the
// units; nothing else of it is read. Precisions other than kStorage are for
// float alone. Forward calls with the packed weights read neither weights nor
// biases of their own, except peepholes and, for bfloat16 in short calls, all.
template <class Forward>
struct FreezeArgs {
  Forward layer;
  Precision precision = Precision::kStorage;
  int64_t* bytes = nullptr;  // of the packed weights; written
  void* packed = nullptr;    // [bytes], aligned to 64 bytes, is written;
                             // nullptr: `bytes` is all that is asked for
};

// The forward call, without its outputs, that a backward call with segments
// runs again.
template <template <class> class Backward, class T>
typename Backward<T>::Forward RecomputedForward(const Backward<T>& args) {
  typename Backward<T>::Forward forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  static_cast<typename Backward<T>::Weights&>(forward) = args;
  return forward;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_SEQUENCE_ARGS_H_
