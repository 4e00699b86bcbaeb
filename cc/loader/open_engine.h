// Defines how the library of an engine is found and opened.

#ifndef BLOCKRNN_LOADER_OPEN_ENGINE_H_
#define BLOCKRNN_LOADER_OPEN_ENGINE_H_

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace blockrnn {

// Where the library lies that this code is linked into; the engines lie beside
// it.
std::string OwnFolder();

template <class Engine>
struct OpenedEngine {
  const Engine* engine = nullptr;
  std::string problem;  // why there is none
};

// The engine that the library's function `symbol` gives, if it has that version
// (cc/core/engine_version.h). Never closed: kernels keep pointers into it.
template <class Engine>
OpenedEngine<Engine> OpenEngine(const std::string& path, const char* symbol,
                                std::uint64_t version) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {nullptr,
            std::string("tf_blockrnn: cannot open an engine: ") + dlerror()};
  }
  using Function = const Engine* (*)();
  const auto function = reinterpret_cast<Function>(dlsym(library, symbol));
  const Engine* const engine = function == nullptr ? nullptr : function();
  if (engine == nullptr) {
    return {nullptr, "tf_blockrnn: " + path + " has no " + symbol};
  }
  if (engine->version != version) {
    return {nullptr, "tf_blockrnn: " + path + " has engine version " +
                         std::to_string(engine->version) + ", expected " +
                         std::to_string(version) + "; build the project again"};
  }
  return {engine, ""};
}

// f()'s text for a caller in C; nullptr if there is no memory for it.
template <class F>
const char* TextOrNull(const F& f) noexcept {
  try {
    return f();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace blockrnn

#endif  // BLOCKRNN_LOADER_OPEN_ENGINE_H_
