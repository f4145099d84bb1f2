// SPDX-License-Identifier: Apache-2.0
// The two ranks of a command whose kernels speak with each other: fabric, device, memory and session of one of them, and what
// carries the bytes between the two.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device_ranks/plan.hpp"
#include "gigabar/device_session.hpp"
#include "gigabar/fabric.hpp"
#include "gigabar/memory.hpp"
#include "ranks/fabric_settings.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool::device_ranks {

class Pair {
 public:
  // Joins the job. `json_path` as Report.
  Pair(std::string_view command, const FabricOptions& options, Timeout timeout, const Invocation& invocation,
       const std::string& json_path);

  // Refuses other than two ranks.
  void join();
  // Of this rank. Both ranks, after join(): all must agree on `digest`.
  void agree(std::uint64_t digest);
  // Memory of `bytes` at both ranks as kDataSegment, and a session in which kernels reach the partner's, by queues where there are
  // some. Prints who is who.
  void open(std::uint64_t bytes, std::uint32_t notification_count, const QueueOptions& queues = {});
  // The kernels have ended. Writes the report.
  void close();

  // What the CPU sends: bytes of this rank's segment into the partner's, behind them notification `id` of the fabric. They may be
  // changed when it returns.
  void send(std::uint64_t from_offset, std::uint64_t to_offset, std::uint64_t bytes, NotificationId id, std::uint32_t value);
  // Waits for the partner's, and takes it down. Ends the command when it has another value.
  void take(NotificationId id, std::uint32_t value);

  Fabric& fabric() noexcept { return fabric_; }
  Rank rank() const noexcept { return fabric_.rank(); }
  Rank partner() const noexcept { return 1 - fabric_.rank(); }
  Timeout timeout() const noexcept { return timeout_; }
  // While the partner runs a kernel, which ends within its own deadline and one wait of that length.
  Timeout patience() const noexcept;
  std::uint64_t kernel_timeout_ns() const noexcept;
  const DeviceInfo& device() const noexcept { return device_; }
  const DeviceSession& session() const noexcept { return *session_; }
  void* address() const noexcept { return memory_->address(); }
  // "nvlink", "pcie", "same GPU", "cpu", "direct", "softhca", "hca", "hca_cpu_doorbell"; at rank 0.
  const std::string& path() const noexcept { return path_; }
  Report* report() noexcept { return report_.get(); }  // at rank 0 only

 private:
  void introduce();
  void tell_queues();
  DeviceReach require_reach() const;

  std::optional<DeviceMemory> memory_;  // outlives the fabric, in which it is registered
  Fabric fabric_;
  const Timeout timeout_;
  const std::string command_;
  std::optional<DeviceSession> session_;
  QueueOptions queues_;
  std::unique_ptr<Report> report_;
  DeviceInfo device_;
  std::string path_;
};

}  // namespace gigabar::tool::device_ranks
