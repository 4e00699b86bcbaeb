// Reads the sizes of the processor's caches.

#ifndef BLOCKRNN_KERNELS_CPU_CACHE_SIZE_H_
#define BLOCKRNN_KERNELS_CPU_CACHE_SIZE_H_

#include <unistd.h>

#include <fstream>
#include <string>

namespace blockrnn::cpu {

// Bytes in a size as Linux writes it, such as "1024K"; 0 if it is none.
inline double ParseCacheSize(const std::string& text) {
  const size_t digits = text.find_first_not_of("0123456789");
  // At most 999,999,999 of a unit.
  if (digits == 0 || digits == std::string::npos || digits > 9) return 0;
  const double size = std::stoi(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  if (unit == "K") return size * (1 << 10);
  if (unit == "M") return size * (1 << 20);
  return 0;
}

// Bytes of a cache that the folder of a processor's caches describes; 0 if it
// describes none of this level that holds data.
inline double CacheSizeInFolder(const std::string& folder, int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string cache = folder + "/index" + std::to_string(index);
    const auto read = [&](const char* name) {
      std::string word;
      std::ifstream(cache + "/" + name) >> word;
      return word;
    };
    if (read("level") == std::to_string(level) &&
        read("type") != "Instruction") {
      return ParseCacheSize(read("size"));
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
