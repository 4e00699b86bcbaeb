// Instantiates the forward functions of the GRUs with identity activations.
// Compiled for the instruction set of the engine under test.

#include "tests/cpp/identity_functions.h"

namespace blockrnn::test {

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
