// SPDX-License-Identifier: Apache-2.0
// What kernels are told.
#pragma once

#include <cstdint>

#include "device_ranks/unit.hpp"
#include "gigabar/device/fabric.hpp"

namespace gigabar::tool::device_ranks {

// --- device-latency, device-bw, device-rate -------------------------------------------------------------------------------------

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

// --- pingpong -------------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kNoRound = 0xffffffff;

// Unit u computes and sends the bytes [u * part_stride_bytes, + part_stride_bytes) of the message, as far as it reaches. A segment
// has the message that is sent, then the one that is received.
struct TurnPlan : PairPlan {
  bool is_active = false;  // begins each round and takes the time
  std::uint32_t round_count = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t part_stride_bytes = 0;
  std::uint64_t receive_offset_bytes = 0;
  std::uint64_t work_ns = 0;   // that a unit computes for, per turn
  bool uses_messages = false;  // by a ring for each unit, else by writes
  bool plants_fault = false;   // falsifies what came in the last round

  GIGABAR_DEVICE std::uint32_t sample_count() const { return round_count; }
};

// --- matvec ---------------------------------------------------------------------------------------------------------------------

// Rank 1 streams batches of vectors to rank 0, which multiplies each by one matrix and streams the products back. Unit u has
// `vectors` of each batch. A segment has, one behind the other: source_count batches that are sent in turn (rank 1), slot_count
// batches that arrive (rank 0), batch_count batches of products (both), the matrix (rank 0).
struct MatvecPlan : PairPlan {
  std::uint32_t elements = 1;  // of a vector; the matrix is square
  std::uint32_t vectors = 1;   // of a unit's part of a batch
  std::uint32_t unit_count = 1;
  std::uint32_t batch_count = 1;
  std::uint32_t source_count = 1;
  std::uint32_t slot_count = 1;  // batches under way
  std::uint64_t slots_offset_bytes = 0;
  std::uint64_t products_offset_bytes = 0;
  std::uint64_t matrix_offset_bytes = 0;
  bool uses_messages = false;  // of kernels that stream: by a ring for each unit, else by writes

  GIGABAR_DEVICE std::uint64_t part_values() const { return std::uint64_t{vectors} * elements; }
  GIGABAR_DEVICE std::uint64_t part_bytes() const { return part_values() * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t batch_bytes() const { return part_bytes() * unit_count; }
  GIGABAR_DEVICE std::uint64_t matrix_values() const { return std::uint64_t{elements} * elements; }
  // Of the fast memory of a block: the matrix and a part of a batch.
  GIGABAR_DEVICE std::uint64_t fast_bytes() const { return (matrix_values() + part_values()) * sizeof(float); }
  GIGABAR_DEVICE std::uint64_t source_offset(std::uint32_t batch) const { return batch % source_count * batch_bytes(); }
  GIGABAR_DEVICE std::uint32_t slot_of(std::uint32_t batch) const { return slot_count > 1 ? batch % slot_count : 0; }
  GIGABAR_DEVICE std::uint64_t slot_offset(std::uint32_t batch) const {
    return slots_offset_bytes + slot_of(batch) * batch_bytes();
  }
  GIGABAR_DEVICE std::uint64_t product_offset(std::uint32_t batch) const { return products_offset_bytes + batch * batch_bytes(); }
};

// What the kernel of one launch does.
enum class MatvecTask : std::uint8_t {
  fill,      // rank 1: the vectors, and what no product is where products arrive; rank 0: the matrix
  stream,    // all batches: rank 1 sends and takes, rank 0 multiplies
  multiply,  // rank 0: the batch that has arrived, sent by the CPU
};

// Between -1 and 1; the matrix is transposed, so that neighbouring rows lie side by side.
GIGABAR_DEVICE float value_of(std::uint64_t name) {
  const std::uint64_t spread = ((name + 1) ^ (name >> 17)) * 0x9e3779b97f4a7c15U;
  return static_cast<float>(static_cast<std::int32_t>(spread >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}
GIGABAR_DEVICE float matrix_value(std::uint32_t row, std::uint32_t column) {
  return value_of((std::uint64_t{1} << 60) + (std::uint64_t{row} << 24) + column);
}
// Of `source`, a batch of all units.
GIGABAR_DEVICE float vector_value(std::uint32_t source, std::uint64_t index) {
  return value_of((std::uint64_t{source} << 40) + index);
}

}  // namespace gigabar::tool::device_ranks
