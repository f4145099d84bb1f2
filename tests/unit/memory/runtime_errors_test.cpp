// SPDX-License-Identifier: Apache-2.0
// What the two runtimes refuse, and calls of the driver that fail.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "memory/cuda_context.hpp"
#include "memory/runtime.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::ScopedEnvironment;

template <class T>
void expect_error(const Result<T>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.error().message();
  EXPECT_NE(result.error().message().find(part), std::string::npos) << result.error().message();
}

constexpr std::size_t kBytes = 65536;

ISOLATED_TEST(RuntimeErrors, CallsThatFail) {
  FakeSession session;
  session.start();
  Runtime& runtime = *cuda_runtime();
  alignas(4096) static char pages[kBytes];
  const auto plant = [&](const char* function, CUresult result) {
    session.remove_faults();
    session.plant(fake::Call::cuda, function, result, 1);
  };
  ASSERT_TRUE(runtime.pin_host(pages, kBytes));
  plant("cuMemHostUnregister", CUDA_ERROR_UNKNOWN);
  expect_error(runtime.unpin_host(pages, kBytes), Status::device_error, "unpin host memory");
  EXPECT_TRUE(runtime.unpin_host(pages, kBytes));
  const auto combined = runtime.allocate_write_combined(kBytes);
  ASSERT_TRUE(combined) << combined.message();
  plant("cuMemFreeHost", CUDA_ERROR_UNKNOWN);
  expect_error(runtime.release_write_combined(*combined, kBytes), Status::device_error, "free write-combined memory");
  EXPECT_TRUE(runtime.release_write_combined(*combined, kBytes));
  for (const auto& [result, remedy] :
       {std::pair{CUDA_ERROR_NOT_PERMITTED, "PeerMappingOverride=1"}, std::pair{CUDA_ERROR_UNKNOWN, "let the CPU ring"}}) {
    plant("cuMemHostRegister", result);
    const auto mapped = runtime.map_registers(0, pages, 4096);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().record().operation, "map registers");
    EXPECT_NE(mapped.error().record().remedy.find(remedy), std::string::npos) << mapped.error().message();
  }
  session.remove_faults();
  EXPECT_FALSE(runtime.traits(7)) << "there is no such device";
  const CUdeviceptr memory = FakeSession::allocate(kBytes);
  const auto exported = runtime.export_descriptor(memory);
  ASSERT_FALSE(exported);
  EXPECT_NE(exported.error().record().remedy.find("only VMM memory"), std::string::npos) << exported.error().message();
  expect_error(runtime.export_dma_buf(reinterpret_cast<std::uintptr_t>(pages), kBytes), Status::not_supported,
               "is not device memory");
  FakeSession::free(memory);
}

ISOLATED_TEST(RuntimeErrors, ADriverWithoutDmaBufs) {
  FakeSession session;
  std::strcpy(session.machine().hidden_symbol, "cuMemGetHandleForAddressRange");
  session.start();
  expect_error(cuda_runtime()->export_dma_buf(4096, kBytes), Status::not_supported, "has no cuMemGetHandleForAddressRange");
}

ISOLATED_TEST(RuntimeErrors, ADriverWithoutVirtualMemory) {
  FakeSession session;
  std::strcpy(session.machine().hidden_symbol, "cuMemCreate");
  session.start();
  expect_error(cuda_runtime()->allocate(0, kBytes, DeviceAllocator::vmm), Status::not_supported,
               "the driver has no virtual memory management");
}

ISOLATED_TEST(RuntimeErrors, NoDriver) {
  const ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  expect_error(primary_context(3), Status::unavailable, "use device: device 3");
}

ISOLATED_TEST(RuntimeErrors, StandIns) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  PointerInfo memory;
  memory.address = 4096;
  expect_error(stand_in_runtime().ipc_identity(memory), Status::not_supported, "identify memory");
  expect_error(stand_in_runtime().export_descriptor(4096), Status::not_supported, "export memory");
}

}  // namespace
}  // namespace gigabar
