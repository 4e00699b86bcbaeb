// Defines the variants (attributes and optional tensors) that the tests of both
// GRUs over a sequence use, the same for the forward and the backward op.

#ifndef BLOCKRNN_TESTS_CPP_GRU_SEQUENCE_VARIANTS_H_
#define BLOCKRNN_TESTS_CPP_GRU_SEQUENCE_VARIANTS_H_

#include "tests/cpp/sequence.h"

namespace blockrnn::test {

class GruVariant {
 public:
  explicit GruVariant(int variant)
      : order(kOrders[variant]),
        wants_(kWants[variant]),
        given_(kGiven[variant]) {}

  const Order order;

  Steps StepsOf(const Dims& d) const { return Steps(d, order, 3); }

  // Whether the forward op computes an output.
  bool WantsGates() const { return wants_ <= kTraining; }
  bool WantsH() const { return wants_ != kLast; }
  bool WantsLast() const { return wants_ == kAll || wants_ == kLast; }
  // Whether the backward op is given the gradient of an output.
  bool GivesHGrad() const { return given_ == kGiveBoth || given_ == kGiveH; }
  bool GivesLastGrad() const {
    return given_ == kGiveBoth || given_ == kGiveLast;
  }

 private:
  enum Want { kAll, kTraining, kInference, kLast };
  enum Given { kGiveBoth, kGiveH, kGiveLast, kGiveNothing };

  static constexpr Want kWants[kNumOrders] = {
      kAll, kAll,       kTraining,  kInference, kAll, kLast, kAll, kTraining,
      kAll, kInference, kInference, kLast,      kAll, kAll,  kAll,
  };
  static constexpr Given kGiven[kNumOrders] = {
      kGiveBoth, kGiveBoth, kGiveBoth, kGiveH,    kGiveBoth,
      kGiveLast, kGiveH,    kGiveH,    kGiveLast, kGiveNothing,
      kGiveBoth, kGiveH,    kGiveBoth, kGiveBoth, kGiveBoth,
  };

  const Want wants_;
  const Given given_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_GRU_SEQUENCE_VARIANTS_H_
