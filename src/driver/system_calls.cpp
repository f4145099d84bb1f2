// SPDX-License-Identifier: Apache-2.0
#include "driver/system_calls.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

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

}  // namespace gigabar::inline v0
