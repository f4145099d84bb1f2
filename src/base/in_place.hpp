// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gigabar::inline v0 {

// The base of what stays where it was made: it is neither copied nor moved.
class InPlace {
 public:
  InPlace() = default;
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;
};

}  // namespace gigabar::inline v0
