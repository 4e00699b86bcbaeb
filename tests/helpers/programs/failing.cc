// Preloaded into a program, fails what these variables say.

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <stdexcept>

extern "C" {
int threads_left = 1 << 30;  // that start
// 1: always std::bad_alloc; 2: once a std::exception; 3: once a number
int new_throws = 0;

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
  if (throws > 1) new_throws = 0;
  if (throws == 3) throw 3;
  if (throws == 2) throw std::logic_error("this is one");
  void* const memory =
      throws == 1 ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
