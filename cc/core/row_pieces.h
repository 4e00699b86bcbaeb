// Splits rows in which sequences end and begin, at the resets of a call.
//
// A reset at step t of a row lies between t - 1 and t, and no state passes it
// in either direction. What lies between two of them is a piece. Pieces need
// nothing of each other, so engines run them as rows of their own, side by
// side: a call takes as many steps as its longest piece has, and what is true
// of rows of different lengths (cc/core/row_order.h) is true of pieces.
//
// Of the pieces of a row, the one that is done first begins with the row's
// initial state, the others with zeros; the one that is done last ends with the
// row's last state. The first of them is an empty piece where a reset comes
// before all steps done: it alone takes the initial state.

#ifndef BLOCKRNN_CORE_ROW_PIECES_H_
#define BLOCKRNN_CORE_ROW_PIECES_H_

#include <cstdint>
#include <utility>

#include "cc/core/sequence_args.h"

namespace blockrnn {

// f(row, begin, end) for all pieces, in the order of rows and of time.
template <class F>
void ForEachPiece(const SequenceShape& shape, const uint8_t* resets,
                  const F& f) {
  for (int64_t row = 0; row < shape.batch; ++row) {
    const int64_t length = shape.Length(row);
    int64_t begin = 0;
    // Backwards, a reset at step 0 comes after the last step done.
    for (int64_t t = shape.backwards ? 1 : 0; t < length; ++t) {
      if (resets[shape.TimeRow(t, row)] == 0) continue;
      f(row, begin, t);
      begin = t;
    }
    f(row, begin, length);
  }
}

inline int64_t CountPieces(const SequenceShape& shape, const uint8_t* resets) {
  int64_t pieces = 0;
  ForEachPiece(shape, resets, [&](int64_t, int64_t, int64_t) { ++pieces; });
  return pieces;
}

// Numbers of storage that SplitRows needs.
inline int64_t PieceStorage(int64_t pieces) { return 3 * pieces; }

// The shape of a call whose rows are the pieces of this one's. storage: as much
// as PieceStorage says, which the shape uses as long as it lives.
inline SequenceShape SplitRows(const SequenceShape& shape,
                               const uint8_t* resets, int64_t pieces,
                               int64_t* storage) {
  int64_t* const rows = storage;
  int64_t* const begins = storage + pieces;
  int64_t* const lengths = storage + 2 * pieces;
  int64_t n = 0;
  ForEachPiece(shape, resets, [&](int64_t row, int64_t begin, int64_t end) {
    rows[n] = row;
    begins[n] = begin;
    lengths[n] = end - begin;
    ++n;
  });
  SequenceShape split = shape;
  split.batch = pieces;
  split.lengths = lengths;
  split.pieces = {shape.batch, rows, begins};
  return split;
}

// Makes a call of one with resets whose rows are the pieces. allocate(n): n
// numbers, which the call uses as long as it lives, or nullptr; then this
// returns false.
template <class Args, class Allocate>
bool SplitAtResets(Args* args, const Allocate& allocate) {
  const uint8_t* const resets = std::exchange(args->resets, nullptr);
  if (resets == nullptr) return true;
  const int64_t pieces = CountPieces(args->shape, resets);
  if (pieces == args->shape.batch) return true;
  int64_t* const storage = allocate(PieceStorage(pieces));
  if (storage == nullptr) return false;
  args->shape = SplitRows(args->shape, resets, pieces, storage);
  return true;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ROW_PIECES_H_
