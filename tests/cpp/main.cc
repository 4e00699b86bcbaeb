// Runs the tests:
//
//     tests {short|full} [--isa=NAME] [--only=PART_OF_A_NAME]...
//           [--turns=FILE]     shares them with the other processes that are
//                              given this file, which begins as eight zeros
//     tests --fuzz-input=HEX     one input of the fuzzer, as a failure prints
//     it

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/fuzz.h"
#include "tests/cpp/op_tests.h"

namespace {

using blockrnn::test::ExpandOpTests;
using blockrnn::test::Failures;
using blockrnn::test::Options;
using blockrnn::test::Test;
using blockrnn::test::TestOptions;
using blockrnn::test::Tests;

// A call that waits for a thread that never comes would hang; then this test
// fails instead. Generous: a sanitizer on a loaded machine is slow.
constexpr unsigned kSecondsPerTest = 900;
// A test that is wrong in a hundred cases is as wrong as in five.
constexpr std::size_t kMessagesPerTest = 5;

// The name of the test that runs, for the signal handler.
char running[256];

// Safe in a signal handler.
void WriteOut(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) _exit(2);
}

void TellWhere() {
  WriteOut("\nFAILED ");
  WriteOut(running);
  WriteOut(": crashed or did not end, last in\n    ");
  WriteOut(blockrnn::test::RunningCase());
  WriteOut("\n");
}

void OnSignal(int) {
  TellWhere();
  _exit(1);
}

// A sanitizer tells about a crash itself; it then calls this.
extern "C" void __sanitizer_set_death_callback(void (*callback)())  // NOLINT
    __attribute__((weak));

void CatchCrashes() {
  std::signal(SIGALRM, &OnSignal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(&TellWhere);
    return;
  }
  for (const int signal : {SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGABRT}) {
    std::signal(signal, &OnSignal);
  }
}

bool TakeValue(const char* argument, const char* name, std::string* value) {
  const std::size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  *value = argument + length;
  return true;
}

bool ParseArguments(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "full") {
      options->full = true;
    } else if (std::string part; TakeValue(argv[i], "--only=", &part)) {
      options->only.push_back(part);
    } else if (TakeValue(argv[i], "--turns=", &part)) {
      options->turns = part;
    } else if (argument != "short" &&
               !TakeValue(argv[i], "--isa=", &options->isa) &&
               !TakeValue(argv[i], "--fuzz-input=", &options->fuzz_hex)) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return false;
    }
  }
  return true;
}

bool IsChosen(const Test& test) {
  const std::vector<std::string>& only = TestOptions().only;
  return only.empty() ||
         std::any_of(only.begin(), only.end(), [&](const std::string& part) {
           return test.name.find(part) != std::string::npos;
         });
}

// Gives out the numbers of the tests, each to one process.
class Turns {
 public:
  explicit Turns(const std::string& file) {
    if (file.empty()) return;
    const int opened = open(file.c_str(), O_RDWR);
    void* const memory = mmap(nullptr, sizeof(*next_), PROT_READ | PROT_WRITE,
                              MAP_SHARED, opened, 0);
    if (opened < 0 || memory == MAP_FAILED) {
      std::perror(file.c_str());
      std::exit(2);
    }
    next_ = static_cast<std::atomic<std::uint64_t>*>(memory);
  }

  std::uint64_t Next() { return (*next_)++; }

 private:
  std::atomic<std::uint64_t> alone_{0};
  std::atomic<std::uint64_t>* next_ = &alone_;
};

bool RunTest(const Test& test) {
  std::snprintf(running, sizeof(running), "%s", test.name.c_str());
  alarm(kSecondsPerTest);
  Failures failures;
  test.run(&failures);
  alarm(0);
  if (failures.all().empty()) return true;
  std::printf("FAILED %s: %zu failures\n", test.name.c_str(),
              failures.all().size());
  for (std::size_t i = 0; i < failures.all().size(); ++i) {
    if (i == kMessagesPerTest) {
      std::printf("    ...\n");
      break;
    }
    std::printf("    %s\n", failures.all()[i].c_str());
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (!ParseArguments(argc, argv, &TestOptions())) return 2;
  if (!TestOptions().fuzz_hex.empty()) {
    return blockrnn::test::RunFuzzHex(TestOptions().fuzz_hex);
  }
  // What a crash leaves unwritten is lost.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CatchCrashes();
  ExpandOpTests();
  int passed = 0;
  int failed = 0;
  Turns turns(TestOptions().turns);
  for (std::uint64_t turn; (turn = turns.Next()) < Tests().size();) {
    const Test& test = Tests()[turn];
    if (IsChosen(test)) ++(RunTest(test) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  // A run of no test is no success, but for one of several.
  const bool ran = passed > 0 || !TestOptions().turns.empty();
  return failed == 0 && ran ? 0 : 1;
}
