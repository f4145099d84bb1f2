// SPDX-License-Identifier: Apache-2.0
// What one thread does: posts operations through device::Queue, as a kernel's lane would, waits for them, checks their data.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/device/queue.hpp"
#include "scenarios/soft_hca/plan.hpp"
#include "scenarios/soft_hca/slots.hpp"

namespace gigabar::tool::softhca {

struct Operation {
  std::uint64_t number = 0;
  std::uint64_t place = 0;
  std::uint64_t first_request = 0;  // the index of its first work request
  device::Ticket ticket;
  Status first = Status::ok;  // what its post said, or else its first wait
  Status last = Status::ok;
  bool is_posted = false;
  Syndrome syndrome = Syndrome::none;
};

// A thread's part of one queue.
struct LaneQueue {
  device::Queue* queue = nullptr;
  std::uint32_t queue_index = 0;
  Slots slots;
  std::uint64_t first_place = 0;
  std::uint64_t round = 0;
  std::uint64_t ok_count = 0;      // ended ok at the first wait
  std::vector<Operation> current;  // of this round
  std::vector<Operation> open;     // posted, and their wait has ended without them
  std::vector<Operation> ended;    // any other way
};

// Written by its thread; read by others once that has ended.
struct alignas(128) Lane {
  std::uint32_t thread = 0;
  std::vector<LaneQueue> queues;
  std::vector<std::uint64_t> samples_ns;  // of rounds in which all went well; of the first lane of a unit
  std::uint64_t wrong_count = 0;
  std::string first_wrong;
  std::uint64_t stale_count = 0;  // reads that ended ok before their data were there
};

struct Rules {
  Op op = Op::write;
  std::uint32_t rounds = 0;
  std::uint32_t window = 1;
  std::uint32_t slots_of_rounds = 1;
  std::uint32_t requests_of_operation = 1;
  device::Timeout timeout;
  bool is_timed = false;
  bool waits = true;          // else posts only
  bool fences_reads = false;  // their data may come behind their completion
  bool spoils_data = false;   // one byte, before the first check
  const std::atomic<bool>* is_interrupted = nullptr;
};

inline void complain(Lane& lane, const LaneQueue& queue, const Operation& operation, const std::string& wrong) {
  if (lane.wrong_count++ > 0) return;
  lane.first_wrong = "thread " + std::to_string(lane.thread) + ", queue " + std::to_string(queue.queue_index) + ", operation " +
                     std::to_string(operation.number) + ": " + wrong;
}

inline void check_done(Lane& lane, const LaneQueue& queue, const Operation& operation) {
  const auto wrong = queue.slots.check_done(operation.place, operation.number);
  if (wrong) complain(lane, queue, operation, *wrong);
}

// Of an operation that failed: the CQE's when it is about this one, else it was flushed.
inline Syndrome syndrome_of(const Operation& operation, const device::QueueError& error, std::uint32_t request_count) {
  if (!error.is_set || !operation.is_posted) return Syndrome::none;
  const auto distance = static_cast<std::uint16_t>(error.wqe_index - static_cast<std::uint16_t>(operation.first_request & 0xffff));
  return distance < request_count ? error.syndrome : Syndrome::flushed;
}

template <Sharing S, class Scope>
class LaneRun {
 public:
  LaneRun(const Scope& scope, const Rules& rules, Lane& lane) : scope_(scope), rules_(rules), lane_(lane) {}

  // Every wait in it has a deadline. All threads of the scope take the same way: answers of a queue are the same for all.
  void run() {
    for (std::uint32_t i = 0; i < rules_.rounds; ++i) {
      const bool is_over = scope_.broadcast(rules_.is_interrupted->load() ? 1U : 0U) != 0;
      if (is_over || !prepare_round()) return;
      do_round();
      if (was_refused_) return;
    }
  }

 private:
  std::uint64_t place_of(const LaneQueue& queue, std::uint32_t in_window) const {
    return queue.first_place + queue.round % rules_.slots_of_rounds * rules_.window + in_window;
  }

  // Whether a place of this round is still of an operation that has not ended ok: what lies there is looked at in the end.
  bool is_in_the_way(const LaneQueue& queue, const Operation& operation) const {
    const std::uint64_t first = place_of(queue, 0);
    return operation.last != Status::ok && operation.place >= first && operation.place < first + rules_.window;
  }

  // False where there is no place for it.
  bool prepare_round() {
    for (const LaneQueue& queue : lane_.queues) {
      const auto is_taken = [&](const Operation& operation) { return is_in_the_way(queue, operation); };
      if (std::any_of(queue.open.begin(), queue.open.end(), is_taken)) return false;
      if (std::any_of(queue.ended.begin(), queue.ended.end(), is_taken)) return false;
    }
    for (LaneQueue& queue : lane_.queues) {
      queue.current.clear();
      for (std::uint32_t i = 0; i < rules_.window; ++i) {
        Operation& operation = queue.current.emplace_back();
        operation.number = queue.round * rules_.window + i;
        operation.place = place_of(queue, i);
        queue.slots.prepare(operation.place, operation.number);
      }
    }
    return true;
  }

