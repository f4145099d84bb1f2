// SPDX-License-Identifier: Apache-2.0
#include "driver/system_calls.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.hpp"

namespace gigabar::inline v0 {
namespace {

std::atomic<const SystemCalls*> replacement{nullptr};

}  // namespace

const SystemCalls& kernel_system_calls() noexcept {
  static const SystemCalls calls{
      [](const char* path, int flags) { return ::open(path, flags); },
      [](int descriptor) { return ::close(descriptor); },
      [](int descriptor, unsigned long request, void* argument) { return ::ioctl(descriptor, request, argument); },
      [](void* hint, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
        return ::mmap(hint, bytes, protection, flags, descriptor, offset);
      },
      [](void* address, std::size_t bytes) { return ::munmap(address, bytes); },
      [](void* address, std::size_t bytes, int advice) { return ::madvise(address, bytes, advice); },
  };
  return calls;
}

const SystemCalls& system_calls() noexcept {
  const SystemCalls* calls = replacement.load(std::memory_order_acquire);
  return calls != nullptr ? *calls : kernel_system_calls();
}

void replace_system_calls(const SystemCalls* calls) noexcept { replacement.store(calls, std::memory_order_release); }

Result<int> open_device_file(const char* operation, const std::string& path, std::string remedy, std::string_view check) {
  const int descriptor = system_calls().open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  const int code = errno;
  Status status = status_of_errno(code);
  switch (code) {
    case ENOENT:
    case ENXIO:
    case ENODEV: status = Status::unavailable; break;
    case EACCES:
    case EPERM: remedy = "give this user read and write access to " + path; break;
    case EMFILE: remedy = "raise the descriptor limit (ulimit -n)"; break;
    default: remedy.clear();
  }
  return make_error(status, operation, path, text("cannot open: ", std::strerror(code)), std::move(remedy), errno_code(code),
                    check);
}

int call_device(int descriptor, unsigned long request, void* argument) noexcept {
  int result;
  do {
    result = system_calls().ioctl(descriptor, request, argument);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace gigabar::inline v0
