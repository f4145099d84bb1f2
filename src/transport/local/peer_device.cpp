// SPDX-License-Identifier: Apache-2.0
#include "transport/local/peer_memory.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/nvml/nvml.hpp"

#if GIGABAR_HAS_CUDA

#include "memory/cuda_context.hpp"

namespace gigabar::transport::local {
namespace {

Error open_error(const char* operation, int device, CUresult result, std::string remedy = {}) {
  return make_error(cuda::status_of(result), operation, text("a peer's device memory from device ", device),
                    cuda::describe_result(result), std::move(remedy), cuda::native_code(result));
}

Error no_function(const char* operation, const char* name) {
  return make_error(Status::unavailable, operation, "a peer's device memory", text("libcuda has no ", name),
                    "install a newer NVIDIA driver");
}

// ask(from, to) of the two devices with these ordinals.
template <class Ask>
CUresult ask_of_pair(const cuda::Functions& functions, int device, int other, const Ask& ask) {
  CUdevice from = 0, to = 0;
  CUresult result = functions.cuDeviceGet(&from, device);
  if (result == CUDA_SUCCESS) result = functions.cuDeviceGet(&to, other);
  return result == CUDA_SUCCESS ? ask(from, to) : result;
}

CUresult set_access(const cuda::Functions& functions, CUdeviceptr address, std::size_t bytes, int device) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return functions.cuMemSetAccess(address, bytes, &access, 1);
}

Result<void> open_handle(CUcontext context, const IpcIdentity& identity, int device, OpenedAllocation& opened) {
  const cuda::Functions& functions = cuda::driver().functions;
  CUipcMemHandle handle{};
  static_assert(sizeof handle == sizeof identity);
  std::memcpy(&handle, identity.data(), sizeof handle);
  CUdeviceptr address = 0;
  CUresult result = CUDA_SUCCESS;
  {
    const ContextGuard guard(functions, context);
    result = guard.result();
    if (result == CUDA_SUCCESS) result = functions.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
  if (result != CUDA_SUCCESS) return open_error("open a CUDA IPC handle", device, result, "check `nvidia-smi topo -p2p r`");
  opened.address = address;
  opened.close = [context, address] {
    const ContextGuard guard(cuda::driver().functions, context);
    cuda::driver().functions.cuIpcCloseMemHandle(address);
  };
  // How much there is says the driver, not the peer.
  const auto known = cuda_runtime()->describe(address);
  if (!known) return known.error();
  if (!known->has_value() || (*known)->offset_bytes >= (*known)->length_bytes) {
    return make_error(Status::device_error, "open a CUDA IPC handle", hex_text(address),
                      "the driver does not say how large the opened memory is", "stage it");
  }
  opened.bytes = (*known)->length_bytes - (*known)->offset_bytes;
  return {};
}

// The driver refuses more bytes than the allocation has.
CUresult map_handle(CUmemGenericAllocationHandle handle, std::size_t bytes, int device, OpenedAllocation& opened) {
  const cuda::Functions& functions = cuda::driver().functions;
  CUdeviceptr address = 0;
  CUresult result = functions.cuMemAddressReserve(&address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  opened.address = address;
  opened.bytes = bytes;
  opened.close = [address, bytes] { cuda::driver().functions.cuMemAddressFree(address, bytes); };
  result = functions.cuMemMap(address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) return result;
  opened.close = [address, bytes] {
    cuda::driver().functions.cuMemUnmap(address, bytes);
    cuda::driver().functions.cuMemAddressFree(address, bytes);
  };
  return set_access(functions, address, bytes, device);
}

}  // namespace

Result<std::shared_ptr<OpenedAllocation>> PeerDevices::open_ipc(std::int64_t process, const IpcIdentity& handle, int device) {
  const Name name{{process, device}, handle};
  if (const auto found = opened_.find(name); found != opened_.end()) {
    if (auto alive = found->second.lock()) return alive;
    opened_.erase(found);
  }
  const auto context = primary_context(device);
  if (!context) return context.error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuIpcOpenMemHandle == nullptr || functions.cuIpcCloseMemHandle == nullptr)
    return no_function("open a CUDA IPC handle", "cuIpcOpenMemHandle");
  auto allocation = std::make_shared<OpenedAllocation>();
  if (Result<void> opened = open_handle(*context, handle, device, *allocation); !opened) return std::move(opened).error();
  opened_[name] = allocation;
  return allocation;
}

Result<std::shared_ptr<OpenedAllocation>> PeerDevices::open_vmm(const Descriptor& exported, std::size_t bytes, int device) {
  const auto context = primary_context(device);
  if (!context) return context.error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuMemImportFromShareableHandle == nullptr || functions.cuMemMap == nullptr)
    return no_function("import device memory", "cuMemImportFromShareableHandle");
  auto allocation = std::make_shared<OpenedAllocation>();
  CUmemGenericAllocationHandle handle = 0;
  auto* const os_handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(exported.get()));
  CUresult result = functions.cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return open_error("import device memory", device, result);
  result = map_handle(handle, bytes, device, *allocation);
  functions.cuMemRelease(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) return open_error("map imported device memory", device, result, "check `nvidia-smi topo -p2p r`");
  return allocation;
}

