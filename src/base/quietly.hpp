// SPDX-License-Identifier: Apache-2.0
// What destructors do that may throw.
#pragma once

namespace gigabar::inline v0 {

// Runs `body` as far as it comes: an exception, which says that there is no memory left, ends it. For texts and for steps that may
// be left out.
template <class Body>
void quietly(Body&& body) noexcept {
  try {
    body();
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is nobody to tell
  }
}

}  // namespace gigabar::inline v0
