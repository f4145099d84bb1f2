// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/lane.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <new>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/event.hpp"
#include "platform/cpu_set.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::int64_t kSpinNs = 50'000;         // an idle lane polls so long before it sleeps
constexpr int kSleepMs = 500;                    // at most, were a wake-up ever lost
constexpr int kClosingSleepMs = 1;               // UCX closes connections in progress() only
constexpr std::int64_t kLingerNs = 100'000'000;  // for what UCX took to go out
constexpr std::int64_t kDrainNs = 200'000'000;   // for the pieces that UCX has to go out before their connection is cut
constexpr unsigned kProgressCalls = 2;           // of UCX's between two looks at commands
constexpr unsigned kMaxUnderWay = 2;             // pieces that UCX has: one on its way, one to go on with
constexpr unsigned kMaxInARow = 8;               // of a connection, before others get their turn and what was sent is told

Error no_lane(const char* call, int code) {
  return make_error(status_of_errno(code), "open UCX", "lane", text(call, " failed"), {}, errno_code(code));
}

}  // namespace

// --- The bell --------------------------------------------------------------------------------------------------------------------

Result<void> Bell::open() {
  descriptor_ = open_event();
  if (!descriptor_.is_open()) return no_lane("eventfd", errno);
  return {};
}

void Bell::disarm() noexcept {
  if (!std::exchange(was_armed_, false)) return;
  is_armed_.store(false, std::memory_order_seq_cst);
  take_event(descriptor_);  // a ring() under way may write after this, which wakes once for nothing
}

void Bell::ring() noexcept {
  if (is_armed_.load(std::memory_order_seq_cst) && is_armed_.exchange(false, std::memory_order_seq_cst)) signal_event(descriptor_);
}

// --- One link's connection ------------------------------------------------------------------------------------------------------

class Lane::Connection final : public EndpointUser {
 public:
  Connection(Lane& lane, std::uint64_t link, std::uint64_t peer_link) noexcept : lane_(lane), link_(link), peer_link_(peer_link) {}

  void connect(const Connect& connect) {
    const auto endpoint = lane_.worker_->connect(connect.address, this, connect.object);
    if (!endpoint) return lost(UCS_ERR_UNREACHABLE);
    endpoint_ = *endpoint;
    Operation& hello = lane_.worker_->take_operation();
    hello.header = make_header(WireKind::hello, peer_link_, 0);
    ++under_way_;
    lane_.worker_->send(*endpoint_, hello);
  }

  void send(const Piece& piece) {
    pump_later();
    waiting_.push_back(piece);
  }

  void progress() {
    is_listed_ = false;
    pump();
  }

  // Sockets often take a piece at once; sent() is then called before Worker::send() returns.
  void pump() {
    if (is_lost_ || is_closing_) return give_back_waiting();
    if (is_pumping_) return;
    is_pumping_ = true;
    for (unsigned count = 0; !waiting_.empty() && under_way_ < kMaxUnderWay; ++count) {
      if (count == kMaxInARow) {
        pump_later();
        break;
      }
      send_next();
    }
    is_pumping_ = false;
  }

  // True: it can go at once.
  bool leave(bool is_cancelling) {
    is_closing_ = true;
    if (endpoint_ == nullptr) return give_back_waiting(), true;
    if (!is_cancelling) {
      lane_.worker_->leave(*endpoint_, kLingerNs);
      return true;
    }
    give_back_waiting();
    cut_at_ns_ = now_ns() + kDrainNs;
    return leave_when_done();
  }

  bool is_closing() const noexcept { return is_closing_; }
  // Closing: UCX has returned everything. A living peer's lane takes what comes, whatever became of its link, so that no more than
  // a moment passes; only a peer that takes nothing is cut off with data under way.
  bool leave_when_done() {
    if (under_way_ > 0) {
      if (now_ns() >= cut_at_ns_) lane_.worker_->close(*endpoint_);
      return false;
    }
    lane_.worker_->leave(*endpoint_, 0);
    return true;
  }

  void sent(Operation& operation, ucs_status_t status) override {
    --under_way_;
    if (operation.header.kind == static_cast<std::uint8_t>(WireKind::write))
      tell_sent(operation.owner, operation.data.size(), status);
    if (status != UCS_OK) return lost(status);
    pump();
  }

  void lost(ucs_status_t status) override {
    if (is_lost_) return;
    give_back_waiting();
    if (!is_closing_) lane_.fresh_.push_back({.kind = LaneEvent::Kind::lost, .link = link_, .status = status});
    is_lost_ = true;
  }