int PeerDevices::device_of(const std::string& uuid) {
  Runtime* const runtime = cuda_runtime();
  if (runtime == nullptr || uuid.empty()) return -1;
  if (uuids_.empty()) {
    const auto devices = runtime->devices();
    if (!devices) return -1;
    for (const DeviceInfo& device : *devices) uuids_.push_back(device.uuid);
  }
  const auto found = std::find(uuids_.begin(), uuids_.end(), uuid);
  return found == uuids_.end() ? -1 : static_cast<int>(found - uuids_.begin());
}

Result<void> PeerDevices::check_peer_access(int device, int other) {
  if (device == other) return {};
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuDeviceCanAccessPeer == nullptr) return no_function("reach", "cuDeviceCanAccessPeer");
  int can_access = 0;
  const CUresult result = ask_of_pair(
      functions, device, other, [&](CUdevice from, CUdevice to) { return functions.cuDeviceCanAccessPeer(&can_access, from, to); });
  if (result != CUDA_SUCCESS) return open_error("reach", device, result);
  if (can_access != 0) return {};
  return make_error(Status::not_supported, "reach", text("device ", other),
                    text("device ", device, " has no peer access to device ", other), "check `nvidia-smi topo -p2p r`", {},
                    check_id::kPeerAccess);
}

// Never disabled again: another transport of this process may use it too.
Result<void> PeerDevices::enable_peer_access(int device, int other) {
  if (device == other) return {};
  if (Result<void> checked = check_peer_access(device, other); !checked) return checked;
  const auto from = primary_context(device);
  const auto to = primary_context(other);
  if (!from) return from.error();
  if (!to) return to.error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuCtxEnablePeerAccess == nullptr) return no_function("reach", "cuCtxEnablePeerAccess");
  const ContextGuard guard(functions, *from);
  const CUresult result = functions.cuCtxEnablePeerAccess(*to, 0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return open_error("enable peer access", device, result);
}

Result<void> PeerDevices::open_vmm_to(int device, std::uintptr_t address, std::size_t bytes) {
  const auto context = primary_context(device);
  if (!context) return context.error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuMemSetAccess == nullptr) return no_function("open VMM memory to another device", "cuMemSetAccess");
  const CUresult result = set_access(functions, address, bytes, device);
  return result == CUDA_SUCCESS ? Result<void>() : Result<void>(open_error("open VMM memory to another device", device, result));
}

namespace {

// Nothing: the driver does not say.
std::optional<bool> ask_cuda_for_atomics(int device, int other) {
  const cuda::Functions& functions = cuda::driver().functions;
  if (functions.cuDeviceGetP2PAttribute == nullptr) return {};
  int has_atomics = 0;
  const CUresult result = ask_of_pair(functions, device, other, [&](CUdevice from, CUdevice to) {
    return functions.cuDeviceGetP2PAttribute(&has_atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to);
  });
  if (result != CUDA_SUCCESS) return {};
  return has_atomics != 0;
}

// NVML sees the GPUs that CUDA_VISIBLE_DEVICES hides. As nvml::peer_status.
std::optional<std::string> ask_nvml_for_atomics(int device, int owner, const std::string& owner_uuid) {
  const auto devices = cuda_runtime()->devices();
  if (!devices) return {};
  const auto address_of = [&](int index) -> std::optional<std::string> {
    const auto place = static_cast<std::size_t>(index);
    if (place >= devices->size() || !(*devices)[place].pci) return {};
    return (*devices)[place].pci->to_string();
  };
  const auto from = address_of(device);
  const auto to = owner >= 0 ? address_of(owner) : nvml::address_of_uuid(owner_uuid);
  if (!from || !to) return {};
  return nvml::peer_status(*from, *to, nvml::PeerCapability::atomics);
}

}  // namespace

std::string PeerDevices::why_no_atomics(int device, int owner, const std::string& owner_uuid) {
  if (device == owner) return {};
  const std::string pair = text("device ", device, " has no native atomics on memory of ",
                                owner >= 0 ? text("device ", owner) : text("the hidden GPU ", owner_uuid));
  if (owner >= 0) {
    const auto has_atomics = ask_cuda_for_atomics(device, owner);
    if (has_atomics)
      return *has_atomics ? std::string() : text(pair, ": so says CUDA (CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED is 0)");
  }
  const auto status = ask_nvml_for_atomics(device, owner, owner_uuid);
  if (status == "ok") return {};
  if (status && *status != "unknown") return text(pair, ": so says NVML (", *status, ")");
  return text(pair, " that a driver would tell of: CUDA and NVML do not say");
}

}  // namespace gigabar::transport::local

#else

namespace gigabar::transport::local {
namespace {

Error no_cuda() { return make_error("open", "a peer's device memory", cuda::driver().availability); }

}  // namespace

Result<std::shared_ptr<OpenedAllocation>> PeerDevices::open_ipc(std::int64_t, const IpcIdentity&, int) { return no_cuda(); }
Result<std::shared_ptr<OpenedAllocation>> PeerDevices::open_vmm(const Descriptor&, std::size_t, int) { return no_cuda(); }
int PeerDevices::device_of(const std::string&) { return -1; }
Result<void> PeerDevices::check_peer_access(int, int) { return no_cuda(); }
Result<void> PeerDevices::enable_peer_access(int, int) { return no_cuda(); }
Result<void> PeerDevices::open_vmm_to(int, std::uintptr_t, std::size_t) { return no_cuda(); }
std::string PeerDevices::why_no_atomics(int, int, const std::string&) { return no_cuda().message(); }

}  // namespace gigabar::transport::local

#endif
