// Tests concurrent calls of all ops.

#include <cstddef>
#include <thread>
#include <vector>

#include "tests/cpp/op_tests.h"

namespace blockrnn::test {
namespace {

// Several callers on one pool, with mixed ops, types and shapes, get the same
// bits as calls that run alone.
TEST(Ops, ConcurrentCalls) {
  constexpr int kCallers = 4;
  const int rounds = FullLength() ? 60 : 12;
  std::vector<Case> cases;
  std::vector<Outcome> alone;
  for (const Op& op : Ops()) {
    for (const Type type : kTypes) {
      for (const Dims& dims : TwoShapes(op)) {
        cases.push_back(MakeCase(op, type, dims, 1));
        alone.push_back(RunCase(cases.back()));
      }
    }
  }
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < rounds; ++round) {
        // Different strides, so that other pairs of calls overlap each time.
        const std::size_t n =
            (round * (2 * caller + 1) + 7 * caller) % cases.size();
        Case c = cases[n];
        c.host.num_threads = 3;
        ExpectSameBits(c, alone[n]);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace blockrnn::test
