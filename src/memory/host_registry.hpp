// SPDX-License-Identifier: Apache-2.0
// Host memory that this library pinned itself: on a machine without CUDA nobody else remembers it.
#pragma once

#include <cstdint>
#include <optional>

#include "gigabar/memory.hpp"

namespace gigabar {

// The allocation of HostMemory that holds `address`, if it is pinned.
std::optional<PointerInfo> find_pinned_host_memory(std::uintptr_t address);

}  // namespace gigabar
