// SPDX-License-Identifier: Apache-2.0
// The devices of this machine, and the availability of the libraries and kernel interfaces that Gigabar opens at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/status.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

struct DeviceInfo {
  int index = 0;             // CUDA's ordinal, or the stand-in's number
  std::string name;          // "NVIDIA H200", or "stand-in (host memory)"
  bool is_stand_in = false;  // host memory that plays a GPU; every output shows this
  std::string uuid;          // "GPU-xxxxxxxx-xxxx-...", empty for a stand-in
  std::optional<PciAddress> pci;
  int numa_node = -1;  // -1: the machine does not report it
  std::uint64_t memory_bytes = 0;
  std::optional<std::uint64_t> bar1_bytes;       // size of the BAR1 aperture, when NVML reports it
  std::optional<std::uint64_t> bar1_used_bytes;  // by all processes
  int compute_major = 0;
  int compute_minor = 0;
};

// Returns every device of this process, in CUDA's order. Stand-ins when there is no usable GPU, or when GIGABAR_STAND_IN=N (N ≥ 1)
// requests N of them. Never empty.
// Errors: device_error (the driver is present but failed), invalid_argument (GIGABAR_STAND_IN is not a number from 1 to 64).
// Threads: any. Cost: the first call initialises CUDA (tens to hundreds of ms); later calls query the driver again.
GIGABAR_API Result<std::vector<DeviceInfo>> devices();

// One line of `gigabar info`: a library or kernel interface and whether it can be used.
struct DriverReport {
  std::string name;  // "libcuda", "nvml", "resource manager", "gdrdrv"
  Availability availability;
};

// Returns everything that Gigabar opens at run time, with the reason where it is not usable. Threads: any. Cost: as devices().
GIGABAR_API std::vector<DriverReport> drivers();

}  // namespace gigabar::inline v0
