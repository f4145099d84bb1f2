// SPDX-License-Identifier: Apache-2.0
// What the NVIDIA kernel driver publishes about itself and its devices in /sys and /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

// "580.159.04": of the loaded kernel driver (/sys/module/nvidia/version, /proc/driver/nvidia/version), else what NVML says; empty
// when there is none.
std::string nvidia_driver_version();

// The first word of the first line that looks like a version, in the text of such a file: "NVRM version: NVIDIA UNIX Open Kernel
// Module for x86_64  580.159.04  Release Build". The next line names a compiler, which has a version too.
std::string nvidia_version_in(const std::string& content);

// N of /dev/nvidiaN for the device at that address (/proc/driver/nvidia/gpus/<address>/information, else NVML).
std::optional<unsigned> nvidia_device_minor(const PciAddress& address);

// The same in the text of such a file.
std::optional<unsigned> nvidia_minor_in(const std::string& information);

// The resource manager's id of the device at that address.
std::uint32_t nvidia_gpu_id(const PciAddress& address) noexcept;

}  // namespace gigabar::inline v0
