// SPDX-License-Identifier: Apache-2.0
#include "transport/local/link.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"

namespace gigabar::transport::local {
namespace {

// A link gives way to the others after so many messages.
constexpr unsigned kMaxMessagesPerPoll = 64;
constexpr std::size_t kMaxKeptMessages = 1024;
constexpr std::size_t kMaxKeptBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxWaitNs = 10'000'000'000;

Error out_of_range(std::uint64_t offset, std::uint64_t bytes, std::uint64_t region_bytes) {
  return make_error(Status::out_of_range, "post", text(counted(bytes, "byte"), " at ", offset, " of a region of ", region_bytes),
                    "the range is not inside the region, or empty, or longer than the link's limit", "check offset and length");
}

bool is_aligned_for_words(const std::byte* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(std::uint32_t) == 0;
}

CopyWay way_of(bool is_from_host, bool is_to_host) {
  if (is_from_host) return CopyWay::to_device;
  return is_to_host ? CopyWay::from_device : CopyWay::between_devices;
}

// What copies that did not end may still use. Never destroyed.
std::vector<std::shared_ptr<const void>>& kept_for_ever() {
  static auto* const instance = new std::vector<std::shared_ptr<const void>>;
  return *instance;
}

// Where there is no memory for the list: a reference that nobody gives back.
void keep_for_ever(const std::shared_ptr<const void>& used) noexcept {
  using Reference = std::shared_ptr<const void>;
  bool is_listed = false;
  quietly([&] {
    kept_for_ever().push_back(used);
    is_listed = true;
  });
  alignas(Reference) std::byte place[sizeof(Reference)];
  if (!is_listed) new (place) Reference(used);
}

}  // namespace

LocalLink::LocalLink(std::shared_ptr<Core> core, unsigned side, LinkMemory memory, Descriptor socket)
    : Link("shared memory", side == 0 ? LinkState::connecting : LinkState::ready),
      core_(std::move(core)),
      side_(side),
      memory_(std::move(memory)),
      socket_(std::move(socket)),
      producer_(memory_.ring(side), memory_.page().rings[side]),
      consumer_(memory_.ring(1 - side), memory_.page().rings[1 - side]) {
  limits_.payload_bytes = kMaxPayloadBytes;
  limits_.quick_payload_bytes = kQuickPayloadBytes;
  limits_.write_bytes = kMaxWriteBytes;
  limits_.read_bytes = kMaxWriteBytes;
  limits_.copied_write_bytes = kMaxPayloadBytes;
  limits_.words_wake = true;
  // Edges, not levels: the socket of a peer that is gone stays readable for ever.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = this;
  if (::epoll_ctl(core_->wakes.get(), EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    const int code = errno;
    fail(make_error(status_of_errno(code, Status::out_of_memory), "watch", "socket of a local link", errno_code(code).name,
                    "raise fs.epoll.max_user_watches", errno_code(code)));
  }
  core_->links.push_back(this);  // the last that can throw: nobody polls half a link
}

LocalLink::~LocalLink() {
  while (!stop()) std::this_thread::yield();
}

bool LocalLink::stop() {
  if (stopped_at_ns_ == 0) {
    stopped_at_ns_ = now_ns();
    std::erase(core_->links, this);
    ::epoll_ctl(core_->wakes.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  }
  for (; !transfers_.empty(); transfers_.pop_front()) {
    const Ongoing& transfer = transfers_.front();
    if (transfer.copier == nullptr) continue;
    CopyState state = transfer.copier->look(transfer.ticket);
    if (state == CopyState::running) {
      quietly([&] { transfer.copier->check(); });
      if (now_ns() - stopped_at_ns_ <= kMaxWaitNs) return false;
      state = transfer.copier->look(transfer.ticket);
    }
    if (state == CopyState::finished) continue;
    keep_for_ever(core_);  // the streams
    keep_for_ever(transfer.hold);
  }
  return true;
}

void LocalLink::fail(Error error) {
  if (state_ == LinkState::broken) return;
  state_ = LinkState::broken;
  failure_ = std::move(error);
  failed_at_ns_ = now_ns();
  kept_.clear();
  kept_bytes_ = 0;
}

Result<void> LocalLink::complete(Parcel answer) {
  const bool is_whole = answer.bytes == kAnswer && answer.descriptors.empty();
  if (state_ == LinkState::connecting && is_whole) {
    state_ = LinkState::ready;
    return {};
  }
  Error error = make_error(Status::bad_file, "connect", "local link", "the peer's answer is malformed or comes twice",
                           "run the same version at every rank");
  fail(error);
  return error;
}

// --- Messages --------------------------------------------------------------------------------------------------------------------

// Dekker: this side stores the record, then loads the peer's wish; a peer that goes to sleep stores its wish, then loads the
// record. Without a full fence between its store and its load on each side both loads could see the old value, and nobody would
// wake. The peer is woken once per wish: whoever takes the wish sends. An awake peer costs the fence and a load of a line that
// stays shared.
void LocalLink::wake_peer(std::uint32_t what) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  take_wish(memory_.page().sides[1 - side_].sleeping, what);
}

void LocalLink::take_wish(std::atomic<std::uint32_t>& wish, std::uint32_t what) noexcept {
  if ((wish.load(std::memory_order_seq_cst) & what) == 0) return;
  if (wish.exchange(0, std::memory_order_relaxed) != 0) send_wake(socket_);
}

Posted LocalLink::produce(const Header& header, std::span<const std::byte> payload) {
  const Posted posted = producer_.post(header, payload);
  if (posted == Posted::ok) {
    wake_peer(kWakeForMessage);
  } else if (posted == Posted::full) {
    wants_room_ = true;
  } else {
    fail(make_error(Status::peer_lost, "post", "ring of a local link", "the peer's position in it is impossible",
                    "forget the peer: its memory is corrupted"));
  }
  return posted;
}

Posted LocalLink::post_message(const Header& header, std::span<const std::byte> payload) {
  if (state_ == LinkState::ready && payload.size() > kMaxPayloadBytes) {
    fail(make_error(Status::invalid_argument, "post", text("message of ", counted(payload.size(), "byte")),
                    text("a local link carries at most ", kMaxPayloadBytes), "cut it by limits()"));
  }
  if (state_ == LinkState::broken) return Posted::broken;
  if (state_ == LinkState::connecting) return Posted::full;
  return is_held_back() ? keep(header, payload, {}) : produce(header, payload);
}

Posted LocalLink::keep(const Header& header, std::span<const std::byte> payload, Word word) {
  if (kept_.size() >= kMaxKeptMessages || kept_bytes_ + payload.size() > kMaxKeptBytes) return Posted::full;
  kept_.push_back({writes_posted_, header, {payload.begin(), payload.end()}, std::move(word)});
  kept_bytes_ += payload.size();
  return Posted::ok;
}

std::string LocalLink::why_no_word(WordKind, const RemoteRegion& words) const {
  const auto* const address = static_cast<const PeerRegion&>(words).cpu_address();
  if (address == nullptr) return "this process does not map the peer's notifications";
  return is_aligned_for_words(address) ? "" : "the peer's notifications are not aligned";
}

Posted LocalLink::post_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value) {
  const auto& theirs = static_cast<const PeerRegion&>(words);
  if (state_ == LinkState::ready && (index >= words_in(theirs.bytes()) || theirs.cpu_address() == nullptr)) {
    fail(make_error(Status::invalid_argument, "post", text("word ", index),
                    text("the peer's memory holds ", words_in(theirs.bytes()), ", or is not mapped"), "ask why_no_word() first"));
  }
  if (state_ == LinkState::broken) return Posted::broken;
  if (state_ == LinkState::connecting) return Posted::full;
  if (!theirs.is_registered()) return Posted::ok;  // its owner, in this process, has taken it back; the pages are kept
  auto* const word = reinterpret_cast<std::uint32_t*>(theirs.cpu_address() + word_value_at(index));
  if (is_held_back()) return keep({}, {}, {word, value, kind, theirs.hold()});
  write(kind, word, value, 0);
  return Posted::ok;
}

// By any thread. Release: behind the copies that this thread made. What the CPU's or an engine's copies wrote is finished when they
// are. The count is this half of Dekker's, see wake_peer(): added to by several threads, and the full fence before the wish is
// loaded.
void LocalLink::write(WordKind kind, std::uint32_t* word, std::uint32_t value, std::size_t writer) noexcept {
  const std::atomic_ref<std::uint32_t> target(*word);
  if (kind == WordKind::add) {
    target.fetch_add(value, std::memory_order_release);
  } else {
    target.store(value, std::memory_order_release);
  }
  memory_.page().words[side_][writer % kWordCounters].written.fetch_add(1, std::memory_order_seq_cst);
  take_wish(memory_.page().sides[1 - side_].sleeping, kWakeForMessage);
}

std::uint64_t LocalLink::first_unfinished_write() const noexcept {
  for (const Ongoing& transfer : transfers_) {
    if (transfer.write_number != 0) return transfer.write_number;
  }
  return writes_posted_ + 1;
}

bool LocalLink::send_kept() {
  if (kept_.empty() || state_ != LinkState::ready) return false;
  const std::uint64_t unfinished = first_unfinished_write();
  bool has_sent = false;
  while (!kept_.empty() && kept_.front().after_write < unfinished) {
    const Kept& next = kept_.front();
    if (next.word.value != nullptr) {
      write(next.word.kind, next.word.value, next.word.number, 0);
    } else if (produce(next.header, next.payload) != Posted::ok) {
      break;
    }
    kept_bytes_ -= next.payload.size();
    kept_.pop_front();
    has_sent = true;
  }
  return has_sent;
}

bool LocalLink::take_messages(Sink& sink) {
  std::byte copy[kCopiedPayloadBytes];
  unsigned count = 0;
  while (count < kMaxMessagesPerPoll && state_ == LinkState::ready) {
    Header header;
    std::span<const std::byte> payload;
    const Taken taken = consumer_.take(header, payload);
    if (taken == Taken::nothing) break;
    if (taken == Taken::corrupted) {
      fail(make_error(Status::peer_lost, "receive", "ring of a local link", "a record of the peer is impossible",
                      "forget the peer: its memory is corrupted"));
      return true;
    }
    if (!payload.empty() && payload.size() <= kCopiedPayloadBytes) {
      std::memcpy(copy, payload.data(), payload.size());
      payload = {copy, payload.size()};
    }
    sink.message(*this, header, payload);
    consumer_.release();
    ++count;
  }
  // The same fence as after a message, once for all of them; for a few when nobody waits for what they bring: by the next poll that
  // finds nothing, or arm().
  const bool is_few = count > 0 && count < kMaxMessagesPerPoll;
  if (!is_few && (count > 0 || owes_room_)) wake_peer(kWakeForRoom);
  owes_room_ = is_few;
  return count > 0;
}

// --- Writes and reads ------------------------------------------------------------------------------------------------------------

Reach LocalLink::reach(Direction direction, const Region& local, const RemoteRegion& remote) const {
  const auto& from = static_cast<const LocalRegion&>(local);
  auto& to = const_cast<PeerRegion&>(static_cast<const PeerRegion&>(remote));  // which opens on demand; one thread at a time
  if (direction == Direction::answer && is_cpu_memory(to.kind()) && from.device() >= 0 && from.is_open_to_peers()) {
    return {true, TransferPath::p2p, "the peer's copy engine takes its own host memory, whether it is shared or not"};
  }
  const Route& route = to.route(from);
  if (route.by == Route::By::nothing) return {false, TransferPath::none, route.reason};
  if (route.by == Route::By::cpu) {
    const bool is_of_stand_in = from.kind() == MemoryKind::stand_in || to.kind() == MemoryKind::stand_in;
    return {true, is_of_stand_in ? TransferPath::p2p : TransferPath::host, route.reason, to.cpu_address() != nullptr};
  }
  const auto copier = core_->copier_of(route.engine_device);
  if (!copier) return {false, TransferPath::none, copier.error().message()};
  if (is_cpu_memory(from.kind())) {
    if (const std::string& failure = from.facts().pinned.pin(); !failure.empty()) return {false, TransferPath::none, failure};
  }
  return {true, TransferPath::p2p, route.reason};
}

Posted LocalLink::post_transfer(Direction direction, const Transfer& transfer) {
  if (state_ == LinkState::broken) return Posted::broken;
  if (state_ == LinkState::connecting || transfers_.size() + dones_.size() >= kMaxPostedWrites) return Posted::full;
  const auto& local = static_cast<const LocalRegion&>(transfer.local);
  auto& remote = const_cast<PeerRegion&>(static_cast<const PeerRegion&>(transfer.remote));
  if (!is_inside(transfer.local_offset, transfer.bytes, local.bytes()) || transfer.bytes > kMaxWriteBytes)
    return finish_at_once(transfer.cookie, out_of_range(transfer.local_offset, transfer.bytes, local.bytes()));
  if (!is_inside(transfer.remote_offset, transfer.bytes, remote.bytes()) || !remote.is_registered()) {
    const std::uint64_t region_bytes = remote.is_registered() ? remote.bytes() : 0;
    return finish_at_once(transfer.cookie, out_of_range(transfer.remote_offset, transfer.bytes, region_bytes));
  }
  const Route& route = remote.route(local);
  if (route.by == Route::By::cpu) return post_by_cpu(direction, transfer, local, remote);
  if (route.by == Route::By::engine) return post_by_engine(direction, transfer, local, remote, route);
  return finish_at_once(transfer.cookie,
                        make_error(Status::not_supported, "post", "local copy", route.reason, "ask reach() first, and stage it"));
}

void LocalLink::add(Ongoing transfer) {
  if (transfer.direction == Direction::write) transfer.write_number = ++writes_posted_;
  transfers_.push_back(std::move(transfer));
}

Posted LocalLink::post_copied_write(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset,
                                    bool /*is_word_next*/) {
  const auto& theirs = static_cast<const PeerRegion&>(remote);
  if (state_ == LinkState::broken) return Posted::broken;
  const bool is_right = bytes.size() <= limits_.copied_write_bytes && is_inside(remote_offset, bytes.size(), theirs.bytes());
  if (!is_right || !can_store(remote)) return Posted::full;
  store(bytes, remote, remote_offset);
  return Posted::ok;
}

// --- Stores ----------------------------------------------------------------------------------------------------------------------

bool LocalLink::open_for_stores(const RemoteRegion& remote) const {
  return const_cast<PeerRegion&>(static_cast<const PeerRegion&>(remote)).open_for_stores();  // one thread at a time
}

bool LocalLink::can_store(const RemoteRegion& remote) const noexcept {
  const auto& theirs = static_cast<const PeerRegion&>(remote);
  return state_ == LinkState::ready && theirs.is_open_for_stores() && theirs.is_registered();
}

bool LocalLink::can_store_words(const RemoteRegion& words) const noexcept {
  const std::byte* const address = static_cast<const PeerRegion&>(words).cpu_address();
  return can_store(words) && !is_held_back() && address != nullptr && is_aligned_for_words(address);
}

void LocalLink::store(std::span<const std::byte> bytes, const RemoteRegion& remote, std::uint64_t remote_offset) noexcept {
  const auto& theirs = static_cast<const PeerRegion&>(remote);
  if (theirs.is_registered()) theirs.store(remote_offset, bytes);
}

void LocalLink::store_word(WordKind kind, const RemoteRegion& words, std::size_t index, std::uint32_t value,
                           std::size_t writer) noexcept {
  const auto& theirs = static_cast<const PeerRegion&>(words);
  if (!theirs.is_registered()) return;
  write(kind, reinterpret_cast<std::uint32_t*>(theirs.cpu_address() + word_value_at(index)), value, writer);
}

// Small ones are done when this returns; what is larger follows in slices.
Posted LocalLink::post_by_cpu(Direction direction, const Transfer& transfer, const LocalRegion& local, const PeerRegion& remote) {
  Ongoing ongoing{.direction = direction,
                  .cookie = transfer.cookie,
                  .remote = &remote,
                  .remote_offset = transfer.remote_offset,
                  .local = reinterpret_cast<std::byte*>(local.address()) + transfer.local_offset,
                  .bytes = transfer.bytes};
  if (transfer.bytes > kCpuSliceBytes) {
    add(std::move(ongoing));
  } else {
    advance_one(ongoing);
  }
  return Posted::ok;
}

Posted LocalLink::post_by_engine(Direction direction, const Transfer& transfer, const LocalRegion& local, const PeerRegion& remote,
                                 const Route& route) {
  const bool is_local_host = is_cpu_memory(local.kind());
  const bool is_remote_host = is_cpu_memory(remote.kind());
  if (is_local_host) {
    if (const std::string& failure = local.facts().pinned.pin(); !failure.empty())
      return finish_at_once(transfer.cookie, make_error(Status::not_supported, "post", "copy engine", failure, "stage it"));
  }
  const auto copier = core_->copier_of(route.engine_device);
  if (!copier) return finish_at_once(transfer.cookie, copier.error());
  const std::uintptr_t here = local.address() + transfer.local_offset;
  const std::uintptr_t there = route.remote_address + transfer.remote_offset;
  const bool is_write = direction == Direction::write;
  const CopyWay way = is_write ? way_of(is_local_host, is_remote_host) : way_of(is_remote_host, is_local_host);
  auto ticket = (*copier)->copy(way, is_write ? there : here, is_write ? here : there, transfer.bytes);
  if (!ticket) {
    finish(transfer.cookie, ticket.error());
    fail(std::move(ticket).error());
    return Posted::ok;
  }
  add({.direction = direction, .cookie = transfer.cookie, .copier = *copier, .ticket = *ticket, .hold = route.hold});
  return Posted::ok;
}

// True when it has ended, well or not.
bool LocalLink::advance_one(Ongoing& transfer) {
  // The messages behind it must not arrive.
  const auto lose = [&](const Error& lost) {
    finish(transfer.cookie, lost);
    fail(lost);
    return true;
  };
  if (transfer.copier != nullptr) {
    const CopyState state = transfer.copier->look(transfer.ticket);
    const bool is_given_up = state_ == LinkState::broken && now_ns() - failed_at_ns_ > kMaxWaitNs;
    if (state == CopyState::running && !is_given_up) return false;
    if (state != CopyState::finished) {
      keep_for_ever(transfer.hold);
      return lose(state == CopyState::failed ? transfer.copier->failure() : *failure_);
    }
    finish(transfer.cookie, state_ == LinkState::broken ? Result<void>(*failure_) : Result<void>());
    return true;
  }
  if (state_ == LinkState::broken) {
    finish(transfer.cookie, *failure_);
    return true;
  }
  const std::size_t bytes = std::min<std::uint64_t>(transfer.bytes, kCpuSliceBytes);
  Result<void> moved = transfer.remote->copy(transfer.direction, transfer.remote_offset, transfer.local, bytes);
  if (!moved) return lose(std::move(moved).error());
  transfer.local += bytes;
  transfer.remote_offset += bytes;
  transfer.bytes -= bytes;
  if (transfer.bytes > 0) return false;
  finish(transfer.cookie, {});
  return true;
}

// Looks at every copy that an engine makes and copies one slice by the CPU.
bool LocalLink::advance() {
  bool has_advanced = false;
  bool has_copied = false;
  for (auto place = transfers_.begin(); place != transfers_.end();) {
    const bool is_by_cpu = place->copier == nullptr;
    if (is_by_cpu && has_copied && state_ != LinkState::broken) {
      ++place;
      continue;
    }
    has_copied |= is_by_cpu;
    has_advanced |= is_by_cpu;
    if (advance_one(*place)) {
      has_advanced = true;
      place = transfers_.erase(place);
    } else {
      ++place;
    }
  }
  return has_advanced;
}

// --- Polling and sleeping --------------------------------------------------------------------------------------------------------

bool LocalLink::tell_broken(Sink& sink) {
  if (!failure_ || !transfers_.empty() || !dones_.empty()) return false;
  const auto failure = std::exchange(failure_, std::nullopt);
  sink.broken(*this, *failure);
  return true;
}

bool LocalLink::is_quiet() const noexcept {
  return transfers_.empty() && dones_.empty() && kept_.empty() && state_ != LinkState::broken;
}

bool LocalLink::poll(Sink& sink) {
  bool has_any = false;
  if (state_ == LinkState::ready && !has_told_ready_) {
    has_told_ready_ = has_any = true;
    sink.ready(*this);
  }
  if (!is_quiet()) {
    has_any |= advance();
    has_any |= send_kept();
    has_any |= tell_dones(sink);
    has_any |= tell_broken(sink);
  }
  if (state_ != LinkState::ready) return has_any;
  if (const std::uint32_t written = words_written(); written != seen_words_) {
    seen_words_ = written;
    has_any = true;
  }
  return take_messages(sink) || has_any;
}

// The other half of Dekker's: the wish is stored, then, behind a full fence, the ring and the words are looked at again.
bool LocalLink::arm() {
  const bool has_news = state_ == LinkState::broken ? failure_.has_value() : state_ == LinkState::ready && !has_told_ready_;
  if (has_news || !transfers_.empty() || !dones_.empty()) return false;
  if (state_ != LinkState::ready) return true;
  if (std::exchange(owes_room_, false)) wake_peer(kWakeForRoom);
  const bool wants_room = wants_room_ || !kept_.empty();
  memory_.page().sides[side_].sleeping.store(wants_room ? kWakeForMessage | kWakeForRoom : kWakeForMessage,
                                             std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (consumer_.has_message() || words_written() != seen_words_) return false;
  if (!wants_room || !producer_.has_room_for_any()) return true;
  wants_room_ = false;
  return false;
}

}  // namespace gigabar::transport::local
