// SPDX-License-Identifier: Apache-2.0
// The host backend: pinned host memory and stand-in devices are reachable at their own address.
#include <sys/mman.h>

#include "base/errors.hpp"
#include "driver/system_calls.hpp"
#include "mapping/backend.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

Availability availability(int device) {
  const auto runtime = active_runtime();
  if (!runtime) return availability_of(runtime.error().record());
  if (device < 0 || *runtime == &stand_in_runtime()) return {AvailabilityCode::ok, "host memory", {}};
  return not_supported(text("device ", device, " is a GPU; its memory is not host memory"), "use a backend that maps BAR1");
}

Availability can_map(const PointerInfo& memory) {
  if (memory.kind == MemoryKind::host_pinned || memory.kind == MemoryKind::stand_in) return {};
  return not_supported(text("it serves pinned host memory and stand-ins, not ", name_of(memory.kind), " memory"), {});
}

Result<Window> open_window(const PointerInfo& memory, const WindowRequest& request) {
  // Stand-in memory is kept from children where it is allocated; other host memory is the application's to decide about.
  if (memory.kind == MemoryKind::stand_in && request.is_inherited) {
    system_calls().madvise(reinterpret_cast<void*>(memory.base), memory.length_bytes, MADV_DOFORK);
  }
  // Stand-in memory stays while a window shows it, as GPU memory does.
  return Window{reinterpret_cast<std::byte*>(memory.base), memory.base, memory.length_bytes, MappingType::cached,
                runtime_of(memory).hold(memory.base)};
}

}  // namespace

constinit const Backend host_backend{MappingBackend::host, availability, can_map, open_window, false};

}  // namespace gigabar::inline v0
