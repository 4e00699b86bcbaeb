// Defines the reserve space, what the forward of the cuDNN ops saves for their
// backward: a header that identifies the call, then the arrays.
//
//   header       128 bytes
//   the steps    for each layer direction lstm i, f, o, ci, cs; gru r, u, c,
//   hc;
//                rnn nothing; each [N, H], N the sum of the lengths
//   h            for each layer but the last [T·B, D·P], before dropout
//   the masks    with dropout, for each layer but the last a bit per element
//                of h, 1 where it is kept, the lowest bit of a byte first
//
// In bytes, all rounded up to 64 one by one:
//   128 + L·D·k·(N·H·e) + (L-1)·(T·B·D·P·e) + (L-1)·(T·B·D·P/8 with dropout),
// k 5 for lstm, 4 for gru, 0 for rnn; e the bytes of an element. The op's own
// outputs are not saved twice. XLA, which has to know sizes before it knows
// lengths, gives it the bytes of N = T·B; zeros follow then.

#ifndef BLOCKRNN_CORE_RESERVE_SPACE_H_
#define BLOCKRNN_CORE_RESERVE_SPACE_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "cc/core/checked_int.h"
#include "cc/core/param_layout.h"

namespace blockrnn {

inline constexpr int64_t kReserveAlignment = 64;
inline constexpr int64_t kReserveHeaderBytes = 128;

enum class ReserveDevice : uint32_t { kCpu = 1, kCuda = 2 };

struct ReserveHeader {
  static constexpr uint64_t kMagic = 0x31766e6e724b4c42;  // "BLKrnnv1"
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  ReserveDevice device = ReserveDevice::kCpu;
  RnnMode mode = RnnMode::kLstm;
  int32_t element_size = 0;
  int32_t projected = 0;
  int32_t skip_input = 0;
  int32_t time_major = 1;
  float dropout = 0.0f;
  int64_t layers = 0;
  int64_t directions = 0;
  int64_t input = 0;
  int64_t units = 0;
  int64_t proj = 0;
  int64_t steps = 0;
  int64_t batch = 0;
  int64_t valid_rows = 0;
  uint64_t lengths_hash = 0;
};
static_assert(std::is_trivially_copyable_v<ReserveHeader>);
static_assert(sizeof(ReserveHeader) == 112, "no padding");
static_assert(sizeof(ReserveHeader) <= kReserveHeaderBytes);

// Σ lengths, or T·B where lengths is nullptr.
inline int64_t ValidRows(int64_t steps, int64_t batch, const int64_t* lengths) {
  if (lengths == nullptr) return steps * batch;
  int64_t rows = 0;
  for (int64_t b = 0; b < batch; ++b) rows += lengths[b];
  return rows;
}

// Tells lengths from others; 0 where every row has all steps, said or not.
inline uint64_t LengthsHash(int64_t steps, int64_t batch,
                            const int64_t* lengths) {
  if (lengths == nullptr) return 0;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, a length at a time
  bool all = true;
  for (int64_t b = 0; b < batch; ++b) {
    hash = (hash ^ static_cast<uint64_t>(lengths[b])) * 0x100000001b3;
    all = all && lengths[b] == steps;
  }
  return all ? 0 : hash;
}

// The header of a call; Args is RnnStackForwardArgs or RnnStackBackwardArgs.
template <class Args>
ReserveHeader MakeReserveHeader(const Args& args, int64_t element_size,
                                ReserveDevice device) {
  const RnnGeometry& g = args.geometry;
  ReserveHeader header;
  header.device = device;
  header.mode = g.mode;
  header.element_size = static_cast<int32_t>(element_size);
  header.projected = g.projected;
  header.skip_input = g.skip_input;
  header.time_major = args.time_major;
  header.dropout = args.dropout;
  header.layers = g.layers;
  header.directions = g.directions;
  header.input = g.input;
  header.units = g.units;
  header.proj = g.proj;
  header.steps = args.steps;
  header.batch = args.batch;
  header.valid_rows = ValidRows(args.steps, args.batch, args.lengths);
  header.lengths_hash = LengthsHash(args.steps, args.batch, args.lengths);
  return header;
}

// The arrays that are saved of each layer direction, in their order.
enum LstmSaved { kSavedI, kSavedF, kSavedO, kSavedCi, kSavedCs, kLstmArrays };
enum GruSaved { kSavedR, kSavedU, kSavedC, kSavedHc, kGruArrays };

// The offsets of everything, in bytes from the reserve space's beginning.
class ReserveLayout {
 public:
  static int Arrays(RnnMode mode) {
    switch (mode) {
      case RnnMode::kLstm:
        return kLstmArrays;
      case RnnMode::kGru:
        return kGruArrays;
      default:
        return 0;
    }
  }

