// Tests a call from XLA: its device scratch, where XLA aligns no better than it
// promises, its threads, where XLA has none, and its errors without memory.

#include "cc/xla/ffi_call.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string message;
};

// The device's memory.
struct XLA_FFI_ExecutionContext {
  struct Block {
    char* memory;  // aligned to kBlockAlignment
    char* data;    // what XLA gave, `size` bytes
    std::size_t size;
    bool freed;
  };
  static constexpr std::size_t kBlockAlignment = 4096;

  std::size_t offset;  // of data in the memory
  std::vector<Block> blocks;

  ~XLA_FFI_ExecutionContext() {
    for (const Block& block : blocks) std::free(block.memory);
  }
};

namespace blockrnn {
namespace {

using Device = XLA_FFI_ExecutionContext;

// As XLA's ffi_api.cc.
constexpr std::size_t kMostAlignment = 16;

XLA_FFI_Error* Allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  if (args->alignment > kMostAlignment) {
    return new XLA_FFI_Error{"Unsupported alignment"};
  }
  Device& device = *args->ctx;
  constexpr std::size_t kUnit = Device::kBlockAlignment;
  const std::size_t bytes =
      (device.offset + args->size + kUnit - 1) / kUnit * kUnit;
  char* const memory = static_cast<char*>(std::aligned_alloc(kUnit, bytes));
  args->data = memory + device.offset;
  device.blocks.push_back({memory, memory + device.offset, args->size, false});
  return nullptr;
}

XLA_FFI_Error* Free(XLA_FFI_DeviceMemory_Free_Args* args) {
  for (Device::Block& block : args->ctx->blocks) {
    if (block.data != args->data || block.size != args->size) continue;
    EXPECT_FALSE(block.freed);
    block.freed = true;
    return nullptr;
  }
  return new XLA_FFI_Error{"no such memory"};
}

void GetMessage(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}

void Destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Api Api() {
  XLA_FFI_Api api = {};
  api.XLA_FFI_DeviceMemory_Allocate = &Allocate;
  api.XLA_FFI_DeviceMemory_Free = &Free;
  api.XLA_FFI_Error_GetMessage = &GetMessage;
  api.XLA_FFI_Error_Destroy = &Destroy;
  return api;
}

// A pool that cannot queue: it says so, or throws.
XLA_FFI_Error* Refuse(XLA_FFI_ThreadPool_Schedule_Args*) {
  return new XLA_FFI_Error{"no room"};
}
XLA_FFI_Error* Throw(XLA_FFI_ThreadPool_Schedule_Args*) {
  throw std::bad_alloc();
}

TEST(CpuFfiCall, RunsWhatCannotBeQueued) {
  XLA_FFI_Api api = Api();
  for (auto* const schedule : {&Refuse, &Throw}) {
    api.XLA_FFI_ThreadPool_Schedule = schedule;
    XLA_FFI_CallFrame frame = {};
    frame.api = &api;
    CpuFfiCall call(&frame, {});
    int runs = 0;
    call.Schedule([](void* arg) noexcept { ++*static_cast<int*>(arg); }, &runs);
    EXPECT_EQ(runs, 1);
  }
}

XLA_FFI_Error* CreateWithoutText(XLA_FFI_Error_Create_Args* args) {
  if (*args->message != '\0') throw std::bad_alloc();
  return new XLA_FFI_Error{"an error"};
}

TEST(ToError, WithoutMemoryForItsText) {
  XLA_FFI_Api api = Api();
  api.XLA_FFI_Error_Create = &CreateWithoutText;
  XLA_FFI_Error* const error = ToError(&api, absl::InternalError("a text"));
  EXPECT_EQ(ToStatus(&api, error).message(), "an error");
}

// The alignment that OpCall promises on GPUs.
constexpr std::size_t kAlignment = 256;

TEST(CudaFfiCall, AlignsScratch) {
  const XLA_FFI_Api api = Api();
  for (std::size_t offset = 0; offset < kAlignment; offset += kMostAlignment) {
    Device device = {offset, {}};
    XLA_FFI_CallFrame frame = {};
    frame.api = &api;
    frame.ctx = &device;
    {
      CudaFfiCall call(&frame, {});
      for (const std::size_t bytes : {0, 1, 255, 256, 100'000}) {
        void* scratch = nullptr;
        const absl::Status status = call.AllocateScratch(bytes, &scratch);
        ASSERT_TRUE(status.ok()) << status;
        const Device::Block& block = device.blocks.back();
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch) % kAlignment, 0u);
        EXPECT_GE(static_cast<char*>(scratch), block.data);
        EXPECT_LE(static_cast<char*>(scratch) + bytes, block.data + block.size);
        EXPECT_FALSE(block.freed);
      }
    }
    for (const Device::Block& block : device.blocks) EXPECT_TRUE(block.freed);
  }
}

TEST(CudaFfiCall, ScratchThatNoDeviceHas) {
  const XLA_FFI_Api api = Api();
  Device device = {kMostAlignment, {}};
  XLA_FFI_CallFrame frame = {};
  frame.api = &api;
  frame.ctx = &device;
  CudaFfiCall call(&frame, {});
  void* scratch = nullptr;
  EXPECT_FALSE(call.AllocateScratch(SIZE_MAX, &scratch).ok());
}

}  // namespace
}  // namespace blockrnn

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
