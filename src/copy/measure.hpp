// SPDX-License-Identifier: Apache-2.0
// What measurements of copies share, and the arithmetic of Calibration::measure.
#pragma once

#include <cstddef>
#include <vector>

namespace gigabar::inline v0 {

// Writes every line again, with what it holds: then it is as if this thread had just made the data. A copy engine reads such lines
// out of this CPU's own cache, which takes longer (a fifth at 256 KiB) than reading what several CPUs have read before.
inline void write_again(std::byte* host, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += 64) {
    volatile std::byte& byte = host[i];
    byte = static_cast<std::byte>(byte);
  }
}

// Of an even number the greater of the middle two: a time that was measured. Infinity when there are none.
double median_of(std::vector<double> samples);

// The index of the smallest median, when it beats that of `usual_index` by more than 5 %; else `usual_index`: a kernel is not
// changed for a difference that the next measurement may take back.
std::size_t pick_kernel(const std::vector<double>& medians_us, std::size_t usual_index);

}  // namespace gigabar::inline v0
