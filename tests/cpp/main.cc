// Runs the tests of a binary, and reports which engine call crashed or hung.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/cpp/harness.h"

// A sanitizer reports a crash itself; it then calls this.
extern "C" void __sanitizer_set_death_callback(void (*callback)())  // NOLINT
    __attribute__((weak));

namespace {

// Safe in a signal handler.
void Write(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(2);
}

void ReportRunningCase() {
  Write("\nCrashed or did not end; the last call on this thread was\n    ");
  Write(blockrnn::test::RunningCase());
  Write("\n");
}

void OnSignal(int) {
  ReportRunningCase();
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Bazel's timeout sends SIGTERM.
  std::signal(SIGTERM, &OnSignal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(&ReportRunningCase);
  } else {
    for (const int signal : {SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGABRT}) {
      std::signal(signal, &OnSignal);
    }
  }
  return RUN_ALL_TESTS();
}
