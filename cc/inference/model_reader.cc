// The structs have no padding: a member that is added to it would not change
// their size, and what a program leaves in it would count as a member.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include "cc/inference/blockrnn.h"
#pragma GCC diagnostic pop

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "cc/inference/model_reader.h"

namespace blockrnn {
namespace {

// No version of a struct is larger than this. A larger struct_size is taken for
// an error, and nothing of that length is read.
constexpr std::size_t kMostBytes = 4096;

// The name of each struct, and its least size, which is where the last member
// ends that it had in the API version that added it.
template <class Struct>
struct Facts;
template <>
struct Facts<blockrnn_direction> {
  static constexpr char kName[] = "blockrnn_direction";
  static constexpr std::size_t kLeastBytes =
      offsetof(blockrnn_direction, norm_c) + sizeof(const float*);
};
template <>
struct Facts<blockrnn_layer> {
  static constexpr char kName[] = "blockrnn_layer";
  static constexpr std::size_t kLeastBytes =
      offsetof(blockrnn_layer, backward) + sizeof(const blockrnn_direction*);
};
template <>
struct Facts<blockrnn_model> {
  static constexpr char kName[] = "blockrnn_model";
  static constexpr std::size_t kLeastBytes =
      offsetof(blockrnn_model, layers) + sizeof(const blockrnn_layer*);
};
template <>
struct Facts<blockrnn_sequences> {
  static constexpr char kName[] = "blockrnn_sequences";
  static constexpr std::size_t kLeastBytes =
      offsetof(blockrnn_sequences, y) + sizeof(float*);
};

// struct_size is the first member.
std::size_t StructSize(const void* given) {
  std::size_t size;
  std::memcpy(&size, given, sizeof(size));
  return size;
}

// `where` begins the error's text.
template <class Struct>
SessionStatus ReadStruct(const void* given, const std::string& where,
                         Struct* read) {
  constexpr std::size_t kLeast = Facts<Struct>::kLeastBytes;
  static_assert(offsetof(Struct, struct_size) == 0);
  const std::string name = Facts<Struct>::kName;
  const std::size_t size = StructSize(given);
  if (size < kLeast || size > kMostBytes || size % alignof(Struct) != 0) {
    return InvalidArgument(
        where + "struct_size must be sizeof(" + name + "), at least " +
        std::to_string(kLeast) + " and a multiple of " +
        std::to_string(alignof(Struct)) + ", got " + std::to_string(size));
  }
  *read = {};
  std::memcpy(read, given, std::min(size, sizeof(Struct)));
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof(Struct); at < size; ++at) {
    if (bytes[at] == 0) continue;
    return InvalidArgument(
        where + "the member at byte " + std::to_string(at) + " of " + name +
        " must be zero, since this library, of API version " +
        std::to_string(BLOCKRNN_API_VERSION) + ", knows the first " +
        std::to_string(sizeof(Struct)) +
        " bytes: a library as new as the program's blockrnn.h takes it");
  }
  return {};
}

std::string LayerName(std::size_t n) {
  return "layer " + std::to_string(n) + ": ";
}

}  // namespace

SessionStatus ModelReader::Read(const blockrnn_model* given) {
  if (given == nullptr) return InvalidArgument("model must not be NULL");
  SessionStatus status = ReadStruct(given, "model: ", &model_);
  if (!status.ok()) return status;
  if (model_.num_layers < 1 || model_.layers == nullptr) {
    return InvalidArgument(
        "num_layers must be at least 1, and layers not NULL");
  }
  status = ReadLayers();
  return status.ok() ? ReadDirections() : status;
}

SessionStatus ModelReader::ReadLayers() {
  const auto* const first = reinterpret_cast<const char*>(model_.layers);
  // The caller's, not this library's, is the distance between two layers.
  const std::size_t stride = StructSize(first);
  for (std::size_t n = 0; n < static_cast<std::size_t>(model_.num_layers);
       ++n) {
    const char* const given = first + n * stride;
    if (const std::size_t size = StructSize(given); size != stride) {
      return InvalidArgument(
          LayerName(n) + "struct_size must be that of layer 0, " +
          std::to_string(stride) + ", got " + std::to_string(size));
    }
    SessionStatus status =
        ReadStruct(given, LayerName(n), &layers_.emplace_back());
    if (!status.ok()) return status;
  }
  model_.layers = layers_.data();
  return {};
}

SessionStatus ModelReader::ReadDirections() {
  directions_.reserve(2 * layers_.size());  // for pointers to them
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    blockrnn_layer& layer = layers_[n];
    for (const blockrnn_direction** direction :
         {&layer.forward, &layer.backward}) {
      if (*direction == nullptr) continue;
      SessionStatus status = ReadStruct(
          *direction,
          LayerName(n) +
              (direction == &layer.forward ? "forward, " : "backward, "),
          &directions_.emplace_back());
      if (!status.ok()) return status;
      *direction = &directions_.back();
    }
  }
  return {};
}

SessionStatus ReadSequences(const blockrnn_sequences* given,
                            blockrnn_sequences* read) {
  if (given == nullptr) return InvalidArgument("sequences must not be NULL");
  return ReadStruct(given, "sequences: ", read);
}

}  // namespace blockrnn
