// SPDX-License-Identifier: Apache-2.0
// Where the machine is read from. Tests point these at a tree of their own.
#pragma once

#include <string>
#include <utility>

namespace gigabar::inline v0 {

struct PlatformRoots {
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string dev = "/dev";
};

// The roots in use. Not changed while other threads use the library.
inline PlatformRoots& changeable_platform_roots() {
  static auto* const instance = new PlatformRoots;
  return *instance;
}
inline const PlatformRoots& platform_roots() noexcept { return changeable_platform_roots(); }
inline void set_platform_roots(PlatformRoots changed) { changeable_platform_roots() = std::move(changed); }

}  // namespace gigabar::inline v0
