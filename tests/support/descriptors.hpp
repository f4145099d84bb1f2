// SPDX-License-Identifier: Apache-2.0
// The open descriptors of this process, and its mappings.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

namespace gigabar::test {

// With the one that counts them.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Lines of /proc/self/maps with `text`.
inline std::size_t mapped_ranges(std::string_view text) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace gigabar::test
