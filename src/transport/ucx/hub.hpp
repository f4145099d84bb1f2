// SPDX-License-Identifier: Apache-2.0
// What all links and regions of one UCX transport share: the worker, who is at home here, and what is to be told to the sink.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/descriptor.hpp"
#include "transport/ucx/worker.hpp"

namespace gigabar::transport::ucx {

class UcxLink;

struct Done {
  std::uint64_t cookie = 0;
  Result<void> outcome;
};
struct Ready {};
struct Event {
  UcxLink* link = nullptr;
  std::variant<Ready, Done, Error> what;
};

class Hub final : public Receiver {
 public:
  // Errors: as Worker::open, out_of_descriptors.
  static Result<std::shared_ptr<Hub>> open(const TransportOptions& options);

  Worker& worker() noexcept { return *worker_; }
  const std::shared_ptr<Home>& home() const noexcept { return home_; }
  // False in a child after fork, which has no right to the connections.
  bool is_of_this_process() const noexcept;
  std::int64_t connect_deadline_ns() const noexcept { return connect_deadline_ns_; }
  // The sink of the poll() under way; null outside of it.
  Sink* sink() const noexcept { return sink_; }

  void add_link(std::uint64_t number, UcxLink& link);
  void remove_link(std::uint64_t number, UcxLink& link);
  // The link has timers or undelivered messages: its work() is called in each poll() until it returns false.
  void attend_to(UcxLink& link);
  void tell(Event event) { events_.push_back(std::move(event)); }

  bool poll(Sink& sink);
  bool arm();
  int wake_descriptor() const noexcept { return wake_.get(); }
  // Active messages that no link here expects.
  std::uint64_t strangers() const noexcept { return strangers_; }

 private:
  Hub() noexcept;
  Result<void> open_wake_descriptor();
  void set_timer(std::int64_t at_ns);
  bool deliver();
  bool attend();
  void fail_all();

  void arrived(const WireHeader& header, std::span<const std::byte> data) override;
  void stranger(const WireHeader* header) override;

  pid_t process_;
  std::shared_ptr<Home> home_ = std::make_shared<Home>("UCX");
  std::unordered_map<std::uint64_t, UcxLink*> links_;
  std::vector<UcxLink*> attended_;
  std::deque<Event> events_;
  Sink* sink_ = nullptr;
  std::uint64_t strangers_ = 0;
  std::int64_t connect_deadline_ns_ = 0;
  Descriptor wake_;  // an epoll of the worker's descriptor and the timer
  Descriptor timer_;
  bool is_timer_set_ = false;
  std::unique_ptr<Worker> worker_;  // goes first: its end calls back
};

}  // namespace gigabar::transport::ucx
