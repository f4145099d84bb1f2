// SPDX-License-Identifier: Apache-2.0
// Filling and checking device memory by the device itself. Where there is no device code for it, the same through the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "gigabar/status.hpp"
#include "streams/pattern.hpp"

namespace gigabar::inline v0 {

// Asked between pieces of memory by what may take seconds on the CPU. True: end now; the rest is left as it is, and unchecked.
using GiveUp = std::function<bool()>;

// Threads: one at a time. Only what goes through the host asks `give_up`.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
  virtual Result<void> fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) = 0;
  virtual Result<void> poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) = 0;
  virtual Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                                       const GiveUp& give_up) = 0;
};

// By the copy engine, through a piece of host memory.
DeviceCode& host_side_device_code();

}  // namespace gigabar::inline v0
