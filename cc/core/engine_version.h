// Defines the version of an engine, by which its callers refuse a library whose
// argument structs or functions are not theirs. Nothing is counted by hand: the
// version is a hash of the text of the headers that define the interface
// (interface_hash.h, which the build writes) and of the sizes that the compiler
// gives to it.

#ifndef BLOCKRNN_CORE_ENGINE_VERSION_H_
#define BLOCKRNN_CORE_ENGINE_VERSION_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "cc/core/engine_args.h"
#include "cc/core/interface_hash.h"

namespace blockrnn {
namespace internal {

// 64-bit FNV-1a, continued from `hash`.
constexpr std::uint64_t Hash(std::uint64_t hash,
                             std::initializer_list<std::size_t> numbers) {
  for (std::uint64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte, number >>= 8) {
      hash = (hash ^ (number & 0xFF)) * 0x100000001B3;
    }
  }
  return hash;
}

template <class T, template <class> class... Args>
constexpr std::uint64_t HashTable(std::uint64_t hash, ArgsList<Args...>) {
  return Hash(hash, {sizeof(Args<T>)..., alignof(Args<T>)...});
}

template <class Engine>
constexpr std::uint64_t HashEngine() {
  using Host = typename Engine::Host;
  const typename Engine::Args args;
  std::uint64_t hash = Hash(kInterfaceHash, {sizeof(Engine), alignof(Engine),
                                             sizeof(Host), alignof(Host)});
  hash = HashTable<Eigen::half>(hash, args);
  hash = HashTable<Eigen::bfloat16>(hash, args);
  hash = HashTable<float>(hash, args);
  return HashTable<double>(hash, args);
}

}  // namespace internal

template <class Engine>
inline constexpr std::uint64_t kEngineVersion = internal::HashEngine<Engine>();

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ENGINE_VERSION_H_
