// Instantiates the forward functions of the LSTM with identity activations.
// Compiled for the instruction set of the engine under test.

#include "tests/cpp/identity_functions.h"

namespace blockrnn::test {

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
