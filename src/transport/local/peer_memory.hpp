// SPDX-License-Identifier: Apache-2.0
// Host memory of another process, which the CPU copies to and from: the pages behind its memfd, or its addresses.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "memory/host_pages.hpp"
#include "transport/local/wire.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::local {

// Mapped when the file cannot shrink. Otherwise the CPU does not touch its pages itself, since a load beyond a new end would end
// this process: it asks the kernel to copy (pread, pwrite), which then is an error.
class PeerFile {
 public:
  // Errors: bad_file (no memfd, or smaller than told), no_permission, out_of_memory.
  static Result<std::unique_ptr<PeerFile>> open(Descriptor file, std::uint64_t offset_bytes, std::size_t bytes);

  // Null when it is not mapped.
  std::byte* address() const noexcept { return address_; }
  // Where it is not mapped. Writes read `local` only. Errors: peer_lost (the peer made the file smaller).
  Result<void> copy(Direction direction, std::uint64_t offset_bytes, std::byte* local, std::size_t bytes) const;

 private:
  PeerFile(Descriptor file, std::uint64_t offset_bytes) : file_(std::move(file)), offset_bytes_(offset_bytes) {}
  Result<void> map(std::size_t bytes, std::size_t page_bytes);

  Descriptor file_;
  const std::uint64_t offset_bytes_;  // of the region in the file
  std::byte* address_ = nullptr;
  std::unique_ptr<void, UnmapPages> mapped_;  // whole pages around it
};

// Whether `bytes` from `offset_bytes` on lie in the memfd `descriptor`. Errors: bad_file.
Result<void> check_memfd(int descriptor, std::uint64_t offset_bytes, std::size_t bytes);

// One process of this host, through process_vm_readv and process_vm_writev. The kernel is asked once whether its memory may be
// touched, against a nonce that it holds at an address that it told: another process in its place, or numbers of another
// namespace, are noticed.
class ProcessMemory {
 public:
  static std::shared_ptr<ProcessMemory> open(pid_t process, std::uint64_t nonce_address, const Nonce& nonce);

  // Empty when it can be used.
  const std::string& reason() const noexcept { return reason_; }

  // As PeerFile::copy(). Errors: peer_lost (the process is gone, or the memory is).
  Result<void> copy(Direction direction, std::uint64_t address, std::byte* local, std::size_t bytes) const;

 private:
  ProcessMemory(pid_t process, Descriptor handle) : process_(process), handle_(std::move(handle)) {}
  // The number belongs to the process that was probed for as long as that one lives; after it another may get it.
  bool is_alive() const noexcept;

  const pid_t process_;
  const Descriptor handle_;  // a pidfd
  std::string reason_;
};

}  // namespace gigabar::transport::local