 private:
  void tell_sent(void* owner, std::uint64_t bytes, ucs_status_t status) {
    lane_.fresh_.push_back({.kind = LaneEvent::Kind::sent, .link = link_, .owner = owner, .bytes = bytes, .status = status});
  }

  void give_back_waiting() {
    for (; !waiting_.empty(); waiting_.pop_front()) tell_sent(waiting_.front().owner, waiting_.front().bytes, UCS_ERR_CANCELED);
  }

  void pump_later() {
    if (!is_listed_) lane_.unfinished_.push_back(link_);
    is_listed_ = true;
  }

  void send_next() {
    const Piece piece = waiting_.front();
    waiting_.pop_front();
    Operation& operation = lane_.worker_->take_operation();
    operation.data = {piece.from, piece.bytes};
    operation.owner = piece.owner;
    operation.header = make_header(WireKind::write, peer_link_, piece.bytes);
    operation.header.sequence = piece.number;
    set_access(operation.header, piece.to);
    ++under_way_;
    lane_.worker_->send(*endpoint_, operation);
  }

  Lane& lane_;
  std::uint64_t link_, peer_link_;
  Endpoint* endpoint_ = nullptr;
  std::deque<Piece> waiting_;
  unsigned under_way_ = 0;  // operations that UCX has
  bool is_pumping_ = false;
  bool is_listed_ = false;  // in unfinished_
  bool is_lost_ = false;
  bool is_closing_ = false;
  std::int64_t cut_at_ns_ = 0;  // closing: when UCX is no longer waited for
};

// --- From the thread that has the transport -------------------------------------------------------------------------------------

Lane::Lane(unsigned index, Home& home, Bell& bell, const std::vector<int>& cpus)
    : index_(index), cpus_(cpus), home_(home), bell_(bell), process_(::getpid()) {}

Result<std::unique_ptr<Lane>> Lane::open(unsigned index, Home& home, Bell& bell, const std::vector<int>& cpus,
                                         const std::string& devices) {
  std::unique_ptr<Lane> lane(new Lane(index, home, bell, cpus));
  auto worker = Worker::open(*lane, {.devices = devices, .is_zero_copy = true});
  if (!worker) return std::move(worker).error();
  lane->worker_ = std::move(*worker);
  if (Result<void> started = lane->start(); !started) return std::move(started).error();
  return lane;
}

Result<void> Lane::start() {
  if (Result<void> opened = wake_.open(); !opened) return opened;
  epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open()) return no_lane("epoll_create1", errno);
  for (const int watched : {worker_->descriptor(), wake_.descriptor()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = watched;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched, &event) != 0) return no_lane("epoll_ctl", errno);
  }
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return cannot_start_thread("open UCX", "lane", error.code().value());
  }
  return {};
}

Lane::~Lane() {
  if (process_ != ::getpid()) {
    if (thread_.joinable()) thread_.detach();  // it runs in the parent, with UCX's objects
    return;
  }
  is_stopping_.store(true, std::memory_order_seq_cst);
  wake_.ring();
  if (thread_.joinable()) thread_.join();
  worker_.reset();  // ends what is under way; calls back
}

void Lane::give(Command command) {
  {
    const std::lock_guard guard(mutex_);
    commands_.push_back(std::move(command));
  }
  has_commands_.store(true, std::memory_order_seq_cst);
  wake_.ring();
}

void Lane::connect(std::uint64_t link, std::uint64_t peer_link, std::string address, std::string object) {
  give(Connect{link, peer_link, std::move(address), std::move(object)});
}

void Lane::send(const Piece& piece) { give(piece); }

void Lane::leave(std::uint64_t link, bool is_cancelling) { give(Leave{link, is_cancelling}); }

std::vector<LaneEvent> Lane::take_events() {
  const std::lock_guard guard(mutex_);
  has_events_.store(false, std::memory_order_seq_cst);
  return std::exchange(events_, {});
}

// --- The lane's thread ----------------------------------------------------------------------------------------------------------

void Lane::run() {
  settle_this_thread("gigabar-lane", cpus_);
  std::int64_t idle_since_ns = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    bool is_something = true;
    try {
      is_something = go_round();
    } catch (const std::bad_alloc&) {
      worker_->starve();
    }
    if (is_something) {
      idle_since_ns = 0;
    } else if (idle_since_ns == 0) {
      idle_since_ns = now_ns();
    } else if (now_ns() - idle_since_ns > kSpinNs) {
      sleep();
    }
  }
}

bool Lane::go_round() {
  bool is_something = follow_commands();
  is_something |= send_more();
  is_something |= worker_->progress(kProgressCalls);
  if (worker_->take_starvation()) fail_all();
  is_something |= drop_closed();
  is_something |= tell();
  return is_something;
}

