// SPDX-License-Identifier: Apache-2.0
// Where the machine is read from. Tests point these at a tree of their own.
#pragma once

#include <string>

namespace gigabar::inline v0 {

struct PlatformRoots {
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string dev = "/dev";
};

// The roots in use. Not changed while other threads use the library.
const PlatformRoots& platform_roots() noexcept;
void set_platform_roots(PlatformRoots changed);

}  // namespace gigabar::inline v0
