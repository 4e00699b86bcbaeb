// Instantiates the forward functions of the GRUs with identity activations.
// Compiled for the instruction set of the engine under test.

#include "cc/core/activations.h"
#include "cc/kernels/cpu/cells/gru.h"
#include "cc/kernels/cpu/cells/gru_after.h"
#include "cc/kernels/cpu/cells/gru_block_cell.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "tests/cpp/identity.h"

namespace blockrnn::test {
namespace {

template <class T>
cpu::Status Run(const GruCellForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::GruCellForward<T, IdentityActivations>(args, executor);
}
template <class T>
cpu::Status Run(const GruSequenceForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::GruSequenceForward<T, IdentityActivations>(args, executor);
}
template <class T>
cpu::Status Run(const GruAfterSequenceForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::GruAfterSequenceForward<T, IdentityActivations>(args, executor);
}

}  // namespace

template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host) {
  const cpu::Executor executor(host);
  return Run(args, executor);
}

#if defined(BLOCKRNN_TEST_F32)
template cpu::Status RunWithIdentity(const GruCellForwardArgs<float>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const GruSequenceForwardArgs<float>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const GruAfterSequenceForwardArgs<float>&,
                                     const cpu::HostInterface&);
#endif
#if defined(BLOCKRNN_TEST_F64)
template cpu::Status RunWithIdentity(const GruCellForwardArgs<double>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const GruSequenceForwardArgs<double>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const GruAfterSequenceForwardArgs<double>&,
                                     const cpu::HostInterface&);
#endif

}  // namespace blockrnn::test
