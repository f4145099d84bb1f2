// SPDX-License-Identifier: Apache-2.0
// gigabar info: devices, what is opened at run time, the mapping backends of each device and why each can or cannot be used, and
// the calibration that copy() follows.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/options.hpp"
#include "commands.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool {
namespace {

// Reasons that were told, and of what each was told first.
using Told = std::map<std::string, std::string>;

// What a thing says of its availability. A reason that was told is not told again: one missing library is behind many of them.
std::string verdict_text(Told& told, std::string_view name, const Availability& availability) {
  if (availability.is_ok()) return availability.reason.empty() ? "available" : "available: " + availability.reason;
  std::string text = fmt::format("{}: {}", name_of(availability.code), availability.reason);
  if (!availability.remedy.empty()) text += "; " + availability.remedy;
  if (!availability.check.empty()) text += fmt::format("; see 'gigabar explain {}'", availability.check);
  const auto [first, is_new] = told.emplace(text, name);
  return is_new ? text : fmt::format("{}: as {}", name_of(availability.code), first->second);
}

std::string bar1_text(const DeviceInfo& device) {
  if (!device.bar1_bytes) return "BAR1 unknown";
  const std::string used =
      device.bar1_used_bytes ? fmt::format(", {:.1f} MiB used", static_cast<double>(*device.bar1_used_bytes) / 1048576.0) : "";
  return fmt::format("BAR1 {}{}", bytes_text(*device.bar1_bytes), used);
}

void tell_drivers(Report& report, Told& told) {
  report.print("opened at run time\n");
  Json list = list_of(drivers(), [&](const DriverReport& driver) {
    report.print("  {:<18} {}\n", driver.name, verdict_text(told, driver.name, driver.availability));
    return to_json("name", driver.name, driver.availability);
  });
  report.add_result({{"what", "drivers"}, {"drivers", std::move(list)}});
}

Json tell_calibration(Report& report, const DeviceInfo& device) {
  const Calibration calibration = calibration_in_use(device.index);
  const std::string path = Calibration::default_path(device.index);
  if (calibration.is_measured) {
    report.print("  calibration        measured {} with driver {}\n", calibration.date,
                 calibration.driver_version.empty() ? "unknown" : calibration.driver_version);
  } else {
    report.print("  calibration        documented defaults; 'gigabar calibrate -d {}' measures this machine\n", device.index);
  }
  report.print("  calibration file   {}\n", path.empty() ? "none (no home and no cache folder)" : path);
  return {{"is_measured", calibration.is_measured}, {"path", path}, {"values", Json::parse(calibration.to_json(), nullptr, false)}};
}

// Whose memory it is: that of 'gigabar topology' is of one NUMA node.
std::string memory_text(const DeviceInfo& device) {
  const char* const whose = !device.is_stand_in                      ? "of the GPU"
                            : environment("GIGABAR_STAND_IN_MEMORY") ? "of that file"
                                                                     : "of host memory, which is all of this machine's";
  return fmt::format("{:.1f} GiB {}", static_cast<double>(device.memory_bytes) / 1073741824.0, whose);
}

void tell_device(Report& report, Told& told, const DeviceInfo& device) {
  report.print("\ndevice {}: {}{}\n", device.index, device.name, stand_in_label(device.is_stand_in));
  if (device.pci) report.print("  at                 {}, {}\n", device.pci->to_string(), device.uuid);
  report.print("  memory             {}, {}, NUMA node {}\n", memory_text(device), bar1_text(device),
               device.numa_node >= 0 ? std::to_string(device.numa_node) : "unknown");
  Json backends = list_of(take(mapping_backends(device.index)), [&](const BackendReport& backend) {
    report.print("  mapping by {:<7} {}\n", name_of(backend.backend),
                 verdict_text(told, fmt::format("mapping by {}", name_of(backend.backend)), backend.availability));
    return to_json("backend", name_of(backend.backend), backend.availability);
  });
  Json result = {{"what", "device"}, {"device", to_json(device)}, {"backends", std::move(backends)}};
  result["calibration"] = tell_calibration(report, device);
  report.add_result(std::move(result));
}

void tell_kernels(Report& report) {
  std::vector<std::string_view> supported, absent;
  Json list = list_of(copy_kernels(), [&](const CopyKernel& kernel) -> Json {
    (kernel.is_supported ? supported : absent).push_back(kernel.name);
    return {{"name", kernel.name}, {"is_supported", kernel.is_supported}};
  });
  report.print("\ncopy kernels         {}{}\n", fmt::join(supported, ", "),
               absent.empty() ? "" : fmt::format(" (not by this CPU: {})", fmt::join(absent, ", ")));
  report.add_result({{"what", "copy_kernels"}, {"kernels", std::move(list)}});
}

// All devices, or one.
struct Options {
  std::optional<int> device;
  std::string json_path;
};

void run_info(const Options& options, const Invocation& invocation) {
  Report report("info", invocation, options.json_path);
  const std::vector<DeviceInfo> found = take(devices());
  if (options.device && static_cast<std::size_t>(*options.device) >= found.size()) {
    refuse_usage(fmt::format("-d {}: no such device; this machine has {}, numbered from 0", *options.device, found.size()));
  }
  Told told;
  tell_drivers(report, told);
  for (const DeviceInfo& device : found) {
    if (device.index == options.device.value_or(device.index)) tell_device(report, told, device);
  }
  tell_kernels(report);
  report.document()["device"] = to_json(found[static_cast<std::size_t>(options.device.value_or(0))]);
  report.write();
}

}  // namespace

void add_info(const Command& program, Invocation& invocation) {
  const auto [command, options] = add_subcommand<Options>(
      program, invocation, "info", "Devices, drivers and mapping backends, and why each is or is not available", run_info);
  command->add_option("-d,--device", options.device, whole_number(0, 1023), "Only this device");
  add_json_option(command, options.json_path);
}

}  // namespace gigabar::tool