  void do_round() {
    const std::uint64_t begin_ns = device::now_ns();
    for (LaneQueue& queue : lane_.queues) post_window(queue);
    if (rules_.waits) {
      for (LaneQueue& queue : lane_.queues) wait_window(queue);
    }
    const std::uint64_t end_ns = device::now_ns();
    bool is_good = rules_.waits;
    for (LaneQueue& queue : lane_.queues) {
      is_good = is_good && std::all_of(queue.current.begin(), queue.current.end(),
                                       [](const Operation& operation) { return operation.first == Status::ok; });
      settle_window(queue);
      ++queue.round;
    }
    if (is_good && rules_.is_timed && scope_.rank() == 0) lane_.samples_ns.push_back(end_ns - begin_ns);
  }

  Status post(const LaneQueue& queue, Operation& operation) {
    const Slots& slots = queue.slots;
    const device::Remote remote = slots.remote(operation.place);
    const device::Local local = slots.local(operation.place);
    device::Ticket& ticket = operation.ticket;
    switch (rules_.op) {
      case Op::write: return device::post_write<S>(scope_, *queue.queue, remote, local, slots.bytes(), ticket, rules_.timeout);
      case Op::read: return device::post_read<S>(scope_, *queue.queue, remote, local, slots.bytes(), ticket, rules_.timeout);
      case Op::inline_write:
        return device::post_inline_write<S>(scope_, *queue.queue, remote, slots.inline_payload(operation.place), ticket,
                                            rules_.timeout);
      case Op::fetch_add:
        return device::post_fetch_add<S>(scope_, *queue.queue, remote, slots.operand(operation.place, operation.number), local,
                                         ticket, rules_.timeout);
      case Op::compare_swap:
        return device::post_compare_swap<S>(scope_, *queue.queue, remote, slots.expected(operation.place, operation.number),
                                            slots.operand(operation.place, operation.number), local, ticket, rules_.timeout);
    }
    return Status::not_supported;
  }

  // Up to the first that is refused.
  void post_window(LaneQueue& queue) {
    for (std::size_t i = 0; i < queue.current.size(); ++i) {
      Operation& operation = queue.current[i];
      operation.first = operation.last = post(queue, operation);
      operation.is_posted = operation.first == Status::ok;
      operation.first_request =
          operation.ticket.index - std::uint64_t{rules_.requests_of_operation} * (scope_.size() - scope_.rank());
      if (operation.is_posted) continue;
      was_refused_ = true;
      queue.current.resize(i + 1);
    }
  }

  // Behind a wait that has ended by its deadline there is nothing more to wait for: one look.
  void wait_window(LaneQueue& queue) {
    device::Timeout timeout = rules_.timeout;
    for (Operation& operation : queue.current) {
      if (!operation.is_posted) continue;
      operation.first = operation.last = device::wait<S>(scope_, *queue.queue, operation.ticket, timeout);
      if (operation.first == Status::timed_out) timeout = device::Timeout{0};
    }
  }

  void settle_window(LaneQueue& queue) {
    if (rules_.fences_reads) land_reads(queue);
    const device::QueueError error = device::error_of<S>(*queue.queue);
    for (Operation& operation : queue.current) settle(queue, operation, error);
    queue.current.clear();
    if (rules_.waits && !queue.open.empty()) look_again(queue);
  }

  void settle(LaneQueue& queue, Operation& operation, const device::QueueError& error) {
    const bool is_open = operation.is_posted && (!rules_.waits || operation.first == Status::timed_out);
    if (is_open) {
      queue.open.push_back(operation);
    } else if (operation.is_posted && operation.first == Status::ok) {
      if (rules_.spoils_data && !std::exchange(has_spoiled_, true)) queue.slots.spoil_destination(operation.place);
      check_done(lane_, queue, operation);
      ++queue.ok_count;
    } else {
      operation.syndrome = syndrome_of(operation, error, rules_.requests_of_operation);
      queue.ended.push_back(operation);
    }
  }

  // A later doorbell may have brought what an earlier one left.
  void look_again(LaneQueue& queue) {
    std::vector<Operation> still_open;
    for (Operation& operation : queue.open) {
      operation.last = device::wait<S>(scope_, *queue.queue, operation.ticket, device::Timeout{0});
      if (operation.last == Status::timed_out) {
        still_open.push_back(operation);
        continue;
      }
      if (operation.last == Status::ok) check_done(lane_, queue, operation);
      if (operation.last != Status::ok)
        operation.syndrome = syndrome_of(operation, device::error_of<S>(*queue.queue), rules_.requests_of_operation);
      queue.ended.push_back(operation);
    }
    queue.open = std::move(still_open);
  }

  // Behind a NOP with a fence the results of all reads before it are in place.
  void land_reads(LaneQueue& queue) {
    for (const Operation& operation : queue.current) {
      const bool is_ok = operation.is_posted && operation.first == Status::ok;
      if (is_ok && !queue.slots.is_read_here(operation.place, operation.number)) ++lane_.stale_count;
    }
    device::Ticket ticket;
    const Status status = device::post_nop<S>(scope_, *queue.queue, ticket, rules_.timeout, device::Fence::before);
    if (status == Status::ok) static_cast<void>(device::wait<S>(scope_, *queue.queue, ticket, rules_.timeout));  // the data tell
  }

  const Scope& scope_;
  const Rules& rules_;
  Lane& lane_;
  bool was_refused_ = false;
  bool has_spoiled_ = false;
};

}  // namespace gigabar::tool::softhca
