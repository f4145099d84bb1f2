// SPDX-License-Identifier: Apache-2.0
// The memory at both ends of a transfer: allocated, placed, filled, poisoned and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "streams/pattern.hpp"

namespace gigabar::inline v0 {

// Asked between pieces of memory by what may take seconds on the CPU. True: end now; the rest is left as it is, and unchecked.
using GiveUp = std::function<bool()>;

// Filling and checking device memory by the device itself. Threads: one at a time. Only what goes through the host asks `give_up`.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
  virtual Result<void> fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) = 0;
  virtual Result<void> poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) = 0;
  virtual Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                                       const GiveUp& give_up) = 0;
};

// The same by the CPU: of host memory (`device` -1), and of devices for which there is no code.
DeviceCode& host_side_device_code();

// One end. `address` is what copies are given: a host address, or a device's.
struct End {
  std::optional<HostMemory> host;
  std::optional<DeviceMemory> device;

  std::byte* address() const noexcept {
    return static_cast<std::byte*>(host ? host->address() : device ? device->address() : nullptr);
  }
  std::uintptr_t number() const noexcept { return reinterpret_cast<std::uintptr_t>(address()); }
};

class Ends {
 public:
  // Appends to `warnings` what is not as asked and no error. Errors: out_of_memory, invalid_argument, and map()'s for CPU
  // executors; the object names the transfer. Asks `give_up` between the two ends: without the second one nothing else may be
  // called.
  static Result<Ends> allocate(std::size_t index, const Transfer& transfer, std::span<const DeviceInfo> devices,
                               std::vector<std::string>& warnings, const GiveUp& give_up);

  // Fills the source with the transfer's pattern (a chain of addresses for the pointer chase).
  Result<void> fill(DeviceCode* code, const GiveUp& give_up) const;
  Result<void> poison(DeviceCode* code, const GiveUp& give_up) const;
  // Compares the whole destination with the source's pattern, where it lies. Errors: verification_failed, device_error.
  Result<void> check(DeviceCode* code, const GiveUp& give_up) const;

  const End& source() const noexcept { return source_; }
  const End& destination() const noexcept { return destination_; }
  // Of the device's end, for the CPU and flag executors.
  const Mapping* mapping() const noexcept { return mapping_ ? &*mapping_ : nullptr; }
  // Where the host end's pages are; asked of the kernel once they are there.
  int host_numa_node() const noexcept { return host_numa_node_; }
  const std::string& host_placement() const noexcept { return host_placement_; }

 private:
  Ends(std::size_t index, const Transfer& transfer) : index_(index), transfer_(&transfer) {}
  Result<void> allocate_end(const StreamPlace& place, End& end, std::span<const DeviceInfo> devices,
                            std::vector<std::string>& warnings);
  void tell_placement(const HostMemory& host, int asked_node, std::vector<std::string>& warnings);
  Result<void> fill_chain() const;
  std::uint64_t seed() const noexcept { return index_ + 1; }
  std::size_t bytes() const noexcept;

  std::size_t index_;
  const Transfer* transfer_;
  End source_;
  End destination_;
  std::optional<Mapping> mapping_;
  int host_numa_node_ = -1;
  std::string host_placement_;
};

}  // namespace gigabar::inline v0
