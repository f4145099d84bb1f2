// SPDX-License-Identifier: Apache-2.0
// Picks the device to work with: ./pick_device 0000:3b:00.0, or a UUID; without an argument the one with the most free BAR1. CUDA's
// numbers change with CUDA_VISIBLE_DEVICES, PCI addresses and UUIDs do not.
#include <cstdio>
#include <gigabar/device.hpp>

// Null: there is no such device.
const gigabar::DeviceInfo* find(const std::vector<gigabar::DeviceInfo>& devices, std::string_view name) {
  const auto address = gigabar::PciAddress::parse(name);
  for (const gigabar::DeviceInfo& device : devices) {
    if (address ? device.pci == address : device.uuid == name) return &device;
  }
  return nullptr;
}

const gigabar::DeviceInfo& with_most_free_bar1(const std::vector<gigabar::DeviceInfo>& devices) {
  const auto free_bytes = [](const gigabar::DeviceInfo& device) {
    return device.bar1_bytes.value_or(0) - device.bar1_used_bytes.value_or(0);  // unknown, as of a stand-in: 0
  };
  const gigabar::DeviceInfo* best = &devices.front();  // the list is never empty
  for (const gigabar::DeviceInfo& device : devices) {
    if (free_bytes(device) > free_bytes(*best)) best = &device;
  }
  return *best;
}

int main(int count, char** words) {
  const auto devices = gigabar::devices();
  if (!devices) return std::puts(devices.message().c_str()), 1;
  const gigabar::DeviceInfo* const picked = count > 1 ? find(*devices, words[1]) : &with_most_free_bar1(*devices);
  if (picked == nullptr) {
    std::printf("no device %s; there are:\n", words[1]);
    for (const gigabar::DeviceInfo& device : *devices) {
      std::printf("  %s %s %s\n", device.pci ? device.pci->to_string().c_str() : "(no PCI address)", device.uuid.c_str(),
                  device.name.c_str());
    }
    return 1;
  }
  std::printf("device %d: %s%s, NUMA node %d\n", picked->index, picked->name.c_str(),
              picked->pci ? (" at " + picked->pci->to_string()).c_str() : "", picked->numa_node);
  if (!picked->is_stand_in) return 0;
  // No GPU: which of the things that Gigabar opens at run time is missing, and what to do.
  for (const gigabar::DriverReport& driver : gigabar::drivers()) {
    if (driver.availability.is_ok()) continue;
    std::printf("  %s: %s. %s\n", driver.name.c_str(), driver.availability.reason.c_str(), driver.availability.remedy.c_str());
  }
  return 0;
}
