// SPDX-License-Identifier: Apache-2.0
// The pages behind a peer's memfd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"

namespace gigabar::transport::local {

// Mapped when the file cannot shrink. Otherwise the CPU does not touch its pages itself, since a load beyond a new end would end
// this process: it asks the kernel to copy (pread, pwrite), which then is an error.
class PeerFile {
 public:
  // Errors: bad_file (no memfd, or smaller than told), no_permission, out_of_memory.
  static Result<std::unique_ptr<PeerFile>> open(Descriptor file, std::uint64_t offset_bytes, std::size_t bytes);
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;
  PeerFile& operator=(const PeerFile&) = delete;

  // Null when it is not mapped.
  std::byte* address() const noexcept { return address_; }
  // Errors: peer_lost (the peer made the file smaller).
  Result<void> write(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const;
  Result<void> read(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const;

 private:
  PeerFile(Descriptor file, std::uint64_t offset_bytes) : file_(std::move(file)), offset_bytes_(offset_bytes) {}
  Result<void> map(std::size_t bytes, std::size_t page_bytes);

  Descriptor file_;
  const std::uint64_t offset_bytes_;  // of the region in the file
  std::byte* address_ = nullptr;
  void* mapped_ = nullptr;  // whole pages around it
  std::size_t mapped_bytes_ = 0;
};

// Whether `bytes` from `offset_bytes` on lie in the memfd `descriptor`. Errors: bad_file.
Result<void> check_memfd(int descriptor, std::uint64_t offset_bytes, std::size_t bytes);

}  // namespace gigabar::transport::local