  // The bytes of it all; nullopt where they overflow int64. params of the
  // geometry do not.
  static std::optional<int64_t> Bytes(const RnnGeometry& g, int64_t steps,
                                      int64_t batch, int64_t valid_rows,
                                      int64_t element_size, bool dropout) {
    const CheckedInt array =
        (CheckedInt(valid_rows) * g.units * element_size).RoundUp(kAlign);
    const CheckedInt elements = CheckedInt(steps) * batch * g.OutputWidth();
    const CheckedInt h = (elements * element_size).RoundUp(kAlign);
    const CheckedInt mask =
        dropout ? elements.DivideUp(8).RoundUp(kAlign) : CheckedInt(0);
    return (CheckedInt(kReserveHeaderBytes) +
            CheckedInt(g.layer_directions()) * Arrays(g.mode) * array +
            CheckedInt(g.layers - 1) * (h + mask))
        .value();
  }

  // Of a call that Bytes has a number for.
  ReserveLayout(const RnnGeometry& g, int64_t steps, int64_t batch,
                int64_t valid_rows, int64_t element_size, bool dropout)
      : layer_directions_(g.layer_directions()),
        between_(g.layers - 1),
        arrays_(Arrays(g.mode)),
        array_used_(valid_rows * g.units * element_size),
        array_bytes_(Aligned(array_used_)),
        largest_(Bytes(g, steps, batch, steps * batch, element_size, dropout)) {
    const int64_t elements = steps * batch * g.OutputWidth();
    h_used_ = elements * element_size;
    h_bytes_ = Aligned(h_used_);
    mask_used_ = dropout ? (elements + 7) / 8 : 0;
    mask_bytes_ = Aligned(mask_used_);
    h_offset_ = Array(layer_directions_, 0);
    mask_offset_ = H(between_);
    total_ = Mask(between_);
  }

  int64_t total() const { return total_; }
  // With N = T·B; nullopt where that overflows.
  std::optional<int64_t> largest() const { return largest_; }

  // An array [N, H] of a layer direction: LstmSaved or GruSaved.
  int64_t Array(int64_t dir, int index) const {
    // In this order nothing overflows: of arrays of 0 bytes there may be 2^61.
    return kReserveHeaderBytes + dir * (arrays_ * array_bytes_) +
           index * array_bytes_;
  }
  // h and the mask of a layer, which is not the last.
  int64_t H(int64_t layer) const { return h_offset_ + layer * h_bytes_; }
  int64_t Mask(int64_t layer) const {
    return mask_offset_ + layer * mask_bytes_;
  }

  // The gaps that rounding up leaves after arrays: from `offset` on `count` of
  // them, one every `stride` bytes, of which `used` are the array's.
  struct Gaps {
    int64_t offset = 0;
    int64_t count = 0;  // 0 where there is no gap
    int64_t used = 0;
    int64_t stride = 0;
  };
  struct AllGaps {
    Gaps of[3];
  };
  AllGaps gaps() const {
    return {{GapsBehind(kReserveHeaderBytes, layer_directions_ * arrays_,
                        array_used_),
             GapsBehind(h_offset_, between_, h_used_),
             GapsBehind(mask_offset_, between_, mask_used_)}};
  }

