// What all links and regions of one UCX transport share: the worker, who is at home here, and what is to be told to the sink.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "transport/ucx/worker.hpp"

namespace gigabar::transport::ucx {

class UcxLink;

// Registered memory of this process. Links look it up at each access, so that nothing reaches it once it is gone.
struct HomeRegion {
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t guard = 0;
};

struct Done {
  std::uint64_t cookie = 0;
  Outcome outcome;
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
  std::int64_t connect_deadline_ns() const noexcept { return connect_deadline_ns_; }
  // The sink of the poll() under way; null outside of it.
  Sink* sink() const noexcept { return sink_; }

  std::uint32_t add_region(const HomeRegion& region);
  void remove_region(std::uint32_t number) { regions_.erase(number); }
  // The memory at [offset, offset + bytes) of a region, or null when any of it is not allowed. `guard`: a peer's; own accesses
  // have none.
  std::byte* memory(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, std::optional<std::uint64_t> guard) const;

  void add_link(std::uint64_t number, UcxLink& link) { links_.emplace(number, &link); }
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
  Hub() = default;
  Outcome open_wake_descriptor();
  void set_timer(std::int64_t at_ns);
  bool deliver();
  bool attend();

  void arrived(const WireHeader& header, std::span<const std::byte> data) override;
  void stranger(const WireHeader* header) override;

  std::unordered_map<std::uint64_t, UcxLink*> links_;
  std::unordered_map<std::uint32_t, HomeRegion> regions_;
  std::uint32_t next_region_ = 1;
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
