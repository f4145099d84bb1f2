// SPDX-License-Identifier: Apache-2.0
#include "copy/kernels/kernels.hpp"

#include <algorithm>
#include <utility>

#include "copy/kernels/entries.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gigabar::inline v0 {
namespace {

using detail::ActiveKernels;

#if defined(__x86_64__)
// CPUID.(7,0):ECX bit 28. The instruction touches no register state, so the operating system need not agree.
bool has_movdir64b() noexcept {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1U << 28)) != 0;
}

// The order, best first; of stores as measured on an H200 behind a Xeon with all of them (PCIe 5.0 x16), calls back to back: below
// 1 KiB all are alike, since the link's queue of writes sets the pace; from 8 KiB MOVDIR64B stays at 17 GB/s where the others reach
// 21; between the two it is 1 to 4 % ahead, see default_store_kernel.
// Loads go by the same order, the widest first: a line that was loaded can be gone from the CPU's fill buffer before the second
// load of it, which then is a round trip of its own. On an H200 64 bytes took 1.3 us by loads of 32 bytes and 1.0 us by one of 64;
// on others both took 1.0 (bench/results/h200-copylat-kernels.json).
// __builtin_cpu_supports also asks XGETBV whether the operating system saves the registers.
std::array<CopyKernel, 5> detect_kernels() noexcept {
  __builtin_cpu_init();
  const LoadKernel sse_load = __builtin_cpu_supports("sse4.1") ? kernels::sse41_load : kernels::sse2_load;
  const bool has_avx512 = __builtin_cpu_supports("avx512f");
  const bool has_avx2 = __builtin_cpu_supports("avx2");
  return {{{"avx512", has_avx512, kernels::avx512_store, kernels::avx512_load},
           {"avx2", has_avx2, kernels::avx2_store, kernels::avx2_load},
           {"movdir64b", has_movdir64b(), kernels::movdir64b_store, sse_load},
           {"sse2", true, kernels::sse2_store, sse_load},
           {"generic", true, kernels::generic_store, kernels::generic_load}}};
}

#elif defined(__aarch64__)
// Advanced SIMD is part of every arm64 Linux (HWCAP_ASIMD is required by its ABI).
std::array<CopyKernel, 2> detect_kernels() noexcept {
  return {
      {{"neon", true, kernels::neon_store, kernels::neon_load}, {"generic", true, kernels::generic_store, kernels::generic_load}}};
}

#else
std::array<CopyKernel, 1> detect_kernels() noexcept { return {{{"generic", true, kernels::generic_store, kernels::generic_load}}}; }
#endif

void resolve_store(void* mapped_destination, const void* source, std::size_t bytes) noexcept;
void resolve_load(void* destination, const void* mapped_source, std::size_t bytes) noexcept;

template <std::size_t... kIndex>
constexpr ActiveKernels everywhere(StoreKernel store, LoadKernel load, std::index_sequence<kIndex...>) noexcept {
  return {{{((void)kIndex, store)...}}, {{((void)kIndex, load)...}}};
}

constexpr std::make_index_sequence<ActiveKernels::kSizeClasses> kEveryClass{};

ActiveKernels& streaming() noexcept { return detail::active_kernels(MappingType::write_combined); }

// Puts the defaults where no calibration put anything yet.
void resolve() noexcept {
  const kernels::Choice choice = kernels::default_choice();
  for (std::size_t i = 0; i < ActiveKernels::kSizeClasses; ++i) {
    StoreKernel store = resolve_store;
    LoadKernel load = resolve_load;
    streaming().store[i].compare_exchange_strong(store, choice.store[i], std::memory_order_relaxed);
    streaming().load[i].compare_exchange_strong(load, choice.load[i], std::memory_order_relaxed);
  }
}

void resolve_store(void* mapped_destination, const void* source, std::size_t bytes) noexcept {
  resolve();
  streaming().store[detail::size_class(bytes)].load(std::memory_order_relaxed)(mapped_destination, source, bytes);
}

void resolve_load(void* destination, const void* mapped_source, std::size_t bytes) noexcept {
  resolve();
  streaming().load[detail::size_class(bytes)].load(std::memory_order_relaxed)(destination, mapped_source, bytes);
}

// In the order of MappingType. Constant: a copy from another file's static constructor finds them in place.
constinit std::array<ActiveKernels, kMappingTypeCount> kernels_in_use = {
    {everywhere(resolve_store, resolve_load, kEveryClass), everywhere(kernels::generic_store, kernels::generic_load, kEveryClass),
     everywhere(kernels::cached_store, kernels::cached_load, kEveryClass)}};

}  // namespace

ActiveKernels& detail::active_kernels(MappingType type) noexcept { return kernels_in_use[static_cast<std::size_t>(type)]; }

std::span<const CopyKernel> copy_kernels() noexcept {
  static const auto table = detect_kernels();
  return table;
}

}  // namespace gigabar::inline v0

namespace gigabar::kernels {
const CopyKernel* find_supported_kernel(std::string_view name) noexcept {
  for (const CopyKernel& kernel : copy_kernels()) {
    if (kernel.name == name) return kernel.is_supported ? &kernel : nullptr;
  }
  return nullptr;
}

const CopyKernel& default_store_kernel(std::size_t size_class) noexcept {
  if (size_class >= detail::size_class(1024) && size_class < detail::size_class(8192)) {
    if (const CopyKernel* kernel = find_supported_kernel("movdir64b"); kernel != nullptr) return *kernel;
  }
  return default_load_kernel();
}

// The best that this CPU has.
const CopyKernel& default_load_kernel() noexcept {
  const auto table = copy_kernels();
  const auto found = std::find_if(table.begin(), table.end(), [](const CopyKernel& kernel) { return kernel.is_supported; });
  return found != table.end() ? *found : table.back();
}

bool is_kernel_name(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {"sse2", "avx2", "avx512", "movdir64b", "neon", "generic"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Choice default_choice() noexcept {
  Choice choice{};
  for (std::size_t i = 0; i < choice.store.size(); ++i) choice.store[i] = default_store_kernel(i).store;
  choice.load.fill(default_load_kernel().load);
  return choice;
}

void use_choice(const Choice& choice) noexcept {
  for (std::size_t i = 0; i < ActiveKernels::kSizeClasses; ++i) {
    streaming().store[i].store(choice.store[i], std::memory_order_relaxed);
    streaming().load[i].store(choice.load[i], std::memory_order_relaxed);
  }
}

}  // namespace gigabar::kernels
