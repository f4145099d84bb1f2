// SPDX-License-Identifier: Apache-2.0
// The functions that the files of this folder give to the table in kernels.cpp. Kept free of other headers: each file is compiled
// for its own instruction set, and an inline function of a shared header compiled there could be the one the linker keeps for
// everybody.
#pragma once

#include <cstddef>

namespace gigabar::kernels {

using std::size_t;

// Stream kernels: for write-combined memory. All satisfy the contract of StoreKernel and LoadKernel.
using Store = void (*)(void* mapped_destination, const void* source, size_t bytes) noexcept;
using Load = void (*)(void* destination, const void* mapped_source, size_t bytes) noexcept;
extern const Store sse2_store, avx2_store, avx512_store, movdir64b_store, neon_store;
extern const Load sse2_load;  // plain 16-byte loads
extern const Load sse41_load, avx2_load, avx512_load, neon_load;

// Only naturally aligned accesses of at most 8 bytes: every CPU, and the kernels of uncached mappings.
void generic_store(void* mapped_destination, const void* source, size_t bytes) noexcept;
void generic_load(void* destination, const void* mapped_source, size_t bytes) noexcept;

// memcpy, except that a naturally aligned 1, 2, 4 or 8-byte copy is one access (a release store, an acquire load).
void cached_store(void* mapped_destination, const void* source, size_t bytes) noexcept;
void cached_load(void* destination, const void* mapped_source, size_t bytes) noexcept;

}  // namespace gigabar::kernels
