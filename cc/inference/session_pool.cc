#include "cc/inference/session_pool.h"

#include <string>
#include <system_error>

namespace blockrnn {

SessionStatus StartPool(int threads, std::unique_ptr<SessionPool>* pool) {
  pool->reset();
  if (threads == 1) return {};
  std::vector<std::unique_ptr<SessionThread>> started;
  started.reserve(threads - 1);
  for (int n = 1; n < threads; ++n) {
    try {
      started.push_back(std::make_unique<SessionThread>());
    } catch (const std::system_error& error) {
      return {BLOCKRNN_NO_THREADS,
              "threads must be at most " + std::to_string(n) + " here, got " +
                  std::to_string(threads) + ": the system started " +
                  std::to_string(n - 1) + " of the " +
                  std::to_string(threads - 1) +
                  " threads beside the calling one, then reported: " +
                  error.what()};
    }
  }
  *pool = std::make_unique<SessionPool>(threads - 1, StartedThreads(&started));
  return {};
}

}  // namespace blockrnn
