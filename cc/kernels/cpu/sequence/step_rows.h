// Defines the rows that a step multiplies with its weights: those in memory or,
// for weights in int8, quantised copies of them.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_ROWS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_ROWS_H_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

// Of storage type T, for weights in panels of elements P.
template <class T, class P>
class StepRows {
 public:
  // Up to `rows` rows of a depth, for some workers that each need all of them.
  StepRows(Scratch*, int64_t /*workers*/, int64_t /*rows*/, int64_t /*depth*/) {
  }

  // What multiplies the weights; `rows` of it are needed by one worker.
  const GateRows<ComputeType<T>>& operator()(const GateRows<ComputeType<T>>& a,
                                             Range /*rows*/,
                                             int /*worker*/) const {
    return a;
  }
};

template <class T>
class StepRows<T, Int8Quad> {
 public:
  StepRows(Scratch* scratch, int64_t workers, int64_t rows, int64_t depth)
      : rows_(rows),
        depth_(depth),
        stride_(NumQuads(depth)),
        quads_(scratch->Array<Int8Quad>(workers * rows * stride_)),
        scales_(scratch->Array<float>(workers * rows)) {}

  // Every worker quantises the rows that it multiplies: less work than a
  // barrier before the GEMM.
  QuantizedRows operator()(const GateRows<float>& a, Range rows,
                           int worker) const {
    Int8Quad* const quads = quads_ + worker * rows_ * stride_;
    float* const scales = scales_ + worker * rows_;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      QuantizeRow(a.rows.Row(row), depth_, quads + row * stride_, scales + row);
    }
    return {quads, stride_, scales};
  }

 private:
  const int64_t rows_;
  const int64_t depth_;
  const int64_t stride_;
  Int8Quad* const quads_;
  float* const scales_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_ROWS_H_
