// Filling and checking device memory by the device itself. Where there is no device code for it, the same through the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gigabar/status.hpp"
#include "streams/pattern.hpp"

namespace gigabar {

// Threads: one at a time.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
  virtual Outcome fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed) = 0;
  virtual Outcome poison(int device, std::uintptr_t address, std::size_t bytes) = 0;
  virtual Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes,
                                                       std::uint64_t seed) = 0;
};

// By the copy engine, through a piece of host memory.
DeviceCode& host_side_device_code();

}  // namespace gigabar
