// SPDX-License-Identifier: Apache-2.0
#include "transport/local/link_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::transport::local {
namespace {

constexpr std::size_t kViewBytes = kLinkPageBytes + 4 * kRingBytes;  // each ring twice

Error failed(const char* operation, int code) {
  const Status status = status_of_errno(code, Status::out_of_memory);
  return make_error(status, operation, "memory of a link", std::strerror(code),
                    status == Status::out_of_descriptors ? "raise the descriptor limit (ulimit -n)" : "free memory of this machine",
                    errno_code(code));
}

Error malformed(std::string cause) {
  return make_error(Status::bad_file, "open", "memory of a peer's link", std::move(cause), "run the same version at every rank");
}

bool map_at(std::byte* address, const Descriptor& file, std::size_t bytes, std::size_t offset) {
  return ::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), static_cast<off_t>(offset)) == address;
}

}  // namespace

Result<LinkMemory> LinkMemory::make(Descriptor& file) {
  Descriptor made = open_memory_file("gigabar-link", kLinkFileBytes);
  if (!made.is_open()) return failed("make", errno);
  auto mapped = map(made);
  if (mapped) file = std::move(made);
  return mapped;
}

Result<LinkMemory> LinkMemory::open(const Descriptor& file) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0) return malformed("is no memfd");
  // One that can shrink under a mapping ends the process that touches what is gone.
  if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) return malformed("can change its size");
  struct stat status{};
  ::fstat(file.get(), &status);
  if (status.st_size != static_cast<off_t>(kLinkFileBytes))
    return malformed(text("has ", counted(static_cast<std::uint64_t>(status.st_size), "byte"), " in place of ", kLinkFileBytes));
  return map(file);
}

Result<LinkMemory> LinkMemory::map(const Descriptor& file) {
  void* const reserved = ::mmap(nullptr, kViewBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return failed("map", errno);
  LinkMemory memory(std::unique_ptr<void, UnmapPages>(reserved, UnmapPages{kViewBytes}));
  bool is_mapped = map_at(static_cast<std::byte*>(reserved), file, kLinkPageBytes, 0);
  for (unsigned direction = 0; direction < 2 && is_mapped; ++direction) {
    const std::size_t offset = kLinkPageBytes + direction * kRingBytes;
    is_mapped = map_at(memory.ring(direction), file, kRingBytes, offset) &&
                map_at(memory.ring(direction) + kRingBytes, file, kRingBytes, offset);
  }
  if (!is_mapped) return failed("map", errno);
  ::madvise(reserved, kViewBytes, MADV_DONTFORK);
  return memory;
}

Result<void> make_wake_pair(Descriptor& own, Descriptor& peers) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return failed("make sockets to wake", errno);
  own = Descriptor(pair[0]);
  peers = Descriptor(pair[1]);
  return {};
}

Result<void> check_wake_socket(const Descriptor& socket) {
  int domain = 0;
  int type = 0;
  socklen_t bytes = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) return malformed("brings no socket to wake it");
  bytes = sizeof type;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || domain != AF_UNIX || type != SOCK_STREAM)
    return malformed("brings a socket of another kind to wake it");
  return {};
}

void send_wake(const Descriptor& socket) noexcept {
  const Uncancelled uncancelled;
  const char one = 1;
  while (::send(socket.get(), &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

void take_wakes(const Descriptor& socket) noexcept {
  const Uncancelled uncancelled;
  char taken[256];
  while (::recv(socket.get(), taken, sizeof taken, MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
}

}  // namespace gigabar::transport::local
