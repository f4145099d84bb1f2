// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/lane.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/start_thread.hpp"
#include "platform/cpu_set.hpp"

namespace gigabar::transport::tcp {

using secure::Moved;

namespace {

constexpr std::int64_t kSpinNs = 50'000;                           // an idle lane looks so long before it sleeps
constexpr int kSleepMs = 500;                                      // at most, were a wake-up ever lost
constexpr std::size_t kLaneScratchBytes = std::size_t{256} << 10;  // through it goes what is placed in GPU memory
// Acknowledgements wait while a call copies: four connections over loopback, H200's host, 19.4 GB/s, and 16.7 with whole pieces.
constexpr std::size_t kReceiveBytes = std::size_t{64} << 10;
constexpr unsigned kMaxCallsInARow = 4;  // of one connection and direction
constexpr unsigned kMaxEventsInARow = 2 * (kMaxCallsInARow + 1);

}  // namespace

// --- One link's connection ------------------------------------------------------------------------------------------------------

class Lane::Connection {
 public:
  Connection(Lane& lane, std::uint64_t link, Rank rank, secure::ByteStream stream, LaneCounts& counts)
      : lane_(lane), link_(link), rank_(rank), counts_(counts), stream_(std::move(stream)) {}

  secure::ByteStream& stream() noexcept { return stream_; }
  void add(const Share& share) { shares_.push_back(share); }

  // True: there may be more to do at once.
  bool progress() {
    bool is_sending = !is_over_ && !cannot_send_;
    for (unsigned call = 0; is_sending && call < kMaxCallsInARow; ++call) is_sending = send_some();
    bool is_receiving = !is_over_;
    for (unsigned call = 0; is_receiving && call < kMaxCallsInARow; ++call) is_receiving = receive_some();
    if (is_over_) return stream_.socket().want(EPOLLONESHOT), false;  // the link's own connection says what became of the peer
    stream_.socket().want(EPOLLIN | (cannot_send_ || (shares_.empty() && !stream_.has_unsent()) ? 0U : EPOLLOUT));
    return is_sending || is_receiving;
  }

 private:
  using Kind = LaneEvent::Kind;

  // Returns false: nothing more is done here.
  bool end(Kind kind, const Moved& how = {Moved::How::ended, 0, 0}) {
    is_over_ = true;
    lane_.tell({kind, link_, how});
    return false;
  }
  static bool is_closed(const Moved& moved) {
    return moved.how == Moved::How::failed && (moved.code == EPIPE || moved.code == ECONNRESET);
  }
  // Whether the call moved something.
  bool judge(const Moved& moved) {
    if (moved.how == Moved::How::ok || moved.how == Moved::How::blocked) return moved.how == Moved::How::ok;
    return is_closed(moved) ? end(Kind::over) : end(Kind::over, moved);
  }

  // As judge(); but what the peer sent before it went is still to be received.
  bool judge_sent(const Moved& moved) {
    cannot_send_ = is_closed(moved);
    return !cannot_send_ && judge(moved);
  }

  bool send_some() {
    if (!judge_sent(stream_.flush()) || shares_.empty()) return false;
    Share& share = shares_.front();
    share.header.request = share.bytes == share.header.data_bytes ? 1 : 0;
    const std::uint64_t left_bytes = share.header.data_bytes - share.data_sent();
    Place from = share.from;
    from.offset += share.data_sent();
    const Home::Held held = lane_.home_->hold(lane_.index_, from, std::min<std::uint64_t>(left_bytes, call_bytes_));
    if (held.memory == nullptr) return end(Kind::gone);
    if (!judge_sent(share.send(stream_, held.memory, call_bytes_))) return false;
    if (!share.is_sent() || share.advance()) return true;
    if (share.write->missing_shares.fetch_sub(1, std::memory_order_acq_rel) == 1) lane_.tell({Kind::moved, link_});
    shares_.pop_front();
    return true;
  }

