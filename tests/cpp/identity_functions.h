// Implements the engine's forward functions with identity activations.

#ifndef BLOCKRNN_TESTS_CPP_IDENTITY_FUNCTIONS_H_
#define BLOCKRNN_TESTS_CPP_IDENTITY_FUNCTIONS_H_

#include <type_traits>

#include "cc/core/activations.h"
#include "cc/kernels/cpu/engine_functions.h"
#include "tests/cpp/identity.h"

namespace blockrnn::test {

template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(Args::x)>>;
  const cpu::Executor executor(host);
  return cpu::Functions<T, IdentityActivations>::Run(args, executor);
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_IDENTITY_FUNCTIONS_H_
