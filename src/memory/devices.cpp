// SPDX-License-Identifier: Apache-2.0
// devices() and drivers(): what this machine has.
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "driver/cuda/cuda.hpp"
#include "driver/gdrdrv/gdrdrv.hpp"
#include "driver/nvml/nvml.hpp"
#include "driver/rm/resource_manager.hpp"
#include "gigabar/device.hpp"
#include "memory/runtime.hpp"
#include "platform/nvidia.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

Availability resource_manager_availability() {
  const std::string version = nvidia_driver_version();
  const auto opened = rm::ResourceManager::open(platform_roots().dev, version);
  if (!opened) return availability_of(opened.error().record());
  return {AvailabilityCode::ok, "driver " + version, {}, {}};
}

Availability gdrdrv_availability() {
  const auto opened = gdrdrv::Module::open(platform_roots().dev);
  if (!opened) return availability_of(opened.error().record());
  return {AvailabilityCode::ok,
          text("version ", (*opened)->version(), (*opened)->is_persistent() ? ", persistent" : ", not persistent"),
          {},
          {}};
}

}  // namespace

Result<std::vector<DeviceInfo>> devices() try {
  const Uncancelled uncancelled;
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  return (*runtime)->devices();
} catch (...) {
  return error_of_exception("devices");
}

std::vector<DriverReport> drivers() try {
  const Uncancelled uncancelled;
  return {{"libcuda", cuda::driver().availability},
          {"nvml", nvml::availability()},
          {"resource manager", resource_manager_availability()},
          {"gdrdrv", gdrdrv_availability()}};
} catch (...) {
  return {};
}

}  // namespace gigabar::inline v0
