// SPDX-License-Identifier: Apache-2.0
// What other rooms may do with a Mapping that its users may not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/mapping.hpp"

namespace gigabar::inline v0 {

// As map(), for the whole pages of `page_bytes` (a power of two) around the range: the mapping covers [address rounded down,
// address + bytes rounded up), which may include bytes of the block outside the allocation, as far as the block reaches. A page
// that leaves the block is cut at its end. For interfaces whose contract is pages, such as gdrapi.h. Errors and threads: as map().
Result<Mapping> map_pages(const void* address, std::size_t bytes, std::size_t page_bytes, const MapOptions& options);

// As trim_mapping_cache(), and no kernel is waited for.
std::size_t trim_idle_windows(std::size_t keep_bytes);

// What the GPU has where the mapped memory was: that memory, also where nobody can tell; nothing that CUDA tells this process of;
// or other memory. The CPU keeps the pages of memory that was freed. Threads: any.
enum class AtAddress : std::uint8_t { mapped, nothing, other };
AtAddress memory_at_address(const Mapping& mapping) noexcept;

}  // namespace gigabar::inline v0
