// SPDX-License-Identifier: Apache-2.0
// A peer's device memory, opened in this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "memory/runtime.hpp"

namespace gigabar::transport::local {

// One allocation as one device of this process reaches it. Closed at the end.
class OpenedAllocation {
 public:
  OpenedAllocation() = default;
  OpenedAllocation(const OpenedAllocation&) = delete;
  OpenedAllocation& operator=(const OpenedAllocation&) = delete;
  ~OpenedAllocation() {
    if (close_) close_();
  }
  std::uintptr_t address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  void hold(std::uintptr_t address, std::size_t bytes, std::function<void()> close) {
    address_ = address;
    bytes_ = bytes;
    close_ = std::move(close);
  }

 private:
  std::uintptr_t address_ = 0;
  std::size_t bytes_ = 0;
  std::function<void()> close_;
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
  std::vector<std::string> uuids_;  // by ordinal, once asked for
};

}  // namespace gigabar::transport::local
