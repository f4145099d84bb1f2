// SPDX-License-Identifier: Apache-2.0
#include "mapping/backend.hpp"

#include <array>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/cuda/cuda.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

std::string_view name_of(MappingBackend backend) noexcept {
  switch (backend) {
    case MappingBackend::dmabuf: return "dmabuf";
    case MappingBackend::gdrdrv: return "gdrdrv";
    case MappingBackend::rm: return "rm";
    case MappingBackend::host: return "host";
  }
  return "unknown";
}

std::string_view name_of(MappingType type) noexcept {
  switch (type) {
    case MappingType::write_combined: return "write_combined";
    case MappingType::uncached: return "uncached";
    case MappingType::cached: return "cached";
  }
  return "unknown";
}

std::optional<MappingBackend> mapping_backend_from_name(std::string_view name) noexcept {
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm, MappingBackend::host}) {
    if (name_of(backend) == name) return backend;
  }
  return {};
}

std::span<Backend* const> mapping_backend_list() {
  static const std::array<Backend*, kMappingBackendCount> list{&dmabuf_backend(), &gdrdrv_backend(), &rm_backend(),
                                                               &host_backend()};
  return list;
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
    return {AvailabilityCode::disabled,
            text("device ", device, " is a stand-in (GIGABAR_STAND_IN is set)"),
            "unset GIGABAR_STAND_IN",
            {}};
  }
  return cuda::driver().availability;
}

}  // namespace gigabar::inline v0
