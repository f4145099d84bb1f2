// SPDX-License-Identifier: Apache-2.0
// GPUs that were lost while the machine ran: fallen off the bus, by the word of the driver or of the bus itself.
#pragma once

#include <string>
#include <vector>

#include "doctor/check.hpp"

namespace gigabar::doctor {

struct FallenGpu {
  std::string address;     // "0000:3b:00.0"; empty: the kernel's log does not name it
  bool is_silent = false;  // its configuration space reads all ones
  std::string log_line;    // the last one that says so; empty: none does

  std::string statement() const;
};

// Of the bus's NVIDIA GPUs and of those that the kernel's log names, by address.
std::vector<FallenGpu> fallen_gpus(const Patient& patient);

// Whether reading the configuration space of a function gives ones only.
bool is_silent(const Patient& patient, const std::string& address);

inline constexpr const char* kRemedyForFallenGpu =
    "end the programs on it and restart the machine, best by switching its power off and on; when the GPU falls off again, check "
    "its "
    "power cables, seat, riser and temperature, and the lines before the first one of 'sudo dmesg | grep -E \"NVRM|AER|pcieport\"'";

}  // namespace gigabar::doctor
