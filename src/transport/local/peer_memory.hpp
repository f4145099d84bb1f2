// SPDX-License-Identifier: Apache-2.0
// Memory of another process: of its host memory, which the CPU copies to and from, the pages behind its memfd, or its addresses;
// and device memory, opened in this process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "base/in_place.hpp"
#include "gigabar/device.hpp"
#include "gigabar/status.hpp"
#include "memory/runtime.hpp"
#include "transport/local/wire.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::local {

// Whether `bytes` from `offset_bytes` on lie in the memfd `descriptor`, which cannot shrink: a load beyond a new end would end this
// process. Errors: bad_file.
Result<void> check_memfd(int descriptor, std::uint64_t offset_bytes, std::size_t bytes);

// Those of a peer's memfd, mapped. Errors: bad_file (as check_memfd, or it cannot be written), no_permission, out_of_memory.
Result<std::shared_ptr<std::byte>> map_memfd(const Descriptor& file, std::uint64_t offset_bytes, std::size_t bytes);

// One process of this host, through process_vm_readv and process_vm_writev. The kernel is asked once whether its memory may be
// touched, against a nonce that it holds at an address that it told: another process in its place, or numbers of another
// namespace, are noticed.
class ProcessMemory {
 public:
  static std::shared_ptr<ProcessMemory> open(pid_t process, std::uint64_t nonce_address, const Nonce& nonce);

  // Empty when it can be used.
  const std::string& reason() const noexcept { return reason_; }

  // Writes read `local` only. Errors: peer_lost (the process is gone, or the memory is).
  Result<void> copy(Direction direction, std::uint64_t address, std::byte* local, std::size_t bytes) const;

 private:
  ProcessMemory(pid_t process, Descriptor handle) : process_(process), handle_(std::move(handle)) {}
  // The number belongs to the process that was probed for as long as that one lives; after it another may get it.
  bool is_alive() const noexcept;

  const pid_t process_;
  const Descriptor handle_;  // a pidfd
  std::string reason_;
};

// --- Device memory ---------------------------------------------------------------------------------------------------------------

// One allocation as one device of this process reaches it. Closed at the end.
struct OpenedAllocation : InPlace {
  ~OpenedAllocation() {
    if (close) close();
  }

  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  std::function<void()> close;
};

// What has been opened, of all peers: CUDA opens an IPC handle once per process, so regions of one allocation share it.
class PeerDevices {
 public:
  // The allocation behind an IPC handle of `process`, for copies by `device`. Errors: not_supported (no peer access), device_error.
  Result<std::shared_ptr<OpenedAllocation>> open_ipc(std::int64_t process, const IpcIdentity& handle, int device);
  // The same for an exported descriptor. Not shared: each descriptor is an allocation handle of its own.
  static Result<std::shared_ptr<OpenedAllocation>> open_vmm(const Descriptor& exported, std::size_t bytes, int device);

  // This process's ordinal of the device with that UUID; -1 when it does not see it.
  int device_of(const std::string& uuid);
  // Room in the BAR1 of a peer's GPU for a window that writes are stored through, until release_window(). All of them together have
  // a share of it, since other mappings need room there, too. False: there is none left.
  bool reserve_window(const DeviceProof& gpu, std::size_t bytes);
  void release_window(const DeviceProof& gpu, std::size_t bytes) noexcept { window_bytes_[gpu.pci] -= bytes; }
  // Lets `device` reach memory of `other`, both of this process. Errors: not_supported (no peer access), device_error.
  static Result<void> check_peer_access(int device, int other);
  static Result<void> enable_peer_access(int device, int other);
  // The same for one VMM allocation, all of it, which stays where it is. Errors: unavailable (an old driver), device_error.
  static Result<void> open_vmm_to(int device, std::uintptr_t address, std::size_t bytes);
  // Why atomics of kernels of `device` on memory of another GPU are not atomic with those of that GPU's own kernels; empty: they
  // are. `owner`: this process's ordinal of it, or -1: then `owner_uuid` names it. What no driver answers counts as a no.
  static std::string why_no_atomics(int device, int owner, const std::string& owner_uuid);

 private:
  using Name = std::pair<std::pair<std::int64_t, int>, IpcIdentity>;
  std::map<Name, std::weak_ptr<OpenedAllocation>> opened_;
  std::vector<DeviceInfo> seen_;  // by ordinal, once asked for
  std::map<DeviceProof::Pci, std::uint64_t> window_bytes_;
};

}  // namespace gigabar::transport::local
