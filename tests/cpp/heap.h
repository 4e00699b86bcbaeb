// Declares a heap that can run dry for one thread: the engine takes its scratch
// from its host, and must neither crash nor change a number when an allocation
// of its own (or of Eigen inside it) fails.

#ifndef BLOCKRNN_TESTS_CPP_HEAP_H_
#define BLOCKRNN_TESTS_CPP_HEAP_H_

namespace blockrnn::test {

// Whether HeapIsDry has an effect: a sanitizer has a heap of its own.
bool HeapCanRunDry();

// While it lives, this thread's allocations fail when `dry`.
class HeapIsDry {
 public:
  explicit HeapIsDry(bool dry);
  ~HeapIsDry();
  HeapIsDry(const HeapIsDry&) = delete;
  HeapIsDry& operator=(const HeapIsDry&) = delete;

 private:
  const bool before_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_HEAP_H_
