// Tests what is read of the caches where the C library does not know them.

#include "cc/kernels/cpu/cache_size.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace blockrnn::cpu {
namespace {

TEST(CacheSize, Parsed) {
  EXPECT_EQ(ParseCacheSize("48K"), 48 * 1024);
  EXPECT_EQ(ParseCacheSize("266240K"), 266240.0 * 1024);
  EXPECT_EQ(ParseCacheSize("32M"), 32 * 1024 * 1024);
  for (const char* none : {"", "K", "48", "48G", "-1K", "1234567890K", "4K8"}) {
    EXPECT_EQ(ParseCacheSize(none), 0) << none;
  }
}

TEST(CacheSize, OfALevelThatHoldsData) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "cache_size_test";
  std::filesystem::remove_all(folder);
  int index = 0;
  const auto add = [&](int level, const char* type, const char* size) {
    const auto cache = folder / ("index" + std::to_string(index++));
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << level << "\n";
    std::ofstream(cache / "type") << type << "\n";
    std::ofstream(cache / "size") << size << "\n";
  };
  EXPECT_EQ(CacheSizeInFolder(folder.c_str(), 2), 0);
  add(1, "Instruction", "32K");
  add(1, "Data", "48K");
  add(2, "Unified", "1024K");
  EXPECT_EQ(CacheSizeInFolder(folder.c_str(), 1), 48 * 1024);
  EXPECT_EQ(CacheSizeInFolder(folder.c_str(), 2), 1024 * 1024);
  EXPECT_EQ(CacheSizeInFolder(folder.c_str(), 3), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace blockrnn::cpu
