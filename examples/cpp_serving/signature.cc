// Implements the reading of signatures, from the wire format of Protocol
// Buffers: a message is a sequence of keys, each a field number and a type,
// with a number or a string of bytes after it.

#include "signature.h"

#include <cstdlib>
#include <stdexcept>

namespace {

// The bytes of a message or a string.
struct Bytes {
  const char* begin;
  const char* end;
};

// The fields of a message, in their order.
class Reader {
 public:
  explicit Reader(Bytes bytes) : at_(bytes.begin), end_(bytes.end) {}

  // Goes to the next field; false at the end of the message.
  bool Next() {
    if (at_ == end_) return false;
    const uint64_t key = ReadVarint();
    field_ = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        number_ = ReadVarint();
        break;
      case 1:
        Skip(8);
        break;
      case 2:
        bytes_ = Skip(ReadVarint());
        break;
      case 5:
        Skip(4);
        break;
      default:
        throw std::runtime_error("the SavedModel's signatures are corrupt");
    }
    return true;
  }

  int field() const { return field_; }
  int64_t number() const { return static_cast<int64_t>(number_); }
  Bytes bytes() const { return bytes_; }
  std::string text() const { return {bytes_.begin, bytes_.end}; }

 private:
  uint64_t ReadVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(*Skip(1).begin);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("the SavedModel's signatures are corrupt");
  }

  Bytes Skip(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) {
      throw std::runtime_error("the SavedModel's signatures are corrupt");
    }
    const Bytes skipped = {at_, at_ + count};
    at_ = skipped.end;
    return skipped;
  }

  const char* at_;
  const char* end_;
  int field_ = 0;
  uint64_t number_ = 0;
  Bytes bytes_ = {nullptr, nullptr};
};

// TensorShapeProto.
std::vector<int64_t> ReadShape(Bytes bytes) {
  std::vector<int64_t> dims;
  for (Reader shape(bytes); shape.Next();) {
    if (shape.field() != 2) continue;
    int64_t size = 0;
    for (Reader dim(shape.bytes()); dim.Next();) {
      if (dim.field() == 1) size = dim.number();
    }
    dims.push_back(size);
  }
  return dims;
}

// TensorInfo.
TensorInfo ReadTensor(Bytes bytes) {
  TensorInfo info;
  for (Reader tensor(bytes); tensor.Next();) {
    if (tensor.field() == 1) {  // "operation:index"
      const std::string name = tensor.text();
      const size_t colon = name.rfind(':');
      info.operation = name.substr(0, colon);
      if (colon != std::string::npos) {
        info.index = std::atoi(name.c_str() + colon + 1);
      }
    } else if (tensor.field() == 2) {
      info.dtype = static_cast<int>(tensor.number());
    } else if (tensor.field() == 3) {
      info.dims = ReadShape(tensor.bytes());
    }
  }
  return info;
}

// Reads an entry of a map from names to messages; `read` reads the message.
template <class Value>
void ReadEntry(Bytes bytes, Value (*read)(Bytes),
               std::map<std::string, Value>* to) {
  std::string key;
  Bytes value = {nullptr, nullptr};
  for (Reader entry(bytes); entry.Next();) {
    if (entry.field() == 1) key = entry.text();
    if (entry.field() == 2) value = entry.bytes();
  }
  (*to)[key] = read(value);
}

// SignatureDef.
Signature ReadSignature(Bytes bytes) {
  Signature signature;
  for (Reader def(bytes); def.Next();) {
    if (def.field() == 1) ReadEntry(def.bytes(), ReadTensor, &signature.inputs);
    if (def.field() == 2) {
      ReadEntry(def.bytes(), ReadTensor, &signature.outputs);
    }
  }
  return signature;
}

}  // namespace

std::map<std::string, Signature> ReadSignatures(const void* data, size_t size) {
  const auto* const begin = static_cast<const char*>(data);
  std::map<std::string, Signature> signatures;
  for (Reader graph({begin, begin + size}); graph.Next();) {
    if (graph.field() == 5) {
      ReadEntry(graph.bytes(), ReadSignature, &signatures);
    }
  }
  return signatures;
}
