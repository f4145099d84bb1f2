// SPDX-License-Identifier: Apache-2.0
#include "transport/local/peer_memory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check_ids.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/ranges.hpp"
#include "base/rounding.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/nvml/nvml.hpp"
#include "memory/cuda_context.hpp"
#include "memory/host_pages.hpp"

namespace gigabar::transport::local {
namespace {

const char* name_of(Direction direction) { return direction == Direction::read ? "read" : "write"; }

Error malformed(const char* cause) {
  return make_error(Status::bad_file, "open", "a memfd", cause,
                    "name the memfd that the memory is mapped from, and its place in it");
}

std::string refusal(pid_t process, int code) {
  std::string what = text("the kernel refuses access to the memory of process ", process, " (", errno_code(code).name, ")");
  if (code == EFAULT) return text("process ", process, " has no memory where the key says: it is another process");
  if (code == EPERM) return what + ": ptrace scope (kernel.yama.ptrace_scope), another user, or a process that is not dumpable";
  return what;
}

}  // namespace

// --- Memfds ----------------------------------------------------------------------------------------------------------------------

Result<void> check_memfd(int descriptor, std::uint64_t offset_bytes, std::size_t bytes) {
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return malformed("is no memfd");
  if ((seals & F_SEAL_SHRINK) == 0) return malformed("can shrink");
  struct stat status{};
  ::fstat(descriptor, &status);
  if (!fits(offset_bytes, bytes, static_cast<std::uint64_t>(status.st_size))) return malformed("is smaller than the memory told");
  return {};
}

Result<std::shared_ptr<std::byte>> map_memfd(const Descriptor& file, std::uint64_t offset_bytes, std::size_t bytes) {
  if (Result<void> checked = check_memfd(file.get(), offset_bytes, bytes); !checked) return std::move(checked).error();
  if ((::fcntl(file.get(), F_GETFL) & O_ACCMODE) != O_RDWR) return malformed("cannot be written");
  struct stat status{};
  ::fstat(file.get(), &status);  // its block is the page, which is a huge one for huge pages
  const auto page_bytes = static_cast<std::size_t>(std::max<long>(::sysconf(_SC_PAGESIZE), status.st_blksize));
  const std::uint64_t begin = offset_bytes / page_bytes * page_bytes;
  const std::size_t length = round_up(offset_bytes - begin + bytes, page_bytes);
  void* const address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), static_cast<off_t>(begin));
  if (address == MAP_FAILED) {
    const int code = errno;
    return make_errno_error(code, "map", text(counted(bytes, "byte"), " of a peer's memfd"), {},
                            "free memory, or raise vm.max_map_count", Status::out_of_memory);
  }
  const std::shared_ptr<void> pages(address, UnmapPages{length});
  ::madvise(address, length, MADV_DONTFORK);
  return std::shared_ptr<std::byte>(pages, static_cast<std::byte*>(address) + (offset_bytes - begin));
}

// --- ProcessMemory ---------------------------------------------------------------------------------------------------------------

std::shared_ptr<ProcessMemory> ProcessMemory::open(pid_t process, std::uint64_t nonce_address, const Nonce& nonce) {
  Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  const int code = errno;
  std::shared_ptr<ProcessMemory> memory(new ProcessMemory(process, std::move(handle)));
  if (!memory->handle_.is_open()) {
    memory->reason_ = text("process ", process, " cannot be watched (pidfd_open: ", errno_code(code).name, ")");
    return memory;
  }
  Nonce seen{};
  const iovec to{seen.data(), seen.size()};
  const iovec from{reinterpret_cast<void*>(nonce_address), seen.size()};
  const ssize_t count = ::process_vm_readv(process, &to, 1, &from, 1, 0);
  if (count < 0) {
    memory->reason_ = refusal(process, errno);
  } else if (static_cast<std::size_t>(count) != seen.size() || seen != nonce) {
    memory->reason_ = text("process ", process, " does not hold what the key says: it is another process");
  }
  return memory;
}

bool ProcessMemory::is_alive() const noexcept {
  pollfd ended{handle_.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

Result<void> ProcessMemory::copy(Direction direction, std::uint64_t address, std::byte* local, std::size_t bytes) const {
  const auto lost = [&](std::string cause, NativeCode native) {
    return make_error(Status::peer_lost, name_of(direction),
                      text("memory of process ", process_, " at ", range_text(address, bytes)), std::move(cause),
                      "forget the peer's memory", std::move(native));
  };
  if (!is_alive()) return lost("the process has ended", {});
  const auto move = direction == Direction::read ? ::process_vm_readv : ::process_vm_writev;
  for (std::size_t done = 0; done < bytes;) {
    const iovec here{local + done, bytes - done}, there{reinterpret_cast<void*>(address + done), bytes - done};
    const ssize_t count = move(process_, &here, 1, &there, 1, 0);
    const int code = count < 0 ? errno : 0;
    if (code == EINTR) continue;
    if (count <= 0) return code == 0 ? lost("nothing could be moved", {}) : lost(std::strerror(code), errno_code(code));
    done += static_cast<std::size_t>(count);
  }
  return {};
}

// --- Device memory ---------------------------------------------------------------------------------------------------------------

bool PeerDevices::reserve_window(const DeviceProof& gpu, std::size_t bytes) {
  constexpr std::uint64_t kShare = 64, kUsualBytes = std::uint64_t{256} << 20;
  const std::uint64_t room_bytes = (gpu.bar1_bytes != 0 ? gpu.bar1_bytes : kUsualBytes) / kShare;
  std::uint64_t& used_bytes = window_bytes_[gpu.pci];
  if (bytes > room_bytes || used_bytes > room_bytes - bytes) return false;
  used_bytes += bytes;
  return true;
}

#if GIGABAR_HAS_CUDA
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
  if (seen_.empty()) {
    auto devices = runtime->devices();
    if (!devices) return -1;
    seen_ = std::move(*devices);
  }
  const auto found = std::ranges::find(seen_, uuid, &DeviceInfo::uuid);
  return found == seen_.end() ? -1 : static_cast<int>(found - seen_.begin());
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

#else
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

#endif

}  // namespace gigabar::transport::local
