// SPDX-License-Identifier: Apache-2.0
// Where a command works: one device, a block of its memory, the mapping of that block, and pinned host memory as the other side;
// and how data is checked independently of the path under test.
#pragma once

#include <cstddef>
#include <string>

#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "support/clock.hpp"
#include "support/options.hpp"

namespace gigabar::tool {

// The device of -d. Ends the command as bad usage when there is none of that number.
DeviceInfo select_device(const DeviceOptions& options);
// Follows --cpu.
void bind_processor(const DeviceOptions& options);

// Pinned host memory near the device; where the system refuses to pin it, pageable, and `note` says why.
HostMemory allocate_host(const DeviceInfo& device, std::size_t bytes, std::string& note, bool is_shared = false);

// Maps, and holds the mapping to -M.
Mapping map_for(const DeviceMemory& memory, const DeviceOptions& options);

class Report;

class Workbench {
 public:
  // `bytes` of device memory, all of them mapped, and of host memory.
  Workbench(const DeviceOptions& options, std::size_t bytes);

  const DeviceInfo& device() const noexcept { return device_; }
  const DeviceMemory& memory() const noexcept { return memory_; }
  const Mapping& mapping() const noexcept { return mapping_; }
  std::byte* host() const noexcept { return static_cast<std::byte*>(host_.address()); }
  bool is_host_pinned() const noexcept { return host_.is_pinned(); }
  // In the report: how the device's memory is mapped, whether the host memory is pinned, and why not.
  void tell_memory(Report& report) const;

 private:
  DeviceInfo device_;
  DeviceMemory memory_;
  Mapping mapping_;
  std::string host_note_;  // empty: pinned as wanted
  HostMemory host_;
};

// What is copied from the start of the host memory to `offset_bytes` of the device, or back.
struct CopyCase {
  CopyDirection direction;
  std::size_t bytes;
  std::size_t offset_bytes = 0;
};
inline constexpr std::size_t kGuardBytes = 64;
// Checks one way of doing it. Twice with different data, the destination poisoned before, and kGuardBytes behind it that must stay.
// Ends the command with the size, the offset, what was expected and what was found. `plants_fault`: one byte is falsified before it
// is compared, so that the check must end the command.
void check_copy(const Workbench& bench, const CopyCase& copied, const Contender& way, bool plants_fault = false);
// Ends the command: one failed while it was timed.
[[noreturn]] void fail_timed_copy(const CopyCase& copied, const Contender& way);

}  // namespace gigabar::tool
