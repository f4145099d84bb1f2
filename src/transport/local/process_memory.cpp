// SPDX-License-Identifier: Apache-2.0
#include "transport/local/process_memory.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.hpp"

namespace gigabar::transport::local {
namespace {

std::string refusal(pid_t process, int code) {
  std::string what = text("the kernel refuses access to the memory of process ", process, " (", errno_code(code).name, ")");
  if (code == EFAULT) return text("process ", process, " has no memory where the key says: it is another process");
  if (code == EPERM) return what + ": ptrace scope (kernel.yama.ptrace_scope), another user, or a process that is not dumpable";
  return what;
}

}  // namespace

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

template <class Move>
Result<void> ProcessMemory::move(const char* operation, std::uint64_t address, std::byte* local, std::size_t bytes,
                                 Move move_some) const {
  const auto lost = [&](std::string cause, NativeCode native) {
    return make_error(Status::peer_lost, operation, text("memory of process ", process_, " at ", range_text(address, bytes)),
                      std::move(cause), "forget the peer's memory", std::move(native));
  };
  if (!is_alive()) return lost("the process has ended", {});
  std::size_t done = 0;
  while (done < bytes) {
    const iovec here{local + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(address + done), bytes - done};
    const ssize_t count = move_some(process_, &here, 1UL, &there, 1UL, 0UL);
    const int code = errno;
    if (count < 0 && code == EINTR) continue;
    if (count < 0) return lost(std::strerror(code), errno_code(code));
    if (count == 0) return lost("nothing could be moved", {});
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> ProcessMemory::write(std::uint64_t address, const void* source, std::size_t bytes) const {
  return move("write", address, static_cast<std::byte*>(const_cast<void*>(source)), bytes, ::process_vm_writev);
}

Result<void> ProcessMemory::read(std::uint64_t address, void* destination, std::size_t bytes) const {
  return move("read", address, static_cast<std::byte*>(destination), bytes, ::process_vm_readv);
}

}  // namespace gigabar::transport::local
