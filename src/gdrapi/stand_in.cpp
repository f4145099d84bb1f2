// SPDX-License-Identifier: Apache-2.0
// Stand-in memory from C. It must come from this library: another one in the process has stand-ins of its own.
#pragma GCC visibility push(default)
#include "gigabar/stand_in.h"
#pragma GCC visibility pop

#include <cerrno>

#include "base/errors.hpp"
#include "gdrapi/log.hpp"
#include "gdrapi/session.hpp"
#include "memory/runtime.hpp"

namespace {

using gigabar::gdrapi::errno_of;
using gigabar::gdrapi::guarded;
using gigabar::gdrapi::refuse;

}  // namespace

int gigabar_stand_in_allocate(int device, size_t bytes, void** address) {
  constexpr const char* kFunction = "gigabar_stand_in_allocate";
  if (address == nullptr) return refuse(EINVAL, kFunction, "address is null");
  if (bytes == 0) return refuse(EINVAL, kFunction, "bytes is 0");
  return guarded(kFunction, [&] {
    const auto count = gigabar::forced_stand_in_count();
    if (!count) return refuse(errno_of(count.status()), kFunction, count.error().message());
    if (*count == 0) return refuse(ENODEV, kFunction, "there are no stand-ins; set GIGABAR_STAND_IN=1");
    if (device < 0 || device >= *count) {
      return refuse(EINVAL, kFunction, gigabar::text("device ", device, ": GIGABAR_STAND_IN asks for ", *count));
    }
    const auto block = gigabar::stand_in_runtime().allocate(device, bytes, gigabar::DeviceAllocator::cuda_malloc);
    if (!block) return refuse(errno_of(block.status()), kFunction, block.error().message());
    *address = reinterpret_cast<void*>(block->address);
    return 0;
  });
}

int gigabar_stand_in_free(void* address) {
  constexpr const char* kFunction = "gigabar_stand_in_free";
  return guarded(kFunction, [&] {
    gigabar::DeviceBlock block;
    block.address = reinterpret_cast<std::uintptr_t>(address);
    const auto released = gigabar::stand_in_runtime().release(block);
    if (!released) return refuse(errno_of(released.status()), kFunction, released.record().cause);
    return 0;
  });
}
