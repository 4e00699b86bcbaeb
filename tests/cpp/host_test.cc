// What must not change a result: threads, when and whether they come, where
// tensors stand, other calls at the same time. And what must end a call well:
// no memory, a cancelled step.

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/heap.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

// A small one, where the engine does not share its work out, and ones where it
// does: few rows and many, in products and (33,000 elements) in pointwise
// passes.
const std::vector<Dims> kShapes = {
    {3, 5, 7}, {4, 200, 260}, {17, 90, 190}, {70, 33, 110}, {300, 3, 110},
};
constexpr int kThreads[] = {2, 3, 8};

const std::vector<Dims>& Shapes(const Op& op) {
  return op.sequence ? SharedSequences() : kShapes;
}

// One that is not shared out and one that is.
std::vector<Dims> TwoShapes(const Op& op) {
  if (op.sequence) return {{3, 5, 7, 4}, {40, 7, 56, 9}};
  return {{3, 5, 7}, {70, 33, 110}};
}

Case MakeCase(const Op& op, Type type, const Dims& dims, int variant) {
  Case c;
  c.op = &op;
  c.type = type;
  c.dims = dims;
  c.variant = variant % op.variants;
  return c;
}

Outcome ExpectSameBits(const Case& c, const Outcome& want, Failures* failures) {
  Outcome got = Run(c);
  failures->Expect(got.problem.empty(), Describe(c) + ": " + got.problem);
  failures->Expect(got.status == cpu::Status::kOk,
                   Describe(c) + ": the status is not kOk");
  failures->Expect(got.outputs == want.outputs, Describe(c) + ": other bits");
  return got;
}

void SameBits(const Op& op, Type type, Failures* failures) {
  int turn = 0;
  int closures = 0;
  for (int variant = 0; variant < 2; ++variant) {
    for (const Dims& dims : Shapes(op)) {
      Case c = MakeCase(op, type, dims, variant);
      const Outcome alone = Run(c);
      failures->Expect(alone.problem.empty(), Describe(c) + alone.problem);
      ExpectSameBits(c, alone, failures);
      c.offset = 1;
      ExpectSameBits(c, alone, failures);
      ++turn;
      for (const int threads : kThreads) {
        ++turn;
        for (int n = 0; n < 3; ++n) {
          // In the short form the pools take turns.
          if (!TestOptions().full && n != turn % 3) continue;
          c.offset = n % 2;
          c.host.num_threads = threads;
          c.host.pool = kPools[n];
          closures += ExpectSameBits(c, alone, failures).closures;
        }
      }
    }
  }
  failures->Expect(closures > 0, "no shape was large enough for a thread");
}

// Each allocation of a call fails once. Only its own failure may stop a call.
void OutOfMemory(const Op& op, Type type, Failures* failures) {
  // A call that allocates without end would otherwise never succeed.
  constexpr int kMostAllocations = 64;
  for (int variant = 0; variant < op.variants; ++variant) {
    for (const Dims& dims : TwoShapes(op)) {
      Case c = MakeCase(op, type, dims, variant);
      c.host.num_threads = 3;
      c.host.pool = Pool::kNever;
      for (int n = 0; n < kMostAllocations; ++n) {
        c.host.fail_allocation = n;
        const Outcome outcome = Run(c);
        failures->Expect(outcome.problem.empty(),
                         Describe(c) + outcome.problem);
        if (outcome.allocations <= n) {
          failures->Expect(outcome.status == cpu::Status::kOk,
                           Describe(c) + ": nothing failed, and not kOk");
          break;
        }
        failures->Expect(outcome.status == cpu::Status::kOutOfMemory,
                         Describe(c) + ": the status is not kOutOfMemory");
        failures->Expect(n + 1 < kMostAllocations,
                         Describe(c) + ": too many allocations");
      }
    }
  }
}

void Cancelled(const Op& op, Type type, Failures* failures) {
  for (const Dims& dims : TwoShapes(op)) {
    for (int cancel_at = 0; cancel_at < 3; ++cancel_at) {
      Case c = MakeCase(op, type, dims, 1);
      c.host.num_threads = 3;
      c.host.cancel_at = cancel_at;
      const Outcome outcome = Run(c);
      failures->Expect(outcome.problem.empty(), Describe(c) + outcome.problem);
      if (outcome.status == cpu::Status::kOk) {
        failures->Add(Compare(c, outcome));
      } else {
        failures->Expect(
            outcome.status == cpu::Status::kCancelled &&
                outcome.polls > cancel_at,
            Describe(c) + ": cancelled for nothing, or another status");
      }
    }
  }
}

// The same bits when everything that is not the host's scratch fails.
void DryHeap(const Op& op, Type type, Failures* failures) {
  if (!HeapCanRunDry()) return;
  for (int variant = 0; variant < 2; ++variant) {
    for (const Dims& dims : Shapes(op)) {
      Case c = MakeCase(op, type, dims, variant);
      c.host.num_threads = 3;
      const Outcome want = Run(c);
      c.heap_is_dry = true;
      ExpectSameBits(c, want, failures);
    }
  }
}

// Several callers at a time on one pool, mixed ops, types and shapes: the bits
// of calls that ran alone.
void Concurrent(Failures* failures) {
  constexpr int kCallers = 4;
  const int rounds = TestOptions().full ? 60 : 12;
  std::vector<Case> cases;
  std::vector<Outcome> alone;
  for (const Op& op : Ops()) {
    for (const Type type : kTypes) {
      if (!op.Takes(type)) continue;
      for (const Dims& dims : TwoShapes(op)) {
        cases.push_back(MakeCase(op, type, dims, 1));
        alone.push_back(Run(cases.back()));
      }
    }
  }
  std::vector<Failures> found(kCallers);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < rounds; ++round) {
        // Steps that differ, so that callers meet in other pairs each time.
        const std::size_t n =
            (round * (2 * caller + 1) + 7 * caller) % cases.size();
        Case c = cases[n];
        c.host.num_threads = 3;
        ExpectSameBits(c, alone[n], &found[caller]);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Failures& one : found) {
    for (const std::string& what : one.all()) failures->Add(what);
  }
}

const bool kTests[] = {
    AddOpTest("same_bits", &SameBits),
    AddOpTest("out_of_memory", &OutOfMemory),
    AddOpTest("cancelled", &Cancelled),
    AddOpTest("dry_heap", &DryHeap),
    AddTest("concurrent_calls", &Concurrent),
};

}  // namespace
}  // namespace blockrnn::test
