// SPDX-License-Identifier: Apache-2.0
// Copies split over threads, for whoever brings the kernel.
#pragma once

#include <cstddef>

#include "gigabar/copy.hpp"

namespace gigabar::inline v0 {

// Fences, kernels and split of copy_to_parallel and copy_from_parallel, without their checks; `thread_count` 1..64.
Result<void> store_parallel(std::byte* mapped_destination, const void* source, std::size_t bytes, unsigned thread_count,
                            StoreKernel kernel);
Result<void> load_parallel(void* destination, const std::byte* mapped_source, std::size_t bytes, unsigned thread_count,
                           LoadKernel kernel);

}  // namespace gigabar::inline v0
