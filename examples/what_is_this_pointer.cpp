// SPDX-License-Identifier: Apache-2.0
// Lists the devices and what Gigabar opens at run time, and says what three pointers are.
#include <cstdio>
#include <gigabar/device.hpp>
#include <gigabar/memory.hpp>

static void print(const char* name, const void* address) {
  const auto info = gigabar::describe(address);
  if (!info) return static_cast<void>(std::puts(info.message().c_str()));
  std::printf("%s: %s, %zu bytes, device %d, NUMA node %d\n", name, std::string(name_of(info->kind)).c_str(), info->length_bytes,
              info->device, info->numa_node);
}

int main() {
  const auto devices = gigabar::devices();
  if (!devices) return std::puts(devices.message().c_str()), 1;
  for (const gigabar::DeviceInfo& device : *devices) std::printf("device %d: %s\n", device.index, device.name.c_str());
  for (const gigabar::DriverReport& driver : gigabar::drivers()) {
    std::printf("%s: %s\n", driver.name.c_str(), driver.availability.reason.c_str());
  }

  auto device = gigabar::DeviceMemory::allocate(0, 4096);
  if (!device) return std::puts(device.message().c_str()), 1;
  auto pinned = gigabar::HostMemory::allocate(4096);
  if (!pinned) return std::puts(pinned.message().c_str()), 1;
  const int local = 0;
  print("DeviceMemory", device->address());
  print("HostMemory", pinned->address());
  print("a variable", &local);
}
