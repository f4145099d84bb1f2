// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/hub.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "platform/cpu_set.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

Error no_descriptor(const char* call, int code) {
  return make_error(status_of_errno(code), "open UCX", "wake descriptor", text(call, " failed"), {}, errno_code(code));
}

// A connection is as fast as the thread at each end that copies into and out of the kernel: some 2 GB/s over loopback on virtual
// processors. A quarter of the processors at each end leaves as many for the kernel's and the program's work, as the peer may be on
// the same host. With fewer than four there is none: on two, a write of 64 KiB took 20 us without and 90 to 165 with one, and 512
// KiB went at 6.5 GB/s without and at 1.8 to 6.0 with one.
constexpr unsigned kProcessorsPerLane = 4;
constexpr unsigned kMaxLanesByDefault = 4;
constexpr std::size_t kMaxLaneAddressBytes = 8192;  // of all together, in a parcel

Result<unsigned> wanted_lanes(const std::vector<int>& cpus) {
  constexpr const char* kVariable = "GIGABAR_UCX_CONNECTIONS";
  const auto given = environment(kVariable);
  const auto processors = static_cast<unsigned>(cpus.empty() ? usable_cpus().size() : cpus.size());
  if (!given || given->empty()) return std::min(processors / kProcessorsPerLane, kMaxLanesByDefault);
  const auto number = parse_number(*given, 0, kMaxLanes);
  if (number) return static_cast<unsigned>(*number);
  return make_error(Status::invalid_argument, "open UCX", kVariable, text("'", *given, "' is not allowed"),
                    text("give a number from 0 to ", kMaxLanes));
}

}  // namespace

Hub::Hub() noexcept : process_(::getpid()) {}

bool Hub::is_of_this_process() const noexcept { return process_ == ::getpid(); }

Result<std::shared_ptr<Hub>> Hub::open(const TransportOptions& options) {
  std::shared_ptr<Hub> hub(new Hub);
  hub->connect_deadline_ns_ = options.connect_deadline_ns;
  hub->cpus_ = options.cpus;
  hub->devices_ = options.ucx_devices;
  const auto lane_count = wanted_lanes(options.cpus);
  if (!lane_count) return lane_count.error();
  hub->lane_count_ = *lane_count;
  auto worker = Worker::open(*hub, {.devices = options.ucx_devices});
  if (!worker) return std::move(worker).error();
  hub->worker_ = std::move(*worker);
  if (Result<void> opened = hub->open_wake_descriptor(); !opened) return std::move(opened).error();
  return hub;
}

Result<void> Hub::open_wake_descriptor() {
  wake_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!wake_.is_open()) return no_descriptor("epoll_create1", errno);
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.is_open()) return no_descriptor("timerfd_create", errno);
  if (Result<void> opened = bell_.open(); !opened) return opened;
  for (const int watched : {worker_->descriptor(), timer_.get(), bell_.descriptor()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = watched;
    if (::epoll_ctl(wake_.get(), EPOLL_CTL_ADD, watched, &event) != 0) return no_descriptor("epoll_ctl", errno);
  }
  return {};
}

// Fewer lanes where one cannot be opened: what is there works.
const std::vector<std::unique_ptr<Lane>>& Hub::lanes() {
  std::size_t address_bytes = 0;
  while (!has_opened_lanes_ && lanes_.size() < lane_count_) {
    auto lane = Lane::open(static_cast<unsigned>(lanes_.size()), *home_, bell_, cpus_, devices_);
    if (!lane) {
      log(LogLevel::info, lane.error().message());
      break;
    }
    address_bytes += (*lane)->address().size();
    if (address_bytes > kMaxLaneAddressBytes) break;
    lanes_.push_back(std::move(*lane));
  }
  has_opened_lanes_ = true;
  return lanes_;
}

bool Hub::look_at_lanes() {
  bool is_something = false;
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    if (!lanes_[index]->has_events()) continue;
    is_something = true;
    for (const LaneEvent& event : lanes_[index]->take_events()) {
      const auto found = links_.find(event.link);
      if (found != links_.end()) {
        found->second->take_event(index, event);
      } else if (event.kind != LaneEvent::Kind::sent && event.kind != LaneEvent::Kind::lost) {
        ++strangers_;
      }
    }
  }
  return is_something;
}

void Hub::add_link(std::uint64_t number, Rank rank, UcxLink& link) {
  links_.emplace(number, &link);
  home_->add_link(number, rank);
}

void Hub::remove_link(std::uint64_t number, UcxLink& link) {
  home_->remove_link(number);
  links_.erase(number);
  std::erase(attended_, &link);
  std::erase_if(events_, [&](const Event& event) { return event.link == &link; });
}

void Hub::attend_to(UcxLink& link) {
  if (std::find(attended_.begin(), attended_.end(), &link) == attended_.end()) attended_.push_back(&link);
}

bool Hub::poll(Sink& sink) {
  if (is_timer_set_) set_timer(0);
  if (!lanes_.empty()) bell_.disarm();
  sink_ = &sink;
  bool is_something = worker_->progress();
  if (worker_->take_starvation()) fail_all();
  is_something |= look_at_lanes();
  is_something |= attend();
  is_something |= deliver();
  sink_ = nullptr;
  return is_something;
}

// Whose it was is not known.
void Hub::fail_all() {
  try {
    for (auto& [number, link] : links_) link->starve();
  } catch (const std::bad_alloc&) {
    worker_->starve();
    throw;
  }
}

bool Hub::attend() {
  if (attended_.empty()) return false;
  const std::int64_t now = now_ns();
  bool is_something = false;
  // Links may join the list meanwhile; none leaves it, for none is destroyed in here.
  for (std::size_t i = 0; i < attended_.size();) {
    const UcxLink::Work work = attended_[i]->work(now);
    is_something |= work.did_something;
    if (work.is_over) {
      attended_.erase(attended_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return is_something;
}

bool Hub::deliver() {
  // What the sink's own posts add is for the next poll().
  const std::size_t count = events_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    if (const Done* done = std::get_if<Done>(&event.what)) {
      sink_->done(*event.link, done->cookie, done->outcome);
    } else if (const Error* error = std::get_if<Error>(&event.what)) {
      sink_->broken(*event.link, *error);
    } else {
      event.link->told_ready();
      sink_->ready(*event.link);
    }
  }
  return count > 0;
}

bool Hub::arm() {
  if (!events_.empty()) return false;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const UcxLink* link : attended_) {
    const auto wakes_at = link->wakes_at_ns();
    if (!wakes_at) return false;
    first = std::min(first, *wakes_at);
  }
  bell_.arm();
  const bool is_quiet = std::none_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->has_events(); });
  if (!is_quiet || !worker_->arm()) return bell_.disarm(), false;
  if (first != std::numeric_limits<std::int64_t>::max()) set_timer(first);
  return true;
}

// 0: none. Setting it anew also takes back that it went off.
void Hub::set_timer(std::int64_t at_ns) {
  itimerspec time{};
  time.it_value.tv_sec = at_ns / 1'000'000'000;
  time.it_value.tv_nsec = at_ns % 1'000'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
  is_timer_set_ = at_ns != 0;
}

void Hub::arrived(const WireHeader& header, std::span<const std::byte> data) {
  const auto found = links_.find(header.link);
  if (found == links_.end()) {
    ++strangers_;
    return;
  }
  found->second->receive(header, data);
}

void Hub::stranger(const WireHeader* header) {
  ++strangers_;
  if (header == nullptr) return;
  const auto found = links_.find(header->link);
  if (found != links_.end()) found->second->refuse("it sent data by rendezvous");
}

}  // namespace gigabar::transport::ucx
