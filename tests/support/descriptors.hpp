// SPDX-License-Identifier: Apache-2.0
// The open descriptors of this process.
#pragma once

#include <dirent.h>

#include <cstddef>

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

}  // namespace gigabar::test
