// Implements what the outputs and gradients of padded steps are. Padding takes
// no step of the loop: its outputs are zeros or the carried state, and its
// gradients of states are added at either end of the loop.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_PADDING_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_PADDING_H_

#include <cstdint>

#include "cc/core/row_order.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// Zeros in an output at padded steps and past the rows' lengths; p may be
// nullptr. p[steps, batch, ld], of which the first `width` of a row are this
// one's.
template <class T>
void ZeroUnused(const Executor& executor, const SequenceRows& rows, T* p,
                int64_t width, int64_t ld) {
  if (!rows.HasUnused() || p == nullptr) return;
  ParallelForEachRow(
      executor, rows.batch(), rows.shape().steps * width, [&](int64_t b) {
        rows.ForEachUnusedRow(
            b, [&](int64_t row) { ZeroRow(width, p + row * ld); });
      });
}

// The states that an output has at padded steps: in leading padding those of
// first[B, width], in the caller's order, in trailing padding those of
// last(b)[width]; p may be nullptr.
template <class T, class Last>
void CarryStatesOverPadding(const Executor& executor, const SequenceRows& rows,
                            const T* first, const Last& last, T* p,
                            int64_t width, int64_t ld) {
  if (!rows.HasMaskedPadding() || p == nullptr) return;
  const auto carry = [&](int64_t b, const StepInterval& steps,
                         const auto* state) {
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      CopyRow(state, width, p + rows.MemoryRow(step, b) * ld);
    }
  };
  ParallelForEachRow(
      executor, rows.batch(), rows.shape().steps * width, [&](int64_t b) {
        carry(b, rows.LeadingPadding(b), first + rows.StateRow(b) * width);
        carry(b, rows.TrailingPadding(b), last(b));
      });
}

// The gradients of a state at all steps, [steps, batch, ld], of which the first
// `width` of a row are this one's; data may be nullptr: zeros.
template <class T>
struct StateGrads {
  const T* data = nullptr;
  int64_t width = 0;
  int64_t ld = 0;

  // grad[width] += those of some steps of a row, the last one first.
  template <class C>
  void AddTo(C* grad, const SequenceRows& rows, int64_t b,
             const StepInterval& steps) const {
    if (data == nullptr) return;
    for (int64_t step = steps.end - 1; step >= steps.begin; --step) {
      AddRow(data + rows.MemoryRow(step, b) * ld, width, grad);
    }
  }
};

// grad[B, width], the gradients of the rows' final states: last_grad, or zeros
// where that is nullptr, and what trailing padding passes on.
template <class T, class C>
void BeginStateGrads(const Executor& executor, const SequenceRows& rows,
                     const T* last_grad, const StateGrads<T>& grads, C* grad) {
  const int64_t width = grads.width;
  const int64_t most_steps = rows.HasMaskedPadding() ? rows.shape().steps : 1;
  ParallelForEachRow(
      executor, rows.batch(), most_steps * width, [&](int64_t b) {
        C* const to = grad + b * width;
        if (last_grad != nullptr) {
          CopyRow(last_grad + rows.StateRow(b) * width, width, to);
        } else {
          ZeroRow(width, to);
        }
        if (rows.HasMaskedPadding()) {
          grads.AddTo(to, rows, b, rows.TrailingPadding(b));
        }
      });
}

// Adds to grad[B, width], the gradients of the rows' initial states, what
// leading padding passes on.
template <class T, class C>
void FinishStateGrads(const Executor& executor, const SequenceRows& rows,
                      const StateGrads<T>& grads, C* grad) {
  if (!rows.HasMaskedPadding()) return;
  ParallelForEachRow(
      executor, rows.batch(), rows.shape().steps * grads.width, [&](int64_t b) {
        grads.AddTo(grad + b * grads.width, rows, b, rows.LeadingPadding(b));
      });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_PADDING_H_
