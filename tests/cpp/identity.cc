// Instantiates the engine's forward functions with identity activations, of all
// cells without norms. Compiled for the instruction set of the engine under
// test.

#include "tests/cpp/identity.h"

#include <type_traits>

#include "cc/core/activations.h"
#include "cc/kernels/cpu/engine_functions.h"

namespace blockrnn::test {

template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(Args::x)>>;
  const cpu::Executor executor(host);
  return cpu::Functions<T, IdentityActivations>::Run(args, executor);
}

#define BLOCKRNN_INSTANTIATE(Args, T)                  \
  template cpu::Status RunWithIdentity(const Args<T>&, \
                                       const cpu::HostInterface&);
#define BLOCKRNN_INSTANTIATE_ALL(T)                    \
  BLOCKRNN_INSTANTIATE(GruCellForwardArgs, T)          \
  BLOCKRNN_INSTANTIATE(GruSequenceForwardArgs, T)      \
  BLOCKRNN_INSTANTIATE(GruAfterSequenceForwardArgs, T) \
  BLOCKRNN_INSTANTIATE(LstmCellForwardArgs, T)         \
  BLOCKRNN_INSTANTIATE(LstmSequenceForwardArgs, T)     \
  BLOCKRNN_INSTANTIATE(SimpleRnnForwardArgs, T)

#if defined(BLOCKRNN_TEST_F32)
BLOCKRNN_INSTANTIATE_ALL(float)
#endif
#if defined(BLOCKRNN_TEST_F64)
BLOCKRNN_INSTANTIATE_ALL(double)
#endif

}  // namespace blockrnn::test