  // The rest of a piece, and behind all of it the next header.
  bool receive_some() {
    const Home::Held held = left_bytes_ > 0 ? lane_.home_->hold(lane_.index_, to_, left_bytes_) : Home::Held{true, nullptr, {}};
    if (!held.is_allowed) return end(Kind::not_allowed);
    std::byte* const memory = held.memory != nullptr ? held.memory : lane_.scratch_.data();
    const std::size_t most_bytes = held.memory != nullptr ? receive_bytes_ : lane_.scratch_.size();
    const std::size_t data_bytes = std::min<std::size_t>(left_bytes_, most_bytes);
    const iovec pieces[] = {{memory, data_bytes}, {reinterpret_cast<std::byte*>(&head_) + head_bytes_, kHead - head_bytes_}};
    const std::span<const iovec> places(pieces);
    const Moved moved = stream_.receive(data_bytes == 0 ? places.last(1) : places.first(data_bytes == left_bytes_ ? 2 : 1));
    if (!judge(moved)) return false;
    const std::size_t data = std::min(moved.bytes, data_bytes);
    if (data > 0 && held.memory == nullptr) {
      const Placed outcome = lane_.home_->copy_to(lane_.index_, to_, std::span(memory, data));
      if (outcome != Placed::ok) return end(outcome == Placed::failed ? Kind::failed : Kind::not_allowed);
    }
    if (data > 0) placed(data);
    head_bytes_ += moved.bytes - data;
    return head_bytes_ < kHead || take_header();
  }

  void placed(std::size_t bytes) {
    to_.offset += bytes;
    left_bytes_ -= bytes;
    if (left_bytes_ > 0 || !is_last_) return;
    counts_.placed_shares[lane_.index_].fetch_add(1, std::memory_order_seq_cst);
    if (counts_.is_waited_for.load(std::memory_order_seq_cst) && counts_.is_waited_for.exchange(false, std::memory_order_seq_cst)) {
      lane_.tell({Kind::moved, link_});
    }
  }

  bool take_header() {
    head_bytes_ = 0;
    const auto header = parse_header(std::as_bytes(std::span(&head_, 1)));
    if (!header || header->kind != FrameKind::write) return end(Kind::no_frame);
    to_ = place_of(*header, rank_);
    left_bytes_ = header->data_bytes;
    is_last_ = header->request == 1;
    return true;
  }

  Lane& lane_;
  const std::uint64_t link_;
  const Rank rank_;
  LaneCounts& counts_;
  secure::ByteStream stream_;
  const std::size_t call_bytes_ = stream_.part_bytes();  // of data, that one system call sends
  // Likewise that one receives; records have sizes of their own.
  const std::size_t receive_bytes_ = call_bytes_ == SIZE_MAX ? kReceiveBytes : SIZE_MAX;
  bool cannot_send_ = false;
  bool is_over_ = false;  // nothing more comes either

  std::deque<Share> shares_;  // the first one is being sent

