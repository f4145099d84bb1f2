// SPDX-License-Identifier: Apache-2.0
// What a machine is as far as measurements between its parts are concerned: the same text, the same figures.
#pragma once

#include <string>
#include <vector>

namespace gigabar::inline v0 {

// Of /proc/cpuinfo, else the processor's architecture.
std::string processor_name();

struct MachineFingerprint {
  std::string processor;
  std::string driver_version;     // of NVIDIA's kernel driver; empty where there is none
  std::vector<std::string> nics;  // "mlx5_0 1070:fd03:0012:3456": RDMA devices with their node GUIDs, in order

  // 16 hexadecimal digits: part of a file's name, so that hosts with one home folder have a file each. No secret.
  std::string digits() const;
  // What differs, for a message: "processor 'A', not 'B'"; empty when nothing does.
  std::string difference(const MachineFingerprint& other) const;
  bool operator==(const MachineFingerprint&) const = default;
};

// Of this machine (platform_roots()). GPUs are not in it: a process may see some of them only.
MachineFingerprint machine_fingerprint();

}  // namespace gigabar::inline v0
