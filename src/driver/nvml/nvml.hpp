// libnvidia-ml.so.1, opened at run time: what the driver says about a device that CUDA does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::nvml {

struct Bar1 {
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;
};

// ok when the library was opened and initialised. Threads: any; the first call loads it.
const Availability& availability();
// "580.159.04"; nothing without NVML.
std::optional<std::string> driver_version();
// Of the device at that PCI address ("0000:3b:00.0"); nothing when NVML does not know.
std::optional<Bar1> bar1(const std::string& pci_address);
std::optional<unsigned> device_minor(const std::string& pci_address);

}  // namespace gigabar::nvml
