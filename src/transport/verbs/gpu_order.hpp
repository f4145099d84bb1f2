// SPDX-License-Identifier: Apache-2.0
// When a GPU sees what a NIC wrote into its memory. The completion of a write tells the CPU; on devices whose
// GPU_DIRECT_RDMA_WRITES_ORDERING is below OWNER a kernel that is launched afterwards may still see the memory of before, until the
// writes are flushed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "gigabar/status.hpp"

namespace gigabar::transport::rdma {

// The devices that have memory registered and need flushes. One thread at a time.
class GpuOrder {
 public:
  // Must be called before memory of `device` is registered. Errors: not_supported (its writes are not ordered, and the driver
  // cannot flush them), device_error.
  Result<void> add(int device);
  void remove(int device) noexcept;

  // Makes what NICs wrote before visible to kernels and copies that start later. Nothing is done for devices that need no flush.
  // Errors: device_error. Cost: none without such devices, else microseconds each.
  Result<void> flush() const;

 private:
  std::map<int, std::size_t> unordered_;  // device and its registered regions
};

}  // namespace gigabar::transport::rdma
