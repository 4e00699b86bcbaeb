// Declares a layer of float, of any cell, with frozen weights: its calls, and
// an oracle of one step that is written from the equations and from how
// cc/kernels/cpu/gemm/int8_panel.h defines quantised weights and rows.

#ifndef BLOCKRNN_TESTS_CPP_FLOAT_LAYER_H_
#define BLOCKRNN_TESTS_CPP_FLOAT_LAYER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/core/simple_rnn_cell.h"
#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/op.h"
#include "tests/cpp/random.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {

enum class Cell { kLstm, kLstmProjected, kGru, kGruAfter, kTanh, kRelu };
inline constexpr Cell kCells[] = {Cell::kLstm, Cell::kLstmProjected,
                                  Cell::kGru,  Cell::kGruAfter,
                                  Cell::kTanh, Cell::kRelu};
const char* Name(Cell cell);

inline constexpr Precision kPrecisions[] = {
    Precision::kStorage, Precision::kBFloat16, Precision::kInt8};

struct Matrix {
  int64_t depth = 0;
  int64_t columns = 0;
  std::vector<float> w;  // [depth, columns]

  const float* data() const { return w.empty() ? nullptr : w.data(); }
};

struct FloatLayer {
  FloatLayer(Cell cell, int64_t input, int64_t units);

  // Of h.
  int64_t Width() const {
    return cell == Cell::kLstmProjected ? (units + 1) / 2 : units;
  }
  bool IsLstm() const { return cell <= Cell::kLstmProjected; }

  Cell cell;
  int64_t input;
  int64_t units;
  // Gates i, f, c, o; r, u, c; or one.
  Matrix w_x;  // [I, gates · H]; of a GRU the gates r, u
  Matrix w_h;  // [P, gates · H]; of a GRU the gates r, u
  Matrix w_2;  // of a GRU the candidate's [H, H]; of a projection [H, P]
  Matrix w_c;  // of a GRU the candidate's [I, H]
  std::vector<float> b;    // [gates · H]
  std::vector<float> b_h;  // [gates · H]; of an LSTM and a GRU empty
};

// The inputs of a call and what it computes, time-major.
struct LayerCall {
  LayerCall(const FloatLayer& layer, int64_t steps, int64_t batch,
            uint64_t seed = 1);

  // The call of one row alone, with its inputs.
  LayerCall Row(const FloatLayer& layer, int64_t b) const;

  int64_t steps;
  int64_t batch;
  std::vector<float> x;        // [T, B, I]
  std::vector<float> h_prev;   // [B, P]
  std::vector<float> cs_prev;  // [B, H]
  std::vector<float> h;        // [T, B, P], computed
  std::vector<float> cs;       // [T, B, H], computed by an LSTM
  std::vector<float> first;    // [T, B, H], computed: o of an LSTM, r of a GRU
  std::vector<float> second;   // [T, B, H], computed: co of an LSTM
};

// The weights of a layer, packed.
class FrozenFloatLayer {
 public:
  FrozenFloatLayer(const FloatLayer& layer, Precision precision,
                   int threads = 1, int filled = 0xFF);

  // Without the weights themselves. Throws if the call fails.
  void Run(LayerCall* call, int threads = 1,
           bool batch_invariant = false) const;

  // The packed weights.
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  const FloatLayer layer_;
  std::vector<unsigned char> bytes_;
  // Of which one is there.
  std::vector<PackedLayer<LstmSequenceForwardArgs<float>>> lstm_;
  std::vector<PackedLayer<GruSequenceForwardArgs<float>>> gru_;
  std::vector<PackedLayer<GruAfterSequenceForwardArgs<float>>> gru_after_;
  std::vector<PackedLayer<SimpleRnnForwardArgs<float>>> simple_rnn_;
};

// The same call with weights that are not frozen.
void RunInPlace(const FloatLayer& layer, LayerCall* call, int threads = 1,
                bool batch_invariant = false);

// What a call has computed that the oracle does not: empty if nothing. Every
// step is compared by itself, from the state that the previous one has left.
std::string CompareSteps(const FloatLayer& layer, Precision precision,
                         const LayerCall& call);

// Row b of a computed sequence [T, B, width].
std::vector<float> RowOf(const std::vector<float>& sequence,
                         const LayerCall& call, int64_t b, int64_t width);

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_FLOAT_LAYER_H_
