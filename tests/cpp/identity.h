// Declares the engine's forward functions with identity activations, which are
// not in its table: small integers then compare exactly.
//
// Only identity.cc includes more of the engine than engine.h for this, so that
// references are compiled once for all instruction sets, and again only when
// they change.

#ifndef BLOCKRNN_TESTS_CPP_IDENTITY_H_
#define BLOCKRNN_TESTS_CPP_IDENTITY_H_

#include <type_traits>

#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/heap.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {

// Instantiated for float and double, where they are under test.
template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host);

// The engine's function for these arguments of type T.
template <class T, bool kHasIdentity = true, class Args>
cpu::Status RunForward(const EngineCall& call, const Args& args) {
  if constexpr (std::is_base_of_v<SequenceForwardArgs<T>, Args>) {
    if (call.of.weights.kind != WeightForm::kAsDrawn) {
      return RunWithWeights<T>(call, args);
    }
  }
  if constexpr (std::is_floating_point_v<T> && kHasIdentity) {
    if (call.of.HasIdentity()) {
      const HeapIsDry heap(call.of.heap_is_dry);
      return RunWithIdentity(args, call.host);
    }
  }
  return RunEngine<T>(call, args);
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_IDENTITY_H_
