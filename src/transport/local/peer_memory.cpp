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

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/ranges.hpp"
#include "base/rounding.hpp"
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

}  // namespace gigabar::transport::local
