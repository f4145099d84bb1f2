// SPDX-License-Identifier: Apache-2.0
// describe(): what a pointer is, asked of each runtime in turn.
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "platform/numa.hpp"

namespace gigabar::inline v0 {

std::string_view name_of(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host_pageable: return "host_pageable";
    case MemoryKind::host_pinned: return "host_pinned";
    case MemoryKind::device: return "device";
    case MemoryKind::device_vmm: return "device_vmm";
    case MemoryKind::device_pool: return "device_pool";
    case MemoryKind::managed: return "managed";
    case MemoryKind::stand_in: return "stand_in";
  }
  return "unknown";
}

Result<PointerInfo> describe(const void* address) try {
  const Uncancelled uncancelled;
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return make_error(Status::invalid_argument, "describe", "address", "is null", "pass a pointer");
  for (Runtime* runtime : {&stand_in_runtime(), cuda_runtime()}) {
    if (runtime == nullptr) continue;
    const auto known = runtime->describe(value);
    if (!known) return known.error();
    if (known->has_value()) return **known;
  }
  if (const auto pinned = find_pinned_host_memory(value)) return *pinned;
  PointerInfo info;
  info.address = info.base = value;
  info.numa_node = numa_node_of_page(value);
  return info;
} catch (...) {
  return error_of_exception("describe");
}

}  // namespace gigabar::inline v0
