// SPDX-License-Identifier: Apache-2.0
// One rank's memory: what it sends from and receives into, in host or device memory; and how data are checked without the path
// under test, by the copy engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "ranks/job.hpp"
#include "ranks/plan.hpp"
#include "support/clock.hpp"

namespace gigabar::tool::ranks {

// Where the messages of one size lie. Unchecked, all of a window use the same place, as OSU's; checked, each has its own as far as
// there is room, with a guard behind it.
struct Slots {
  std::uint64_t bytes = 0;         // of one message
  std::uint64_t stride_bytes = 0;  // from one to the next
  std::uint32_t count = 1;

  std::uint64_t offset_of(std::uint32_t message) const noexcept { return (message % count) * stride_bytes; }
  std::uint64_t area_bytes() const noexcept { return count * stride_bytes; }
};
inline constexpr std::uint64_t kGuardBytes = 64;
inline constexpr std::uint64_t kSlotBytes = 4096;                           // stride is a multiple
inline constexpr std::uint64_t kMaxCheckedBytes = std::uint64_t{16} << 20;  // of a window, all slots together

Slots slots_for(std::uint64_t bytes, std::uint32_t window, bool is_checked) noexcept;

class Buffers {
 public:
  // Room for sending and receiving at each size of the plan. `device` is used for Place::device only. Ends the command when there
  // is not enough memory.
  Buffers(const Plan& plan, Place place, const DeviceInfo& device);

  void* address() const noexcept { return base_; }  // sending from here on
  std::uint64_t receive_offset_bytes() const noexcept { return area_bytes_; }
  std::uint64_t bytes() const noexcept { return 2 * area_bytes_; }
  void* at(std::uint64_t offset_bytes) const noexcept { return static_cast<std::byte*>(base_) + offset_bytes; }
  const std::string& note() const noexcept { return note_; }  // empty: the memory is as it should be

  // Data that only this rank sends, and only in this round, into all slots.
  void fill_to_send(const Slots& slots, Rank sender, std::uint32_t round);
  // Nothing of what `sender` will send in this round, up to the end of the guards.
  void poison_to_receive(const Slots& slots, Rank sender, std::uint32_t round);
  // What is wrong with the first `message_count` messages of a window: the first byte that is not the sender's of this round, or a
  // guard that was written over. Nothing: they are right.
  std::optional<std::string> check_received(const Slots& slots, Rank sender, std::uint32_t round, std::uint32_t message_count);
  // Changes one byte of what was received: the check must then find it. Not for 0 bytes.
  void plant_fault(const Slots& slots);

 private:
  void engine_write(std::uint64_t offset_bytes, std::span<const std::byte> source);
  void engine_read(std::uint64_t offset_bytes, std::span<std::byte> destination);

  std::uint64_t area_bytes_ = 0;  // for sending, and again for receiving
  std::optional<HostMemory> host_;
  std::optional<DeviceMemory> device_;
  std::optional<Mapping> mapping_;  // of device memory, when data are checked
  void* base_ = nullptr;
  std::string note_;
  std::vector<std::byte> staging_;
};

// Of a thread's buffers.
constexpr SegmentId segment_of(std::uint32_t thread) noexcept { return static_cast<SegmentId>(kSegment + thread); }

// A rank that measures what goes between its buffers and those of others.
class BufferSession : public RankSession {
 protected:
  using RankSession::RankSession;

  // Those of each thread, each a segment of its own unless only messages are sent. Of device memory where `place` says so: of
  // device_, or else of the device whose number is the local rank, modulo the devices.
  void make_buffers(const Plan& plan, Place place);
  // At rank 0: its device, where memory of it is measured, the clock and the settings.
  void tell_setup();

  const SampleClock clock_ = SampleClock::calibrate();
  std::optional<DeviceInfo> device_;
  std::vector<Buffers*> buffers_;  // by thread
};

}  // namespace gigabar::tool::ranks