  // Zeros in the gaps, so that all of a reserve space is written and follows
  // from the call.
  void ClearGaps(void* reserve) const {
    for (const Gaps& gaps : this->gaps().of) {
      char* end = static_cast<char*>(reserve) + gaps.offset + gaps.used;
      for (int64_t n = 0; n < gaps.count; ++n, end += gaps.stride) {
        std::memset(end, 0, gaps.stride - gaps.used);
      }
    }
  }

 private:
  static constexpr int64_t kAlign = kReserveAlignment;

  static int64_t Aligned(int64_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }

  // The arrays of a stack without units are empty and may be without number.
  static Gaps GapsBehind(int64_t offset, int64_t count, int64_t used) {
    const int64_t stride = Aligned(used);
    return {offset, stride == used ? 0 : count, used, stride};
  }

  int64_t layer_directions_;
  int64_t between_;  // L - 1
  int arrays_;
  int64_t array_used_;
  int64_t array_bytes_;  // rounded up, as the others
  int64_t h_used_;
  int64_t h_bytes_;
  int64_t mask_used_;
  int64_t mask_bytes_;
  int64_t h_offset_;
  int64_t mask_offset_;
  int64_t total_;
  std::optional<int64_t> largest_;
};

// What is wrong with the size of a reserve space for a call with this layout,
// as the end of a sentence about it; empty where nothing is.
inline std::string ReserveSizeMismatch(int64_t bytes,
                                       const ReserveLayout& layout) {
  if (bytes == layout.total() || bytes == layout.largest()) return "";
  return "has " + std::to_string(bytes) + " bytes, but this call's has " +
         std::to_string(layout.total());
}

// The same for all of a reserve space that the host reads.
inline std::string ReserveMismatch(const void* reserve, int64_t bytes,
                                   const ReserveHeader& expected,
                                   const ReserveLayout& layout) {
  ReserveHeader given;
  if (bytes < kReserveHeaderBytes) {
    return "has " + std::to_string(bytes) + " bytes, fewer than its header's " +
           std::to_string(kReserveHeaderBytes);
  }
  std::memcpy(&given, reserve, sizeof(given));
  if (given.magic != expected.magic) {
    return "does not begin with the mark of one";
  }
  std::string mismatch;
  const auto compare = [&](const char* what, auto of_reserve, auto of_call) {
    if (!mismatch.empty() || of_reserve == of_call) return;
    mismatch = std::string("is of another call: its ") + what + " is " +
               std::to_string(of_reserve) + ", this call's " +
               std::to_string(of_call);
  };
  const auto number = [](auto value) { return static_cast<int64_t>(value); };
  compare("version", given.version, expected.version);
  compare("device (1 CPU, 2 CUDA)", number(given.device),
          number(expected.device));
  compare("rnn_mode (0 rnn_relu, 1 rnn_tanh, 2 lstm, 3 gru)",
          number(given.mode), number(expected.mode));
  compare("number of layers", given.layers, expected.layers);
  compare("number of directions", given.directions, expected.directions);
  compare("input size", given.input, expected.input);
  compare("number of units", given.units, expected.units);
  compare("projection (0 none)", given.projected, expected.projected);
  compare("projected size", given.proj, expected.proj);
  compare("number of steps", given.steps, expected.steps);
  compare("batch", given.batch, expected.batch);
  compare("input_mode (0 linear, 1 skip)", given.skip_input,
          expected.skip_input);
  compare("time_major", given.time_major, expected.time_major);
  compare("bytes of an element", given.element_size, expected.element_size);
  compare("dropout", given.dropout, expected.dropout);
  compare("sum of sequence_lengths", given.valid_rows, expected.valid_rows);
  compare("hash of sequence_lengths", given.lengths_hash,
          expected.lengths_hash);
  return mismatch.empty() ? ReserveSizeMismatch(bytes, layout) : mismatch;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RESERVE_SPACE_H_
