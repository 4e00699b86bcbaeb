#include "tests/cpp/running_case.h"

#include <cstdio>

namespace blockrnn::test {
namespace {

thread_local char running_case[256];

}  // namespace

const char* RunningCase() { return running_case; }

void SetRunningCase(const std::string& description) {
  std::snprintf(running_case, sizeof(running_case), "%s", description.c_str());
}

}  // namespace blockrnn::test
