// Instantiates the forward functions of the simple RNN with identity
// activations. Compiled for the instruction set of the engine under test.

#include "cc/core/activations.h"
#include "cc/kernels/cpu/cells/simple_rnn.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "tests/cpp/identity.h"

namespace blockrnn::test {
namespace {

template <class T>
cpu::Status Run(const SimpleRnnForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::SimpleRnnForward<T, IdentityActivations>(args, executor);
}

}  // namespace

template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host) {
  const cpu::Executor executor(host);
  return Run(args, executor);
}

#if defined(BLOCKRNN_TEST_F32)
template cpu::Status RunWithIdentity(const SimpleRnnForwardArgs<float>&,
                                     const cpu::HostInterface&);
#endif
#if defined(BLOCKRNN_TEST_F64)
template cpu::Status RunWithIdentity(const SimpleRnnForwardArgs<double>&,
                                     const cpu::HostInterface&);
#endif

}  // namespace blockrnn::test
