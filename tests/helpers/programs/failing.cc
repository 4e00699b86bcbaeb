// Preloaded into a program, fails what these variables say.

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <stdexcept>

extern "C" {
int threads_left = 1 << 30;  // that start
int new_throws = 0;  // 1: std::bad_alloc, 2: a std::exception, 3: a number

int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                   void* (*run)(void*), void* arg) {
  if (threads_left-- <= 0) return EAGAIN;
  const auto real = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attr, run, arg);
}
}  // extern "C"

void* operator new(std::size_t bytes) {
  const int throws = new_throws;
  if (throws == 3) throw 3;
  if (throws == 2) {
    new_throws = 0;  // the error has a text
    const std::logic_error error("this is one");
    new_throws = throws;
    throw error;
  }
  void* const memory =
      throws == 1 ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
