// Defines the variants (attributes and optional tensors) that the tests of the
// LSTM over a sequence use, the same for the forward and the backward op.

#ifndef BLOCKRNN_TESTS_CPP_LSTM_SEQUENCE_VARIANTS_H_
#define BLOCKRNN_TESTS_CPP_LSTM_SEQUENCE_VARIANTS_H_

#include <cstdint>
#include <limits>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {

class LstmVariant {
 public:
  explicit LstmVariant(int variant)
      : order(kOrders[variant]),
        options(kOptions[variant]),
        ifco(variant % 2 == 1),
        ci(ifco ? 2 : 1),
        f(ifco ? 1 : 2),
        layout(ifco ? kLstmIfco : kLstmIcfo),
        give_co(variant % 3 != 2 && !order.zones),
        projects(kProjects[variant]),
        wants_(kWants[variant]),
        given_(kGiven[variant]) {}

  const Order order;
  const LstmOptions options;
  const bool ifco;  // else icfo
  // The gates' places in weights and biases.
  const int64_t i = 0;
  const int64_t ci;
  const int64_t f;
  const int64_t o = 3;
  const LstmGateLayout layout;
  const bool give_co;  // to the backward op
  const bool projects;

  // P: the width of h, which a projection makes less than the number of units.
  int64_t Width(const Dims& d) const {
    return projects ? (d.units + 1) / 2 : d.units;
  }
  Steps StepsOf(const Dims& d) const { return Steps(d, order, 4); }

  // Whether the forward op computes an output.
  bool WantsGates() const { return wants_ <= Want::kTraining; }  // and cs
  bool WantsCo() const { return wants_ == Want::kAll; }
  bool WantsH() const { return wants_ != Want::kLast; }
  bool WantsLast() const {
    return wants_ == Want::kAll || wants_ == Want::kLast;
  }
  // Whether the backward op is given the gradient of an output.
  bool GivesCsGrad() const { return given_ == kGiveAll || given_ == kGiveCs; }
  bool GivesHGrad() const { return given_ == kGiveAll || given_ == kGiveH; }
  bool GivesLastGrads() const {
    return given_ == kGiveAll || given_ == kGiveLast;
  }

 private:
  enum class Want { kAll, kTraining, kInference, kLast };
  enum Given { kGiveAll, kGiveH, kGiveCs, kGiveLast, kGiveNothing };

  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Multiples of ½, so that the identity form stays exact.
  static constexpr LstmOptions kOptions[kNumOrders] = {
      {1.0f, 0.0f, false}, {0.5f, 0.5f, true},      {1.0f, 0.0f, true},
      {0.0f, 0.0f, false}, {1.0f, -1.0f, false},    {-2.5f, 0.5f, false},
      {1.0f, 0.0f, true},  {0.0f, 3.0f, true},      {0.0f, 0.5f, false},
      {1.0f, kNan, false}, {0.0f, kInfinity, true}, {1.0f, kInfinity, false},
      {1.0f, 0.0f, true},  {1.0f, 0.0f, false},     {0.5f, 0.0f, true},
  };
  static constexpr bool kProjects[kNumOrders] = {
      false, false, true, false, false, false, false, true,
      false, false, true, true,  false, true,  false,
  };
  static constexpr Want kWants[kNumOrders] = {
      Want::kAll, Want::kAll,       Want::kTraining,  Want::kInference,
      Want::kAll, Want::kLast,      Want::kAll,       Want::kTraining,
      Want::kAll, Want::kInference, Want::kInference, Want::kLast,
      Want::kAll, Want::kAll,       Want::kAll,
  };
  static constexpr Given kGiven[kNumOrders] = {
      kGiveAll,  kGiveAll, kGiveAll, kGiveH,    kGiveAll,
      kGiveLast, kGiveCs,  kGiveH,   kGiveLast, kGiveNothing,
      kGiveAll,  kGiveH,   kGiveAll, kGiveAll,  kGiveAll,
  };

  const Want wants_;
  const Given given_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_LSTM_SEQUENCE_VARIANTS_H_
