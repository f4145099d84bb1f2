// SPDX-License-Identifier: Apache-2.0
// What a kernel of device-latency, device-bw and device-rate is told, and what it reports.
#pragma once

#include <cstdint>

#include "device_ranks/unit.hpp"
#include "gigabar/device/fabric.hpp"

namespace gigabar::tool::device_ranks {

enum class Measure : std::uint8_t { latency, bandwidth, rate };

enum class Op : std::uint8_t {
  notify,          // Order::none
  notify_ordered,  // Order::after_writes
  payload,         // a notification with 8 bytes of its own, Order::none
  write_notify,
  write,  // those up to here only send
  read,
  fetch_add,
  compare_swap,
  barrier,
  write_count,
  message,  // by rings
};

inline constexpr std::uint64_t kWordBytes = 4;  // of data: sizes are multiples

// A sample of a latency is the ticks that the round took; of a bandwidth or a rate it is device::now_ns() at the round's end, since
// units share what they move over and one that is early makes room for the others.
//
// Unit u moves the bytes [u * part_stride_bytes, + part_bytes) of each message, as far as the message reaches. A window's messages
// lie in slots, in turn. A segment has room for sending, then for receiving, then a word of 8 bytes per unit.
struct RoundPlan : PairPlan {
  bool is_active = false;   // begins each round and takes the time
  bool only_fills = false;  // no rounds: puts the data that the partner reads in place
  Measure measure = Measure::latency;
  Op op = Op::notify;
  std::uint32_t warm_up_count = 0;
  std::uint32_t iteration_count = 0;
  std::uint32_t window = 1;  // messages per round
  std::uint64_t message_bytes = 0;
  std::uint64_t part_stride_bytes = 0;
  std::uint64_t part_bytes = 0;
  std::uint32_t slot_count = 1;
  std::uint64_t slot_stride_bytes = 0;
  std::uint64_t receive_offset_bytes = 0;
  std::uint64_t words_offset_bytes = 0;
  bool is_checked = false;
  bool plants_fault = false;          // falsifies what the last round received: the check must then find it
  std::uint32_t rounds_per_look = 1;  // the clock is read at every so many rounds
  std::uint32_t unit_count = 1;
  bool is_of_blocks = false;       // the one unit
  std::uint32_t counter_base = 0;  // calls that were counted before, each way
  std::uint32_t queue_count = 0;   // to the partner; 0: by loads and stores
  device::Sharing sharing = device::Sharing::device;

  GIGABAR_DEVICE bool takes_end_times() const { return measure != Measure::latency; }
  GIGABAR_DEVICE std::uint32_t round_count() const { return warm_up_count + iteration_count; }
  GIGABAR_DEVICE std::uint32_t sample_count() const { return iteration_count; }
};

// What a unit moves of each message.
struct Part {
  std::uint64_t begin = 0, bytes = 0;
  bool is_there = true;  // or there are fewer bytes than units have places for
};
GIGABAR_DEVICE Part part_of(const RoundPlan& plan, std::uint32_t unit) {
  if (plan.message_bytes == 0) return {};
  const std::uint64_t begin = unit * plan.part_stride_bytes;
  if (begin >= plan.message_bytes) return {begin, 0, false};
  const std::uint64_t left = plan.message_bytes - begin;
  return {begin, left < plan.part_bytes ? left : plan.part_bytes, true};
}
// Notifications of a unit: one is raised by its messages, one ends its round.
GIGABAR_DEVICE NotificationId messages_of(std::uint32_t unit) { return 2 * unit; }
GIGABAR_DEVICE NotificationId round_end_of(std::uint32_t unit) { return 2 * unit + 1; }
// Units take the queues in turn.
GIGABAR_DEVICE QueueId queue_of(const RoundPlan& plan, std::uint32_t unit) {
  return plan.queue_count == 0 ? QueueId{0} : static_cast<QueueId>(unit % plan.queue_count);
}
// A unit that has its queue to itself, or needs none, keeps the way to the partner in registers.
GIGABAR_DEVICE bool has_channel(const RoundPlan& plan) {
  return plan.queue_count == 0 || plan.sharing == device::Sharing::exclusive;
}
GIGABAR_DEVICE bool is_atomic(Op op) { return op == Op::fetch_add || op == Op::compare_swap; }

}  // namespace gigabar::tool::device_ranks