// Whose it was for which there was no memory is not known.
void Lane::fail_all() {
  for (auto& [link, connection] : connections_) {
    if (connection) connection->lost(UCS_ERR_NO_MEMORY);
  }
}

bool Lane::follow_commands() {
  if (followed_count_ == following_.size() && !has_commands_.load(std::memory_order_seq_cst)) return false;
  if (followed_count_ == following_.size()) {
    following_.clear();
    followed_count_ = 0;
    const std::lock_guard guard(mutex_);
    has_commands_.store(false, std::memory_order_seq_cst);
    following_.swap(commands_);
  }
  // One for which there is no memory is followed in the next round; until it has been, none of it is done.
  for (; followed_count_ < following_.size(); ++followed_count_) {
    std::visit([this](auto& one) { follow(one); }, following_[followed_count_]);
  }
  return true;
}

void Lane::follow(Connect& connect) {
  const auto [place, is_new] = connections_.try_emplace(connect.link);
  if (place->second) return;  // it was starved as it connected
  place->second = std::make_unique<Connection>(*this, connect.link, connect.peer_link);
  place->second->connect(connect);
}

void Lane::follow(const Piece& piece) {
  const auto found = connections_.find(piece.link);
  if (found == connections_.end()) return;
  found->second->send(piece);
}

void Lane::follow(const Leave& leave) {
  const auto found = connections_.find(leave.link);
  if (found == connections_.end() || found->second->is_closing()) return;
  if (found->second->leave(leave.is_cancelling)) {
    connections_.erase(found);
  } else {
    ++closing_count_;
  }
}

bool Lane::send_more() {
  if (unfinished_.empty()) return false;
  for (const std::uint64_t link : std::exchange(unfinished_, {})) {
    const auto found = connections_.find(link);
    if (found != connections_.end()) found->second->progress();
  }
  return true;
}

bool Lane::drop_closed() {
  if (closing_count_ == 0) return false;
  const std::size_t dropped =
      std::erase_if(connections_, [](const auto& item) { return item.second->is_closing() && item.second->leave_when_done(); });
  closing_count_ -= dropped;
  return dropped > 0;
}

bool Lane::tell() {
  if (fresh_.empty()) return false;
  {
    const std::lock_guard guard(mutex_);
    events_.insert(events_.end(), fresh_.begin(), fresh_.end());
    has_events_.store(true, std::memory_order_seq_cst);
  }
  fresh_.clear();
  bell_.ring();
  return true;
}

void Lane::sleep() {
  wake_.arm();
  const bool is_closing = closing_count_ > 0 || worker_->is_closing();
  if (!has_commands_.load(std::memory_order_seq_cst) && !is_stopping_.load(std::memory_order_seq_cst) &&
      (is_closing || worker_->arm())) {
    epoll_event event{};
    ::epoll_wait(epoll_.get(), &event, 1, is_closing ? kClosingSleepMs : kSleepMs);
  }
  wake_.disarm();
}

void Lane::arrived(const WireHeader& header, std::span<const std::byte> data) {
  const auto kind = static_cast<WireKind>(header.kind);
  if (kind == WireKind::hello) {
    fresh_.push_back({.kind = LaneEvent::Kind::heard, .link = header.link});
    return;
  }
  if (kind != WireKind::write) {
    fresh_.push_back({.kind = LaneEvent::Kind::refused, .link = header.link, .reason = Farewell::bad_message});
    return;
  }
  const Access access = access_of(header);
  const bool is_whole = !data.empty() && access.bytes == data.size();
  switch (is_whole ? home_.copy_to(index_, header.link, place_of(access, 0), data) : Placed::not_allowed) {
    case Placed::ok: fresh_.push_back({.kind = LaneEvent::Kind::placed, .link = header.link, .number = header.sequence}); return;
    case Placed::no_link: fresh_.push_back({.kind = LaneEvent::Kind::stranger}); return;
    case Placed::not_allowed:
      fresh_.push_back({.kind = LaneEvent::Kind::refused, .link = header.link, .reason = Farewell::bad_access});
      return;
    case Placed::failed: fresh_.push_back({.kind = LaneEvent::Kind::failed, .link = header.link});
  }
}

void Lane::stranger(const WireHeader* header) {
  fresh_.push_back({.kind = header == nullptr ? LaneEvent::Kind::stranger : LaneEvent::Kind::refused,
                    .link = header == nullptr ? 0 : header->link,
                    .reason = Farewell::bad_message});
}

}  // namespace gigabar::transport::ucx
