// SPDX-License-Identifier: Apache-2.0
// Another process's memory through process_vm_readv and process_vm_writev.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"
#include "transport/local/wire.hpp"

namespace gigabar::transport::local {

// One process of this host. The kernel is asked once whether its memory may be touched, against a nonce that it holds at an address
// that it told: another process in its place, or numbers of another namespace, are noticed.
class ProcessMemory {
 public:
  static std::shared_ptr<ProcessMemory> open(pid_t process, std::uint64_t nonce_address, const Nonce& nonce);

  // Empty when it can be used.
  const std::string& reason() const noexcept { return reason_; }

  // Errors: peer_lost (the process is gone, or the memory is).
  Result<void> write(std::uint64_t address, const void* source, std::size_t bytes) const;
  Result<void> read(std::uint64_t address, void* destination, std::size_t bytes) const;

 private:
  ProcessMemory(pid_t process, Descriptor handle) : process_(process), handle_(std::move(handle)) {}
  // The number belongs to the process that was probed for as long as that one lives; after it another may get it.
  bool is_alive() const noexcept;
  template <class Move>
  Result<void> move(const char* operation, std::uint64_t address, std::byte* local, std::size_t bytes, Move move_some) const;

  const pid_t process_;
  const Descriptor handle_;  // a pidfd
  std::string reason_;
};

}  // namespace gigabar::transport::local
