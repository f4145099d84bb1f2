// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime, linked into the program when device code is built: cudaMemcpy as the path to compare with. Without nvcc
// not_built.cpp stands here, which says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::tool {

// Whether CUDA's runtime can use `device`; afterwards it is this thread's current device.
Availability use_cuda_runtime(int device);

// cudaMemcpy, cudaMemcpyDefault. False on an error, which cuda_error() then tells.
bool cuda_memcpy(void* destination, const void* source, std::size_t bytes) noexcept;
std::string cuda_error();

// GB/s of `count` plain cudaMemcpyAsync calls between two events of a stream of `device`, after two that are not timed. Errors:
// device_error, unavailable (not built).
Result<double> plain_copy_rate(int device, void* destination, const void* source, std::size_t bytes, std::uint64_t count);

}  // namespace gigabar::tool
