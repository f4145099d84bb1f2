// SPDX-License-Identifier: Apache-2.0
// What gdr_open decides and gdr_pin_buffer needs: which memory a session takes, and how a range of it becomes a Pin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gigabar/mapping.hpp"

namespace gigabar::gdrapi {

// Fixed when a session is opened.
struct Session {
  std::uint32_t process_generation = 0;    // of the process that opened it; another one may not use it
  bool has_stand_ins = false;              // the user asked for them: stand-in memory may be pinned
  bool has_coherent_link = false;          // some device is reached by cached accesses instead of PCIe
  bool uses_dmabuf = false;                // the backend that pins will take, on every device
  std::optional<MappingBackend> required;  // by GDRCOPY_USE_DMABUF_MMAP or GIGABAR_MAPPING
};

// Looks at devices, backends and the environment.
// Errors: unavailable or no_permission, with the reason of each thing that is missing; invalid_argument (GIGABAR_STAND_IN,
// GIGABAR_MAPPING); device_error, foreign_process. Threads: any. Cost: opens the drivers.
Result<Session> open_session();

// A pinned buffer. Never changes once it is made.
struct Pin {
  Mapping mapping;              // the GPU pages around the buffer, as far as its block of GPU memory reaches
  std::size_t page_bytes;       // of those GPU pages
  std::size_t lead_bytes;       // from the mapping's first byte to the address that was asked for
  std::uint64_t pin_cycles;     // what making it took
  std::uint32_t cycles_per_ms;  // of the counter that pin_cycles is of
};

// Maps the GPU pages that hold [address, address + bytes) and verifies them.
// Errors: invalid_argument, out_of_range, not_supported (all EINVAL to a C caller), and what map_pages() answers.
// Threads: any. Cost: as map().
Result<Pin> make_pin(const Session& session, std::uintptr_t address, std::size_t bytes, std::uint32_t flags);

// The positive errno that stands for `status` in this interface.
int errno_of(Status status) noexcept;

}  // namespace gigabar::gdrapi
