// SPDX-License-Identifier: Apache-2.0
// libarchive.so.13, opened at run time: tar files of a machine's files, in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "gigabar/status.hpp"

namespace gigabar::tar {

// ok when the library was opened and has every function that is needed. Threads: any; the first call loads it.
const Availability& availability();

enum class Kind : std::uint8_t { file, folder, link };

// A path is relative, without "./" in front and "/" at its end.
struct Entry {
  Kind kind = Kind::file;
  std::string path;
  std::string text;  // a file's content, a link's target
};

// Whether that can be a tar file: it has the magic of POSIX or GNU.
bool is_tar(std::string_view bytes) noexcept;

// Calls `visit` with each entry, in the order of the file, and passes on what it throws. Nothing is unpacked on disk, and no more
// memory is taken than there are bytes. Paths with ".." and the like are the caller's to refuse.
// Errors: bad_file with the entry's path (truncated or damaged, an absolute path, a hard link, something that is no file, folder or
// symbolic link, a sparse file, a size beyond the bytes), unavailable (no library). Throws std::bad_alloc.
Result<void> read(std::string_view bytes, const std::function<void(Entry&& entry)>& visit);

// Makes a tar file of GNU's format, which keeps names of any bytes and length. Errors: unavailable (no library, or it fails).
// Throws std::bad_alloc.
Result<std::string> write(std::span<const Entry> entries);

}  // namespace gigabar::tar
