// SPDX-License-Identifier: Apache-2.0
// Stand-in memory from C. It must come from this library: another one in the process has stand-ins of its own.
#pragma GCC visibility push(default)
#include "gigabar/stand_in.h"
#pragma GCC visibility pop

#include <cerrno>
#include <map>
#include <mutex>

#include "base/errors.hpp"
#include "gdrapi/log.hpp"
#include "gdrapi/session.hpp"
#include "gigabar/mapping.hpp"
#include "memory/runtime.hpp"

namespace {

using gigabar::gdrapi::errno_of;
using gigabar::gdrapi::guarded;
using gigabar::gdrapi::refuse;

struct Allocation {
  gigabar::DeviceBlock block;
  std::uint32_t process_generation = 0;
};
struct Allocations {
  std::mutex mutex;
  std::map<const void*, Allocation> by_begin;
};
// Never destroyed: programs may free in their own destructors.
Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

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
    const std::lock_guard lock(allocations().mutex);
    auto block = gigabar::stand_in_runtime().allocate(device, bytes, gigabar::DeviceAllocator::cuda_malloc);
    if (!block) return refuse(errno_of(block.status()), kFunction, block.error().message());
    void* const begin = reinterpret_cast<void*>(block->address);
    allocations().by_begin[begin] = {*block, gigabar::detail::process_generation()};
    *address = begin;
    return 0;
  });
}

int gigabar_stand_in_free(void* address) {
  constexpr const char* kFunction = "gigabar_stand_in_free";
  return guarded(kFunction, [&] {
    const std::lock_guard lock(allocations().mutex);
    const auto found = allocations().by_begin.find(address);
    if (found == allocations().by_begin.end()) return refuse(EINVAL, kFunction, "the address was not allocated, or was freed");
    if (found->second.process_generation != gigabar::detail::process_generation()) {
      return refuse(EACCES, kFunction, "the parent process allocated it");
    }
    if (auto released = gigabar::stand_in_runtime().release(found->second.block); !released) {
      return refuse(errno_of(released.status()), kFunction, released.message());
    }
    allocations().by_begin.erase(found);
    return 0;
  });
}
