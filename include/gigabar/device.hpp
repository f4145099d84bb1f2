// SPDX-License-Identifier: Apache-2.0
// What devices this machine has, and which of the things that Gigabar opens at run time are there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/status.hpp"

namespace gigabar {

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  // "0000:3b:00.0": lower case, as Linux names it in /sys.
  GIGABAR_API std::string to_string() const;
  // Reads "[domain:]bus:device.function" in hexadecimal; nothing when the text is not of that form.
  GIGABAR_API static std::optional<PciAddress> parse(std::string_view text);
  bool operator==(const PciAddress&) const = default;
};

struct DeviceInfo {
  int index = 0;             // CUDA's ordinal, or the stand-in's number
  std::string name;          // "NVIDIA H200", or "stand-in (host memory)"
  bool is_stand_in = false;  // host memory playing a GPU; always shown to the user
  std::string uuid;          // "GPU-xxxxxxxx-xxxx-...", empty for a stand-in
  std::optional<PciAddress> pci;
  int numa_node = -1;  // -1: the machine does not say
  std::uint64_t memory_bytes = 0;
  std::optional<std::uint64_t> bar1_bytes;       // size of the BAR1 aperture, when NVML tells
  std::optional<std::uint64_t> bar1_used_bytes;  // by all processes
  int compute_major = 0;
  int compute_minor = 0;
};

// Every device of this process, in CUDA's order; stand-ins when there is no usable GPU or when GIGABAR_STAND_IN=N (N ≥ 1)
// asks for N of them. Never empty.
// Errors: device_error (the driver is there but failed), invalid_argument (GIGABAR_STAND_IN is not a number from 1 to 64).
// Threads: any. Cost: the first call initialises CUDA (tens to hundreds of ms); later ones ask the driver again.
GIGABAR_API Result<std::vector<DeviceInfo>> devices();

// One line of `gigabar info`: a library or kernel interface and whether it can be used.
struct DriverReport {
  std::string name;  // "libcuda", "nvml", "resource manager", "gdrdrv"
  Availability availability;
};

// Everything Gigabar opens at run time, with the reason where it is not usable. Threads: any. Cost: as devices().
GIGABAR_API std::vector<DriverReport> drivers();

}  // namespace gigabar
