// SPDX-License-Identifier: Apache-2.0
// Copies split over threads, for whoever brings the kernel.
#pragma once

#include <cstddef>
#include <type_traits>

#include "gigabar/copy.hpp"

namespace gigabar::inline v0 {

static_assert(std::is_same_v<StoreKernel, LoadKernel>, "a direction says which of both a kernel is");

// The kernel in use for copies of so many bytes.
StoreKernel active_kernel(CopyDirection direction, const Mapping& mapping, std::size_t bytes) noexcept;

// One copy by `kernel`, fenced as copy_to() and copy_from() are.
void copy_by_kernel(CopyDirection direction, std::byte* mapped, std::byte* host, std::size_t bytes, StoreKernel kernel) noexcept;

// The same with the split of copy_to_parallel() and copy_from_parallel(), without their checks; `thread_count` 1..64.
Result<void> copy_parallel(CopyDirection direction, std::byte* mapped, std::byte* host, std::size_t bytes, unsigned thread_count,
                           StoreKernel kernel);

}  // namespace gigabar::inline v0
