// SPDX-License-Identifier: Apache-2.0
// libibverbs.so.1, opened at run time: RDMA devices, registration of memory, and a connection of a device with itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/status.hpp"

// Of infiniband/verbs.h, which not every build has.
// NOLINTBEGIN(readability-identifier-naming): not ours
struct ibv_context;
struct ibv_cq;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;
// NOLINTEND(readability-identifier-naming)

namespace gigabar::verbs {

// ok when the library was opened and has every function that is needed. Threads: any; the first call loads it.
const Availability& availability();
// Whether the library can register dma-bufs; nothing when it cannot be used.
std::optional<bool> has_dmabuf();
// In the library's order, at most kMaxDevices; empty: it finds none. Errors: unavailable (as availability(), or the kernel has no
// RDMA interface).
inline constexpr int kMaxDevices = 256;
Result<std::vector<std::string>> device_names();

enum class Transport : std::uint8_t { infiniband, iwarp, other };  // infiniband: RoCE too

struct Port {
  bool is_active = false;
  bool is_ethernet = false;
  unsigned active_mtu_bytes = 0;  // 0: not told
  std::uint16_t lid = 0;          // 0 on Ethernet, and until a subnet manager has given one
};

// Memory that a device may read and write. Move-only; the destructor deregisters it. The memory must outlive it.
class Region {
 public:
  Region(Region&&) noexcept = default;
  Region& operator=(Region&&) noexcept = default;

  std::uint64_t address() const noexcept { return address_; }  // as the device names its first byte
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  friend class Device;
  friend class Loop;
  Region(std::shared_ptr<ibv_mr> region, std::uint64_t address, std::size_t bytes) noexcept
      : region_(std::move(region)), address_(address), bytes_(bytes) {}
  std::shared_ptr<ibv_mr> region_;  // its own; shared only so that it needs no definition here
  std::uint64_t address_;
  std::size_t bytes_;
};

// An opened device with one protection domain. Regions and loops keep it open.
class Device {
 public:
  // Errors: unavailable (no such device, or the library cannot be used), no_permission, device_error; each with its errno.
  static Result<Device> open(const std::string& name);

  const std::string& name() const noexcept { return name_; }
  Transport transport() const noexcept { return transport_; }
  unsigned port_count() const noexcept { return port_count_; }
  // `number` counts from 1. Errors: device_error.
  Result<Port> port(unsigned number) const;

  // Registers memory for local and remote access: host memory, or GPU memory where the kernel knows peer memory (nvidia-peermem).
  // Errors carry the errno of ibv_reg_mr: EFAULT (addresses that the kernel cannot pin), ENOMEM, EPERM, EINVAL, ...
  Result<Region> register_memory(void* address, std::size_t bytes) const;
  // Registers the first `bytes` of a dma-buf, which the device names by `iova` (of the page offset of the dma-buf, which is 0).
  // The descriptor may be closed afterwards. Errors carry the errno of ibv_reg_dmabuf_mr; not_supported when libibverbs has none.
  Result<Region> register_dma_buf(int descriptor, std::size_t bytes, std::uint64_t iova) const;

 private:
  friend class Loop;
  Device() = default;
  std::string name_;
  Transport transport_ = Transport::other;
  unsigned port_count_ = 0;
  std::shared_ptr<ibv_context> context_;
  std::shared_ptr<ibv_pd> domain_;
};

// A reliable connection of a port with itself, through the adapter. Move-only, for one thread. Not on iWARP, which connects by TCP.
class Loop {
 public:
  // `gid_index` names the address that RoCE uses; ignored on InfiniBand. Errors: not_supported (iWARP), unavailable (the port is
  // not active), device_error with the errno of the step that failed.
  static Result<Loop> connect(const Device& device, unsigned port, int gid_index);
  Loop(Loop&&) noexcept = default;
  Loop& operator=(Loop&&) noexcept = default;

  // RDMA WRITE, or READ, of the first `bytes` of one region to the first ones of the other, `count` times, and waits for all. After
  // an error no further work is possible: drop the loop, which also ends what is still under way, before the memory.
  // Errors: timed_out, device_error (the completion's status is the cause), out_of_range.
  Result<void> write(const Region& source, const Region& destination, std::size_t bytes, unsigned count, std::int64_t deadline_ns) {
    return run(true, source, destination, bytes, count, deadline_ns);
  }
  Result<void> read(const Region& destination, const Region& source, std::size_t bytes, unsigned count, std::int64_t deadline_ns) {
    return run(false, destination, source, bytes, count, deadline_ns);
  }

 private:
  explicit Loop(std::string name) noexcept : name_(std::move(name)) {}
  Result<void> run(bool is_write, const Region& local, const Region& remote, std::size_t bytes, unsigned count,
                   std::int64_t deadline_ns);

  std::string name_;  // the device's
  std::shared_ptr<ibv_cq> completions_;
  std::shared_ptr<ibv_qp> pair_;
  [[maybe_unused]] bool is_broken_ = false;  // not in every build
};

}  // namespace gigabar::verbs