  FrameHeader head_;  // that comes
  std::size_t head_bytes_ = 0;
  Place to_;
  std::uint64_t left_bytes_ = 0;
  bool is_last_ = false;
};

// --- From the thread that has the transport -------------------------------------------------------------------------------------

Lane::Lane(unsigned index, std::shared_ptr<Home> home, Bell& bell, std::unique_ptr<secure::Poller> poller)
    : index_(index), home_(std::move(home)), bell_(bell), poller_(std::move(poller)), scratch_(kLaneScratchBytes) {}

Result<std::unique_ptr<Lane>> Lane::open(unsigned index, std::shared_ptr<Home> home, Bell& bell, const std::vector<int>& cpus) {
  auto poller = secure::Poller::open();
  if (!poller) return std::move(poller).error();
  std::unique_ptr<Lane> lane(new Lane(index, std::move(home), bell, std::move(*poller)));
  if (!lane->wake_.open()) {
    const int code = errno;
    return make_error(status_of_errno(code), "open TCP", "lane", "eventfd failed", {}, errno_code(code));
  }
  Result<void> started = start_thread(lane->thread_, "open TCP", "lane", [running = lane.get(), cpus] { running->run(cpus); });
  if (!started) return std::move(started).error();
  return lane;
}

Lane::~Lane() {
  if (!home_->is_of_this_process()) {
    if (thread_.joinable()) thread_.detach();  // it runs in the parent
    return;
  }
  is_stopping_.store(true, std::memory_order_seq_cst);
  wake_.ring();
  if (thread_.joinable()) thread_.join();
}

bool Lane::add(std::uint64_t link, Rank rank, secure::ByteStream stream, LaneCounts& counts) {
  const std::lock_guard lock(turn_);
  const auto [place, is_new] = connections_.try_emplace(link, *this, link, rank, std::move(stream), counts);
  return place->second.stream().socket().move_to(*poller_, link, EPOLLIN);
}

void Lane::send(std::uint64_t link, const Share& share) {
  {
    const std::lock_guard lock(mutex_);
    shares_.emplace_back(link, share);
  }
  has_shares_.store(true, std::memory_order_seq_cst);
  wake_.ring();
}

std::optional<secure::ByteStream> Lane::remove(std::uint64_t link) noexcept {
  const std::lock_guard lock(turn_);
  const auto found = connections_.find(link);
  if (found == connections_.end()) return {};
  std::optional<secure::ByteStream> stream(std::move(found->second.stream()));
  connections_.erase(found);
  const std::lock_guard queue(mutex_);
  std::erase_if(shares_, [&](const auto& item) { return item.first == link; });
  std::erase_if(events_, [&](const LaneEvent& event) { return event.link == link; });
  return stream;
}

std::vector<LaneEvent> Lane::take_events() {
  const std::lock_guard lock(mutex_);
  std::vector<LaneEvent> taken = events_;
  events_.clear();  // the room for more of them stays
  has_events_.store(false, std::memory_order_seq_cst);
  return taken;
}

// --- The lane's thread ----------------------------------------------------------------------------------------------------------

void Lane::run(const std::vector<int>& cpus) {
  settle_this_thread("gigabar-lane", cpus);
  std::int64_t idle_since_ns = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    bool is_something = true;
    try {
      is_something = go_round();
    } catch (const std::bad_alloc&) {
      // What there was no memory for is tried again in the next round.
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

bool Lane::take_shares() {
  if (!has_shares_.load(std::memory_order_seq_cst)) return false;
  const std::lock_guard lock(mutex_);
  while (!shares_.empty()) {
    const auto& [link, share] = shares_.front();
    come_back_to(link);
    connections_.at(link).add(share);  // it is there: remove() takes its shares out
    shares_.pop_front();
  }
  has_shares_.store(false, std::memory_order_seq_cst);
  return true;
}

void Lane::come_back_to(std::uint64_t link) {
  if (std::ranges::find(unfinished_, link) == unfinished_.end()) unfinished_.push_back(link);
}

bool Lane::go_round() {
  const std::lock_guard lock(turn_);
  const bool has_taken = take_shares();
  std::array<epoll_event, 64> ready;
  const std::size_t count = poller_->take(ready);
  for (std::size_t index = 0; index < count; ++index) come_back_to(ready[index].data.u64);
  if (unfinished_.empty()) return has_taken;
  {
    const std::lock_guard queue(mutex_);
    events_.reserve(events_.size() + kMaxEventsInARow);
  }
  // One at a time: who adds or removes a link waits for the turn. With an exception it stays behind the others, which may need no
  // memory.
  std::ranges::rotate(unfinished_, unfinished_.begin() + 1);
  const auto found = connections_.find(unfinished_.back());
  if (found == connections_.end() || !found->second.progress()) unfinished_.pop_back();
  return true;
}

// Of the connection that has its turn: there is room.
void Lane::tell(const LaneEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    has_events_.store(true, std::memory_order_seq_cst);
  }
  bell_.ring();
}

void Lane::sleep() {
  wake_.arm();
  if (!has_shares_.load(std::memory_order_seq_cst) && !is_stopping_.load(std::memory_order_seq_cst)) {
    pollfd watched[] = {{poller_->descriptor(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}};
    ::poll(watched, 2, kSleepMs);
  }
  wake_.disarm();
}

}  // namespace gigabar::transport::tcp
