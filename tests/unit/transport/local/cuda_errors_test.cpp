// SPDX-License-Identifier: Apache-2.0
// Drivers that lack a function of another one's, and calls of a driver that fail: the error names the function and the device, and
// nothing stays open.
#include <cstring>
#include <functional>
#include <string>

#include "memory/copy_stream.hpp"
#include "memory/runtime.hpp"
#include "support/isolated.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/peer_memory.hpp"
#include "unit/transport/local/cuda_pair.hpp"

namespace gigabar::transport::local {
namespace {

template <class T>
Result<void> error_of(const Result<T>& result) {
  if (!result) return result.error();
  return {};
}

void expect_error(const Result<void>& result, Status status, const std::string& part) {
  ASSERT_FALSE(result) << part;
  EXPECT_EQ(result.status(), status) << result.message();
  EXPECT_NE(result.message().find(part), std::string::npos) << result.message();
}

// A process opens its driver once.
void expect_missing(const char* function, const std::vector<std::function<Result<void>()>>& calls) {
  TwoGpus machine;
  std::strcpy(machine.session.machine().hidden_symbol, function);
  for (const auto& call : calls) expect_error(call(), Status::unavailable, std::string("libcuda has no ") + function);
}

ISOLATED_TEST(LocalCudaErrors, ADriverWithoutIpcHandles) {
  expect_missing("cuIpcOpenMemHandle", {[] {
                   PeerDevices devices;
                   return error_of(devices.open_ipc(kSomebodyElse, {}, 0));
                 }});
}
ISOLATED_TEST(LocalCudaErrors, ADriverWithoutImports) {
  expect_missing("cuMemImportFromShareableHandle", {[] { return error_of(PeerDevices::open_vmm(Descriptor(), 4096, 0)); }});
}
ISOLATED_TEST(LocalCudaErrors, ADriverThatDoesNotTellOfPeerAccess) {
  expect_missing("cuDeviceCanAccessPeer", {[] { return PeerDevices::check_peer_access(0, 1); }});
}
ISOLATED_TEST(LocalCudaErrors, ADriverWithoutPeerAccess) {
  expect_missing("cuCtxEnablePeerAccess", {[] { return PeerDevices::enable_peer_access(0, 1); }});
}
ISOLATED_TEST(LocalCudaErrors, ADriverWithoutAccessRights) {
  expect_missing("cuMemSetAccess", {[] { return PeerDevices::open_vmm_to(0, 4096, 4096); }});
}
ISOLATED_TEST(LocalCudaErrors, ADriverWithoutEvents) {
  expect_missing("cuEventRecord", {[] { return error_of(DeviceCopier::open(0)); }, [] { return error_of(CopyStream::open(0)); }});
}

ISOLATED_TEST(LocalCudaErrors, CallsThatFail) {
  TwoGpus machine;
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  const CUdeviceptr memory = FakeSession::allocate_vmm(0, kBytes, true);
  const Descriptor exported(must(cuda_runtime()->export_descriptor(memory)));
  {
    const auto copier = must(DeviceCopier::open(0));
    struct Case {
      const char* function;
      const char* part;
      std::function<Result<void>()> call;
      std::uint32_t skip = 0;
    };
    for (const Case& one :
         {Case{"cuDeviceCanAccessPeer", "reach: a peer's device memory from device 0",
               [] { return PeerDevices::check_peer_access(0, 1); }},
          Case{"cuCtxEnablePeerAccess", "enable peer access: a peer's device memory from device 0",
               [] { return PeerDevices::enable_peer_access(0, 1); }},
          Case{"cuMemSetAccess", "open VMM memory to another device: a peer's device memory from device 1",
               [&] { return PeerDevices::open_vmm_to(1, memory, kBytes); }},
          Case{"cuMemMap", "map imported device memory: a peer's device memory from device 1",
               [&] { return error_of(PeerDevices::open_vmm(exported, kBytes, 1)); }},
          Case{"cuCtxPushCurrent", "use device: copy engine of device 0", [] { return error_of(DeviceCopier::open(0)); }, 1},
          Case{"cuCtxPushCurrent", "use device: copy engine of device 0",
               [&] { return error_of(copier->copy(CopyWay::between_devices, memory, memory + 4096, 64)); }}}) {
      machine.session.plant(fake::Call::cuda, one.function, CUDA_ERROR_UNKNOWN, 1, one.skip);
      expect_error(one.call(), Status::device_error, one.part);
      machine.session.remove_faults();
      EXPECT_TRUE(one.call()) << one.function << ": the next time it works";
    }
    const Deadline deadline = Deadline::after_ns(kLongNs);
    while (!copier->is_idle() && !deadline.has_passed()) copier->check();
  }
  FakeSession::free_vmm(memory, kBytes);
}

// How much memory there is says the driver, never the peer.
ISOLATED_TEST(LocalCudaErrors, ADriverThatDoesNotKnowWhatItOpened) {
  TwoGpus machine;
  machine.allocate();
  const auto address = reinterpret_cast<std::uintptr_t>(machine.second->address());
  const PointerInfo info = *must(cuda_runtime()->describe(address));
  const IpcIdentity identity = must(cuda_runtime()->ipc_identity(info));
  PeerDevices devices;
  machine.session.plant(fake::Call::cuda, "cuPointerGetAttributes", CUDA_ERROR_INVALID_VALUE);
  expect_error(error_of(devices.open_ipc(kSomebodyElse, identity, 0)), Status::device_error,
               "the driver does not say how large the opened memory is");
  machine.session.remove_faults();
  const auto opened = devices.open_ipc(kSomebodyElse, identity, 0);
  ASSERT_TRUE(opened) << "it was closed: " << opened.message();
  EXPECT_GE((*opened)->bytes, machine.second->bytes());
}

// In this build, or of this driver, which has no module functions.
ISOLATED_TEST(LocalCudaErrors, NoCopyKernel) {
  const TwoGpus machine;
  expect_error(error_of(PersistentCopyKernel::open(0, 0)), Status::unavailable,
               copy_kernel_image() == nullptr ? "this build has no device code" : "libcuda has no module functions");
}

}  // namespace
}  // namespace gigabar::transport::local
