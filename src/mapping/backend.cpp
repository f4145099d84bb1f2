// SPDX-License-Identifier: Apache-2.0
#include "mapping/backend.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/names.hpp"
#include "base/options.hpp"
#include "base/rounding.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/system_calls.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

namespace {

// mmap of 64 MiB takes about 70 µs, of 16 GiB 18 ms (H200, driver 580).
constexpr std::size_t kWholeBytes = std::size_t{64} << 20;
constexpr std::size_t kLargePage = std::size_t{2} << 20;

constexpr std::array<std::string_view, kMappingBackendCount> kBackendNames{"dmabuf", "gdrdrv", "rm", "host"};

}  // namespace

DeviceRange range_to_map(DeviceRange allocation, DeviceRange asked) noexcept {
  if (allocation.bytes <= kWholeBytes) return allocation;
  const std::size_t first = (asked.begin - allocation.begin) / kLargePage * kLargePage;
  const std::size_t past = round_up(asked.begin - allocation.begin + asked.bytes, kLargePage);
  return {allocation.begin + first, std::min(past, allocation.bytes) - first};
}

void keep_from_forked_children(void* address, std::size_t bytes) noexcept {
  if (system_calls().madvise(address, bytes, MADV_DONTFORK) == 0) return;
  log(LogLevel::warning, text("map: forked children will have ", range_text(reinterpret_cast<std::uintptr_t>(address), bytes), ": ",
                              std::strerror(errno)));
}

std::string_view name_of(MappingBackend backend) noexcept { return name_at(kBackendNames, backend); }
std::optional<MappingBackend> mapping_backend_from_name(std::string_view name) noexcept {
  return value_named<MappingBackend>(kBackendNames, name);
}

std::string_view name_of(MappingType type) noexcept {
  constexpr std::array<std::string_view, kMappingTypeCount> kNames{"write_combined", "uncached", "cached"};
  return name_at(kNames, type);
}

Result<std::optional<MappingBackend>> backend_of_environment(const char* operation) {
  const std::string value = environment("GIGABAR_MAPPING").value_or("");
  if (value.empty() || value == "auto") return std::optional<MappingBackend>{};
  if (const auto backend = mapping_backend_from_name(value)) return backend;
  return make_error(Status::invalid_argument, operation, "GIGABAR_MAPPING", "'" + value + "' is not a backend",
                    "use dmabuf, gdrdrv, rm, host or auto");
}

Availability gpu_availability(int device) {
  const auto runtime = active_runtime();
  if (!runtime) return availability_of(runtime.error().record());
  if (*runtime != &stand_in_runtime()) return {};
  if (cuda::driver().availability.is_ok()) {
    return {AvailabilityCode::disabled, text("device ", device, " is a stand-in (GIGABAR_STAND_IN is set)"),
            "unset GIGABAR_STAND_IN"};
  }
  return cuda::driver().availability;
}

}  // namespace gigabar::inline v0
