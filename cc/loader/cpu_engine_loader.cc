#include "cc/loader/cpu_engine_loader.h"

#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cc/core/engine_version.h"
#include "cc/loader/open_engine.h"

namespace blockrnn {
namespace {

constexpr char kIsaVariable[] = "TF_BLOCKRNN_CPU_ISA";

struct Isa {
  const char* name;
  bool supported;
  bool preferred = true;  // over those before it, where it is supported
};

// From the baseline to the best.
std::vector<Isa> AllIsas() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  // These checks include the operating system's support. The other features of
  // a level came with the same processors.
  __builtin_cpu_init();
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") &&
                  __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  isas.push_back({"x86-64-v2", v2});
  isas.push_back({"x86-64-v3", v3});
  isas.push_back({"x86-64-v4", v4});
  const bool vnni = v4 && __builtin_cpu_supports("avx512vnni");
  isas.push_back({"x86-64-v4-vnni", vnni});
  // Intel's processors multiply bfloat16 at half the speed of float32, so that
  // bfloat16 is faster when it is widened (docs/adr/0002).
  isas.push_back({"x86-64-v4-bf16",
                  vnni && __builtin_cpu_supports("avx512bf16"),
                  !__builtin_cpu_is("intel")});
#elif defined(__aarch64__)
  // Linux reports what processor and system support. The compiler uses the
  // atomics of ARMv8.1 in sets that are based on ARMv8.2.
  const unsigned long hwcap = getauxval(AT_HWCAP);
  const unsigned long hwcap2 = getauxval(AT_HWCAP2);
  constexpr unsigned long kDotProd = HWCAP_ATOMICS | HWCAP_ASIMDDP;
  constexpr unsigned long kBFloat16 = HWCAP2_BF16 | HWCAP2_I8MM;
  const bool dotprod = (hwcap & kDotProd) == kDotProd;
  isas.push_back({"armv8-a", (hwcap & HWCAP_ASIMD) != 0});
  isas.push_back({"armv8.2-a-dotprod", dotprod});
  isas.push_back(
      {"armv8.2-a-bf16", dotprod && (hwcap2 & kBFloat16) == kBFloat16});
#else
  isas.push_back({"generic", true});
#endif
  return isas;
}

std::string LibraryPath(const std::string& isa) {
  return OwnFolder() + "/libblockrnn_cpu_" + isa + ".so";
}

bool Built(const Isa& isa) {
  return access(LibraryPath(isa.name).c_str(), R_OK) == 0;
}

template <class Predicate>
std::vector<Isa> Only(std::vector<Isa> isas, Predicate wanted) {
  const auto end =
      std::remove_if(isas.begin(), isas.end(), std::not_fn(wanted));
  isas.erase(end, isas.end());
  return isas;
}

std::vector<Isa> Supported(const std::vector<Isa>& isas) {
  return Only(isas, [](const Isa& isa) { return isa.supported; });
}

std::vector<Isa> Usable(const std::vector<Isa>& isas) {
  return Only(Supported(isas), Built);
}

std::string Names(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa& isa : isas) {
    if (!names.empty()) names += ",";
    names += isa.name;
  }
  return names;
}

// The fastest of some that this processor runs; `isas` is not empty.
const char* Best(const std::vector<Isa>& isas) {
  const auto best = std::find_if(isas.rbegin(), isas.rend(),
                                 [](const Isa& isa) { return isa.preferred; });
  return best == isas.rend() ? isas.back().name : best->name;
}

// Sets `isa`; returns what is wrong, or "".
std::string ChooseIsa(std::string* isa_name) {
  const std::vector<Isa> isas = AllIsas();
  const std::vector<Isa> usable = Usable(isas);
  const char* forced = std::getenv(kIsaVariable);
  if (forced == nullptr || *forced == '\0') {
    if (usable.empty()) {
      return "tf_blockrnn: no CPU engine that this processor runs lies in " +
             OwnFolder() + "; build the project again";
    }
    *isa_name = Best(usable);
    return "";
  }
  const std::string refused =
      std::string("tf_blockrnn: ") + kIsaVariable + " is \"" + forced + "\", ";
  const std::string instead = "; usable here: " + Names(usable);
  for (const Isa& isa : isas) {
    if (isa.name != std::string(forced)) continue;
    if (!isa.supported) {
      return refused + "which this processor does not support" + instead;
    }
    if (!Built(isa)) return refused + "which is not built" + instead;
    *isa_name = forced;
    return "";
  }
  return refused + "which is no instruction set known to it" + instead;
}

OpenedEngine<cpu::Engine> OpenChosenCpuEngine() {
  std::string isa;
  const std::string problem = ChooseIsa(&isa);
  if (!problem.empty()) return {nullptr, problem};
  return OpenEngine<cpu::Engine>(LibraryPath(isa), cpu::kEngineSymbol,
                                 kEngineVersion<cpu::Engine>);
}

}  // namespace

const OpenedEngine<cpu::Engine>& CpuEngine() {
  static const auto* const engine =
      new OpenedEngine<cpu::Engine>(OpenChosenCpuEngine());
  return *engine;
}

}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT const char* blockrnn_cpu_isa() {
  return blockrnn::TextOrNull([] {
    const blockrnn::cpu::Engine* engine = blockrnn::CpuEngine().engine;
    return engine == nullptr ? nullptr : engine->isa;
  });
}

// All that this processor runs, built or not, plainest first.
BLOCKRNN_EXPORT const char* blockrnn_cpu_isas_supported() {
  return blockrnn::TextOrNull([] {
    static const auto* const names = new std::string(
        blockrnn::Names(blockrnn::Supported(blockrnn::AllIsas())));
    return names->c_str();
  });
}

// The one that would be used if all were built.
BLOCKRNN_EXPORT const char* blockrnn_cpu_isa_best() {
  return blockrnn::TextOrNull(
      [] { return blockrnn::Best(blockrnn::Supported(blockrnn::AllIsas())); });
}

}  // extern "C"
