// SPDX-License-Identifier: Apache-2.0
// Memory of stand-in devices that comes from a file instead of the host's memory: a device file that maps a PCI BAR, or any file of
// a fixed size. Processes share the file: each range belongs to whoever holds a lock on it, and the kernel takes locks back from
// processes that die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/descriptor.hpp"
#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// A range of the file. Nobody else gets it while the descriptor, or a copy that a forked child has, is open.
struct FileRange {
  Descriptor file;
  std::uint64_t offset_bytes = 0;
};

// The file's size in whole pages. Errors: invalid_argument (it cannot be opened for reading and writing, or has no size),
// permission (it may not be opened), out_of_descriptors.
Result<std::uint64_t> stand_in_file_bytes(const std::string& path);

// Takes the first free range of `bytes`, a multiple of `alignment_bytes`, at a multiple of it. What an earlier owner wrote is still
// there, as in a GPU's memory. Errors: as above; out_of_memory (no range is free that is large enough).
Result<FileRange> take_from_stand_in_file(const std::string& path, std::uint64_t bytes, std::uint64_t alignment_bytes);

}  // namespace gigabar::inline v0
