#include "cc/kernels/kernel.h"

#include <map>
#include <string>
#include <tuple>

namespace blockrnn {
namespace {

// The static objects that register kernels fill it while the library is loaded;
// then it does not change.
using KernelKey = std::tuple<std::string, tensorflow::DataType, std::string>;

std::map<KernelKey, KernelFactory>& KernelFactories() {
  static auto* const factories = new std::map<KernelKey, KernelFactory>;
  return *factories;
}

}  // namespace

std::string WithoutNamespace(const std::string& op) {
  return op.substr(op.find('>') + 1);  // npos + 1 is 0
}

void AddKernelFactory(const std::string& op, tensorflow::DataType type,
                      const char* device, KernelFactory factory) {
  KernelFactories()[{op, type, device}] = factory;
}

KernelFactory FindKernelFactory(const std::string& op,
                                tensorflow::DataType type, const char* device) {
  const auto found = KernelFactories().find({op, type, device});
  return found == KernelFactories().end() ? nullptr : found->second;
}

}  // namespace blockrnn
