// SPDX-License-Identifier: Apache-2.0
// Which kernel is used for which size, and how that is changed.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "gigabar/copy.hpp"

namespace gigabar::kernels {

// One kernel per size class (bit width of the byte count).
struct Choice {
  std::array<StoreKernel, detail::ActiveKernels::kSizeClasses> store;
  std::array<LoadKernel, detail::ActiveKernels::kSizeClasses> load;
};

// What is used without a calibration: always a supported kernel. For stores by size class, which decides it only on x86.
const CopyKernel& default_store_kernel(std::size_t size_class) noexcept;
const CopyKernel& default_load_kernel() noexcept;

// Every name that any build of this library can know.
bool is_kernel_name(std::string_view name) noexcept;
// The kernel of this build with that name, when this CPU has it; null otherwise.
const CopyKernel* find_supported_kernel(std::string_view name) noexcept;

// Write-combined mappings of every device copy with `choice` from now on; a copy in flight finishes with the old one. Threads: any.
void use_choice(const Choice& choice) noexcept;
Choice default_choice() noexcept;

}  // namespace gigabar::kernels
