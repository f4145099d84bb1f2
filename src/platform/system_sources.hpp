// SPDX-License-Identifier: Apache-2.0
// What SystemFiles goes through: the folders of a tree on disk, or of an archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/in_place.hpp"
#include "platform/system_files.hpp"

namespace gigabar::inline v0 {

// Limits of Linux (PATH_MAX, NAME_MAX, and the links in one path), and one of our own: sysfs is some 20 folders deep.
inline constexpr std::size_t kMaxPathBytes = 4096;
inline constexpr std::size_t kMaxPartBytes = 255;
inline constexpr unsigned kMaxLinks = 40;
inline constexpr std::size_t kMaxDepth = 64;

// Reads a regular file below `folder` (a descriptor, or AT_FDCWD); `flags` are more of open(2)'s. Never blocks.
FileText read_regular(int folder, const std::string& name, int flags, std::size_t most_bytes);

class SourceFolder : InPlace {
 public:
  enum class Entry : std::uint8_t { missing, folder, link, leaf, denied };
  // What a part of a path is, seen from here.
  struct Found {
    Entry entry = Entry::missing;
    std::string detail;  // a link's target, the reason of `denied`, or why a leaf cannot be read
    std::shared_ptr<const SourceFolder> folder;
  };

  virtual ~SourceFolder() = default;

  virtual Found find(const std::string& part) const = 0;
  virtual FolderNames list() const = 0;
  // Of a leaf that find() found.
  virtual FileText read(const std::string& leaf, std::size_t most_bytes) const = 0;
  // The same; of this folder itself where `leaf` is empty.
  virtual NodeFacts facts(const std::string& leaf) const = 0;
};

}  // namespace gigabar::inline v0
