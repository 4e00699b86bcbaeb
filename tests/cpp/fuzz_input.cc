#include "tests/cpp/fuzz_input.h"

#include <algorithm>
#include <iterator>

#include "tests/cpp/harness.h"

namespace blockrnn::test {
namespace {

// Values from here on are written with a second byte.
constexpr int kOneByte = 240;
constexpr int kPerByte = 48;

// Reads the fields of an input.
class Reader {
 public:
  Reader(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  template <class Values, class Value>
  void OneOf(const Values& values, Value* value) {
    *value = values[Byte() % std::size(values)];
  }
  // Mostly 0 … few − 1, sometimes up to 767 more.
  void Number(int few, int64_t* value) {
    const int byte = Byte();
    *value = byte < kOneByte
                 ? byte % few
                 : few + (byte - kOneByte) * kPerByte + Byte() % kPerByte;
  }
  // 0 … limit − 1, of `bytes` bytes.
  template <class Value>
  void Below(Value limit, int bytes, Value* value) {
    *value = 0;
    for (int n = 0; n < bytes; ++n) *value = *value * 256 + Byte();
    *value %= limit;
  }
  // 0 … most, and mostly `most`.
  void UpTo(int most, int* value) { *value = std::min(Byte(), most); }

 private:
  int Byte() { return at_ < size_ ? data_[at_++] : 0; }

  const uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// Writes them, of values that may be read. Of others it writes something.
class Writer {
 public:
  template <class Values, class Value>
  void OneOf(const Values& values, const Value* value) {
    Byte(std::find(std::begin(values), std::end(values), *value) -
         std::begin(values));
  }
  void Number(int few, const int64_t* value) {
    const int64_t more = *value - few;
    if (more < 0) return Byte(*value);
    Byte(kOneByte + more / kPerByte);
    Byte(more % kPerByte);
  }
  template <class Value>
  void Below(Value, int bytes, const Value* value) {
    for (int n = bytes - 1; n >= 0; --n) {
      Byte(static_cast<int64_t>(*value >> 8 * n));
    }
  }
  void UpTo(int, const int* value) { Byte(*value); }

  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  void Byte(int64_t value) { bytes_.push_back(static_cast<uint8_t>(value)); }

  std::vector<uint8_t> bytes_;
};

constexpr bool kNoYes[] = {false, true};
constexpr Data kData[] = {Data::kPlain, Data::kLarge, Data::kTiny,
                          Data::kSpecials, Data::kIntegers};
constexpr int kOffsets[] = {0, 1};
constexpr int kThreads[] = {1, 2, 3, 8};
constexpr WeightForm::Kind kKinds[] = {
    WeightForm::kAsDrawn, WeightForm::kFrozen, WeightForm::kInPlace,
    WeightForm::kAsDrawn};
constexpr Precision kPrecisions[] = {Precision::kStorage, Precision::kBFloat16,
                                     Precision::kInt8};
constexpr float kHardSigmoids[] = {0, 0.2f, 1.0f / 6};

// A host's allocation that fails, or its poll that cancels, or neither.
template <class Archive>
void TroubleField(Archive* archive, HostOptions* host) {
  constexpr int kFirst = 24;
  constexpr int kNone = 2 * kFirst;
  int trouble = kNone;
  if (host->cancel_at >= 0) trouble = kFirst + host->cancel_at % kFirst;
  if (host->fail_allocation >= 0) trouble = host->fail_allocation % kFirst;
  archive->UpTo(kNone, &trouble);
  host->fail_allocation = trouble < kFirst ? trouble : -1;
  host->cancel_at =
      trouble >= kFirst && trouble < kNone ? trouble - kFirst : -1;
}

// All fields of an input, which an archive reads or writes in this order.
// Mostly small sizes, where the ends of vectors, tiles and panels are.
template <class Archive>
void ForEachField(Archive* archive, FuzzInput* input) {
  Case& c = input->c;
  std::vector<const Op*> ops;
  for (const Op& op : Ops()) ops.push_back(&op);
  archive->OneOf(ops, &c.op);
  archive->OneOf(kTypes, &c.type);
  bool more = c.variant >= c.op->variants;
  archive->OneOf(kNoYes, &more);
  const int first = more && c.op->more_variants > 0 ? c.op->variants : 0;
  int variant = c.variant - first;
  if (first > 0) {
    archive->Below(c.op->more_variants, 3, &variant);
  } else {
    archive->Below(c.op->variants, 1, &variant);
  }
  c.variant = first + variant;
  archive->OneOf(kData, &c.data);
  archive->OneOf(kOffsets, &c.offset);
  archive->OneOf(kThreads, &c.host.num_threads);
  archive->OneOf(kPools, &c.host.pool);
  TroubleField(archive, &c.host);
  archive->Number(41, &c.dims.batch);
  archive->Number(41, &c.dims.input);
  archive->Number(41, &c.dims.units);
  archive->Number(6, &c.dims.steps);
  archive->Below(uint64_t{1} << 16, 2, &c.seed);
  archive->OneOf(kKinds, &c.weights.kind);
  archive->OneOf(kPrecisions, &c.weights.precision);
  archive->OneOf(kNoYes, &c.batch_invariant);
  archive->OneOf(kHardSigmoids, &c.activations.hard_sigmoid);
  archive->OneOf(kNoYes, &c.activations.relu);
  archive->OneOf(kNoYes, &input->trains);
  archive->Number(6, &input->span_steps);
  archive->OneOf(kNoYes, &input->saved_in_steps);
}

int64_t Work(const Case& c) {
  const Dims& d = c.dims;
  return d.batch * d.steps * (d.units + 1) * (d.units + d.input + 8);
}

// The numbers of all its inputs and outputs: a stack has those of each layer.
int64_t Numbers(const Case& c) {
  int64_t numbers = 0;
  for (const auto& specs :
       {c.op->inputs(c.dims, c.variant), c.op->outputs(c.dims, c.variant)}) {
    for (const TensorSpec& spec : specs) numbers += spec.count;
  }
  return numbers;
}

// Makes a case such as tests may have. Numbers other than plain ones test
// something only over few steps; integers have to stay exact.
void Restrict(Case* c) {
  const Op& op = *c->op;
  if (!op.ForwardSequence()) {
    c->weights = {};
    c->batch_invariant = false;
  }
  if (c->weights.kind != WeightForm::kFrozen || c->type != Type::kFloat) {
    c->weights.precision = Precision::kStorage;
  }
  // The identity form is for types that hold the integers exactly.
  const bool has_identity = op.has_identity && SizeOf(c->type) >= 4 &&
                            c->weights.kind == WeightForm::kAsDrawn;
  if (c->HasIdentity() && !has_identity) c->data = Data::kPlain;
  if (!op.has_activations || c->type != Type::kFloat || c->HasIdentity()) {
    c->activations = {};
  }
  Dims& d = c->dims;
  if (!op.sequence) d.steps = 1;
  if (c->data != Data::kPlain) d.steps = std::min<int64_t>(d.steps, 5);
  if (c->HasIdentity()) d.steps = std::min(d.steps, op.exact_steps);
  // The reference takes about a tenth of a second for so much.
  constexpr int64_t kMostWork = 2 << 20;
  constexpr int64_t kMostNumbers = 2 << 20;
  while (Work(*c) > kMostWork || Numbers(*c) > kMostNumbers) {
    *std::max({&d.batch, &d.input, &d.units, &d.steps},
              [](const int64_t* a, const int64_t* b) { return *a < *b; }) /= 2;
  }
}

// A training call is of float, of a host without trouble.
void RestrictTraining(FuzzInput* input) {
  Case& c = input->c;
  input->trains &= c.op->ForwardSequence() && c.type == Type::kFloat;
  if (!input->trains) {
    input->span_steps = 0;
    input->saved_in_steps = false;
    return;
  }
  const Case all = c;
  c = {};
  c.op = all.op;
  c.variant = all.variant;
  c.dims = all.dims;
}

}  // namespace

std::string Describe(const FuzzInput& input) {
  return Describe(input.c) + " trains=" + std::to_string(input.trains) +
         " span_steps=" + std::to_string(input.span_steps) +
         " saved_in_steps=" + std::to_string(input.saved_in_steps);
}

FuzzInput Decode(const uint8_t* data, std::size_t size) {
  FuzzInput input;
  input.c.op = Ops().data();
  Reader reader(data, size);
  ForEachField(&reader, &input);
  Restrict(&input.c);
  RestrictTraining(&input);
  return input;
}

std::optional<std::vector<uint8_t>> Encode(const FuzzInput& input) {
  Writer writer;
  FuzzInput copy = input;
  ForEachField(&writer, &copy);
  const FuzzInput read = Decode(writer.bytes().data(), writer.bytes().size());
  if (input.c.edit || Describe(read) != Describe(input)) return std::nullopt;
  return writer.bytes();
}

}  // namespace blockrnn::test
