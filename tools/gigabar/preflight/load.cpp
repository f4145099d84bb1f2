// SPDX-License-Identifier: Apache-2.0
#include "preflight/load.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "driver/nvml/nvml.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::preflight {
namespace {

constexpr auto kSampleTime = std::chrono::milliseconds(50);
constexpr double kLoadShare = 0.05;  // of the path's rate: less can be what the driver itself does
constexpr double kMinLoad = 0.5;     // in GB/s, where that rate is not known
constexpr double kBusyShare = 0.5;   // of the CPUs

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// " (process 4711 'train')"; empty when NVML names none.
std::string processes_text(const std::string& address) {
  std::string text;
  for (const unsigned pid : nvml::compute_processes(address)) {
    if (pid == static_cast<unsigned>(getpid())) continue;
    const std::string name = plain(first_line(fmt::format("/proc/{}/comm", pid)), 40);
    text += fmt::format("{}process {}{}", text.empty() ? " (" : ", ", pid, name.empty() ? "" : " '" + name + "'");
  }
  return text.empty() ? text : text + ")";
}

bool is_load(const Path& path, double gb_per_s) {
  return gb_per_s >= (path.link.gb_per_s > 0 ? kLoadShare * path.link.gb_per_s : kMinLoad);
}

std::string pcie_load(const Path& path, const std::string& address) {
  const auto traffic = nvml::pcie_traffic_gb_per_s(address);
  if (!traffic || !is_load(path, *traffic)) return {};
  return fmt::format("{:.1f} GB/s cross the PCIe link of GPU {}{}", *traffic, address, processes_text(address));
}

std::string nvlink_load(const Path& path, const std::string& address) {
  const auto begin = std::chrono::steady_clock::now();
  const auto before = nvml::nvlink_carried_bytes(address);
  if (!before) return {};
  std::this_thread::sleep_for(kSampleTime);
  const auto after = nvml::nvlink_carried_bytes(address);
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
  if (!after || *after <= *before) return {};
  const double gb_per_s = static_cast<double>(*after - *before) / passed.count();
  if (!is_load(path, gb_per_s)) return {};
  return fmt::format("{:.1f} GB/s cross the NVLinks of GPU {}{}", gb_per_s, address, processes_text(address));
}

std::string cpu_load() {
  const std::string before = first_line("/proc/stat");
  std::this_thread::sleep_for(kSampleTime * 2);
  const double share = busy_share(before, first_line("/proc/stat"));
  if (share < kBusyShare) return {};
  return fmt::format("other processes keep the CPUs, which move a stand-in's bytes, busy for {:.0f} % of their time", share * 100);
}

}  // namespace

double busy_share(std::string_view before, std::string_view after) {
  // cpu user nice system idle iowait irq softirq steal ...: ticks since the start of the machine.
  const auto read = [](std::string_view text, double& idle) {
    std::istringstream words{std::string(text)};
    std::string name;
    words >> name;
    double all = 0, ticks = 0;
    for (int i = 0; i < 8 && words >> ticks; ++i) {
      all += ticks;
      if (i == 3 || i == 4) idle += ticks;
    }
    return all;
  };
  double idle_before = 0, idle_after = 0;
  const double passed = -read(before, idle_before) + read(after, idle_after);
  return passed > 0 ? std::clamp(1 - (idle_after - idle_before) / passed, 0.0, 1.0) : 0;
}

std::string load_of(const Path& path, std::span<const DeviceInfo> devices) {
  const bool is_nvlink = path.link.name.starts_with("NVLink");
  for (const DeviceInfo& device : devices) {
    if (device.index != path.source && device.index != path.destination) continue;
    if (!device.pci) return cpu_load();
    const std::string address = device.pci->to_string();
    std::string load = is_nvlink ? nvlink_load(path, address) : pcie_load(path, address);
    if (!load.empty()) return load;
  }
  return {};
}

}  // namespace gigabar::tool::preflight
