#include "cc/loader/cuda_engine_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "cc/core/engine_version.h"
#include "cc/loader/open_engine.h"

namespace blockrnn {
namespace {

constexpr char kPrefix[] = "libblockrnn_cuda";
constexpr char kSuffix[] = ".so";

// The newest CUDA that the driver runs, 12040 for 12.4; 0 without a driver.
int DriverVersion() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  using GetVersion = int (*)(int* version);
  const auto get =
      reinterpret_cast<GetVersion>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? version : 0;
}

std::string DriverName(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

// The major versions of CUDA that there are engines for, newest first.
std::vector<int> BuiltVersions(const std::string& folder) {
  std::vector<int> versions;
  std::error_code error;  // no such folder: no versions
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    name.erase(0, sizeof(kPrefix) - 1);
    const std::size_t digits = name.find_first_not_of("0123456789");
    if (digits == 0 || digits > 3 || name.substr(digits) != kSuffix) continue;
    versions.push_back(std::stoi(name));
  }
  std::sort(versions.begin(), versions.end(), std::greater<>());
  return versions;
}

CudaEngineChoice Choose() {
  const std::string folder = OwnFolder();
  const std::vector<int> built = BuiltVersions(folder);
  if (built.empty()) return {"", "no CUDA engine lies in " + folder};
  const int driver = DriverVersion();
  for (const int version : built) {
    if (driver == 0 || version <= driver / 1000) {
      return {folder + "/" + kPrefix + std::to_string(version) + kSuffix, ""};
    }
  }
  return {"",
          "the GPU's driver runs CUDA " + DriverName(driver) +
              ", but the CUDA engine needs a driver for CUDA " +
              std::to_string(built.back()) + " or newer",
          true};
}

OpenedEngine<cuda::Engine> OpenChosenCudaEngine() {
  const CudaEngineChoice& choice = ChosenCudaEngine();
  if (!choice.problem.empty()) {
    return {nullptr, "tf_blockrnn: " + choice.problem};
  }
  return OpenEngine<cuda::Engine>(choice.path, cuda::kEngineSymbol,
                                  kEngineVersion<cuda::Engine>);
}

}  // namespace

const CudaEngineChoice& ChosenCudaEngine() {
  static const auto* const choice = new CudaEngineChoice(Choose());
  return *choice;
}

const OpenedEngine<cuda::Engine>& CudaEngine() {
  static const auto* const engine =
      new OpenedEngine<cuda::Engine>(OpenChosenCudaEngine());
  return *engine;
}

}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT const char* blockrnn_cuda_problem() {
  return blockrnn::TextOrNull(
      [] { return blockrnn::ChosenCudaEngine().problem.c_str(); });
}

}  // extern "C"
