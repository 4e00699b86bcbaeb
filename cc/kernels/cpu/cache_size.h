// Reads the sizes of the processor's caches, without memory of the heap: an
// engine function must not throw.

#ifndef BLOCKRNN_KERNELS_CPU_CACHE_SIZE_H_
#define BLOCKRNN_KERNELS_CPU_CACHE_SIZE_H_

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace blockrnn::cpu {

// Bytes in a size as Linux writes it, such as "1024K"; 0 if it is none.
inline double ParseCacheSize(std::string_view text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  // At most 999,999,999 of a unit.
  if (digits == 0 || digits == std::string_view::npos || digits > 9) return 0;
  double size = 0;
  for (const char digit : text.substr(0, digits)) {
    size = 10 * size + (digit - '0');
  }
  const std::string_view unit = text.substr(digits);
  if (unit == "K") return size * (1 << 10);
  if (unit == "M") return size * (1 << 20);
  return 0;
}

// The line that is all of a small file, in `buffer`; empty if there is no file.
template <std::size_t kSize>
std::string_view ReadLine(const char* path, char (&buffer)[kSize]) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const std::string_view text(
      buffer, static_cast<std::size_t>(
                  std::max<ssize_t>(read(file, buffer, kSize), 0)));
  close(file);
  return text.substr(0, text.find('\n'));
}

// Bytes of a cache that the folder of a processor's caches describes; 0 if it
// describes none of this level that holds data.
inline double CacheSizeInFolder(const char* folder, int level) {
  for (int index = 0; index < 8; ++index) {
    char buffer[32];
    const auto read_fact = [&](const char* name) {
      char path[256];
      std::snprintf(path, sizeof(path), "%s/index%d/%s", folder, index, name);
      return ReadLine(path, buffer);
    };
    const std::string_view found = read_fact("level");
    if (found.size() == 1 && found[0] == '0' + level &&
        read_fact("type") != "Instruction") {
      return ParseCacheSize(read_fact("size"));
    }
  }
  return 0;
}

// Bytes of the second- or third-level cache, 0 if unknown.
inline double CacheSize(int level) {
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes =
      sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<double>(bytes);
#endif
#if defined(__aarch64__)
  // The C library does not know there; the kernel does, from firmware.
  return CacheSizeInFolder("/sys/devices/system/cpu/cpu0/cache", level);
#else
  return 0;
#endif
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_CACHE_SIZE_H_
