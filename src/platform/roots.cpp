// SPDX-License-Identifier: Apache-2.0
#include "platform/roots.hpp"

#include <utility>

namespace gigabar::inline v0 {
namespace {

PlatformRoots& roots() {
  static auto* const instance = new PlatformRoots;
  return *instance;
}

}  // namespace

const PlatformRoots& platform_roots() noexcept { return roots(); }
void set_platform_roots(PlatformRoots changed) { roots() = std::move(changed); }

}  // namespace gigabar::inline v0
