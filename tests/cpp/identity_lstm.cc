// Instantiates the forward functions of the LSTM with identity activations.
// Compiled for the instruction set of the engine under test.

#include "cc/core/activations.h"
#include "cc/kernels/cpu/cells/lstm_block_cell.h"
#include "cc/kernels/cpu/cells/lstm_forward.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "tests/cpp/identity.h"

namespace blockrnn::test {
namespace {

template <class T>
cpu::Status Run(const LstmCellForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::LstmCellForward<T, IdentityActivations>(args, executor);
}
template <class T>
cpu::Status Run(const LstmSequenceForwardArgs<T>& args,
                const cpu::Executor& executor) {
  return cpu::LstmSequenceForward<T, IdentityActivations>(args, executor);
}

}  // namespace

template <class Args>
cpu::Status RunWithIdentity(const Args& args, const cpu::HostInterface& host) {
  const cpu::Executor executor(host);
  return Run(args, executor);
}

#if defined(BLOCKRNN_TEST_F32)
template cpu::Status RunWithIdentity(const LstmCellForwardArgs<float>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const LstmSequenceForwardArgs<float>&,
                                     const cpu::HostInterface&);
#endif
#if defined(BLOCKRNN_TEST_F64)
template cpu::Status RunWithIdentity(const LstmCellForwardArgs<double>&,
                                     const cpu::HostInterface&);
template cpu::Status RunWithIdentity(const LstmSequenceForwardArgs<double>&,
                                     const cpu::HostInterface&);
#endif

}  // namespace blockrnn::test
