// SPDX-License-Identifier: Apache-2.0
// The arithmetic of Calibration::measure.
#pragma once

#include <cstddef>
#include <vector>

namespace gigabar::inline v0 {

// Of an even number the greater of the middle two: a time that was measured. Infinity when there are none.
double median_of(std::vector<double> samples);

// The index of the smallest median, when it beats that of `usual_index` by more than 5 %; else `usual_index`: a kernel is not
// changed for a difference that the next measurement may take back.
std::size_t pick_kernel(const std::vector<double>& medians_us, std::size_t usual_index);

}  // namespace gigabar::inline v0
