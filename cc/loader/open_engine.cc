#include "cc/loader/open_engine.h"

#include <dlfcn.h>

#include <cstddef>
#include <string>

namespace blockrnn {
namespace {

// In this library alone: the exported functions are in several, and the address
// of one may be that of another library.
const char own_address = 0;

}  // namespace

std::string OwnFolder() {
  Dl_info info;
  if (dladdr(&own_address, &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace blockrnn
