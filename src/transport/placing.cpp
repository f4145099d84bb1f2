// SPDX-License-Identifier: Apache-2.0
#include "transport/placing.hpp"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/undo.hpp"
#include "gigabar/copy.hpp"

namespace gigabar::transport {
namespace {

constexpr std::string_view kKeyMagic = "gigabar region key 1";

bool is_host(MemoryKind kind) { return kind == MemoryKind::host_pageable || kind == MemoryKind::host_pinned; }

Placed copy_to_place(const Home::Entry& entry, std::uint64_t offset, std::span<const std::byte> data) {
  if (entry.mapping) return gigabar::copy_to(*entry.mapping, offset, data.data(), data.size()) ? Placed::ok : Placed::failed;
  std::memcpy(entry.address + offset, data.data(), data.size());
  return Placed::ok;
}

std::string not_sent(std::string_view transport) { return text(transport, " does not send GPU memory"); }

// Why a write or read cannot be posted; nothing: it can. `object`: the link, for the error.
std::optional<Error> why_no_transfer(const Transfer& transfer, const std::string& object, std::string_view transport) {
  if (static_cast<const PlacedRegion&>(transfer.local).is_mapped()) {
    return make_error(Status::not_supported, "post", object, not_sent(transport), "stage it through host memory");
  }
  const bool is_right = transfer.bytes <= kTransferBytes &&
                        is_inside(transfer.local_offset, transfer.bytes, transfer.local.bytes()) &&
                        is_inside(transfer.remote_offset, transfer.bytes, transfer.remote.bytes());
  if (is_right) return {};
  return make_error(
      Status::out_of_range, "post", object,
      text(counted(transfer.bytes, "byte"), " from ", transfer.local_offset, " to ", transfer.remote_offset, " leave a region"));
}

}  // namespace

Result<std::uint64_t> random_number() {
  std::uint64_t number = 0;
  // Zero means "none" in places.
  while (number == 0) {
    if (::getrandom(&number, sizeof number, 0) == static_cast<ssize_t>(sizeof number)) continue;
    if (errno == EINTR) continue;
    const int code = errno;
    return make_error(Status::unavailable, "make a link", "random number", "getrandom failed", {}, errno_code(code));
  }
  return number;
}

Error malformed(const char* what, const char* cause) {
  return make_error(Status::bad_file, "read", what, cause, "use the same version of Gigabar at every rank");
}

// --- Keys -----------------------------------------------------------------------------------------------------------------------

std::string encode(const RegionKey& key) {
  ByteWriter writer(kKeyMagic);
  return writer.number(key.region).number(key.guard).number(key.bytes).number(std::uint8_t{key.is_mapped}).take();
}

Result<RegionKey> decode_region_key(std::string_view bytes) {
  constexpr const char* kWhat = "the peer's region key";
  ByteReader reader(bytes);
  reader.expect(reader.bytes(kKeyMagic.size()) == kKeyMagic);
  if (!reader.is_ok()) return malformed(kWhat, "it is of another kind or version");
  RegionKey key;
  key.region = reader.number<std::uint32_t>();
  key.guard = reader.number<std::uint64_t>();
  key.bytes = reader.number<std::uint64_t>();
  const auto is_mapped = reader.number<std::uint8_t>();
  key.is_mapped = is_mapped == 1;
  if (!reader.is_done()) return malformed(kWhat, "its length is wrong");
  if (key.bytes == 0 || key.bytes > (std::uint64_t{1} << 62)) return malformed(kWhat, "its length in bytes is out of range");
  if (is_mapped > 1) return malformed(kWhat, "it is neither host memory nor a mapped GPU's");
  return key;
}

std::string_view sentence_of(Farewell reason) noexcept {
  switch (reason) {
    case Farewell::closed: return "the peer closed the link";
    case Farewell::bad_access: return "the peer refused an access to its memory (unknown region, wrong guard or out of range)";
    case Farewell::bad_message: return "the peer got a message that breaks the protocol";
    case Farewell::own_failure: return "the link failed at the peer";
  }
  return "the peer gave an unknown reason";
}

// --- What peers reach ------------------------------------------------------------------------------------------------------------

Home::Home(std::string_view transport) noexcept : transport_(transport), process_(::getpid()) {}

std::uint32_t Home::add_region(Entry entry) {
  const std::lock_guard lock(mutex_);
  while (next_region_ == 0 || regions_.contains(next_region_)) ++next_region_;
  regions_.emplace(next_region_, std::move(entry));
  return next_region_++;
}

void Home::wait_for_lanes() const noexcept {
  for (const Use& use : uses_) {
    const std::uint64_t begun = use.count.load(std::memory_order_acquire);
    while (begun % 2 != 0 && use.count.load(std::memory_order_acquire) == begun) sched_yield();
  }
}

void Home::remove_region(std::uint32_t number) noexcept {
  if (!is_of_this_process()) return;
  // A lane may still be copying through its mapping: that goes last.
  decltype(regions_)::node_type removed;
  {
    const std::lock_guard lock(mutex_);
    removed = regions_.extract(number);
  }
  wait_for_lanes();
}

Result<std::uint64_t> Home::guard_of(std::uint32_t number, Rank rank) {
  auto fresh = random_number();
  if (!fresh) return fresh;
  const std::lock_guard lock(mutex_);
  return regions_.at(number).guards.try_emplace(rank, *fresh).first->second;
}

void Home::forget_guard(std::uint32_t number, Rank rank) noexcept {
  if (!is_of_this_process()) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(number);
    if (found == regions_.end() || found->second.guards.erase(rank) == 0) return;
  }
  wait_for_lanes();
}

// Without the mutex for the thread that alone changes what is read; lanes have it.
const Home::Entry* Home::find(const Place& place, std::uint64_t bytes) const {
  const auto found = regions_.find(place.region);
  if (found == regions_.end()) return nullptr;
  const Entry& entry = found->second;
  if (place.guard) {
    const auto guard = entry.guards.find(place.guard->rank);
    if (guard == entry.guards.end() || guard->second != place.guard->number) return nullptr;
  }
  return place.offset <= entry.bytes && bytes <= entry.bytes - place.offset ? &entry : nullptr;
}

std::byte* Home::memory(const Place& place, std::uint64_t bytes) const {
  const Entry* const entry = find(place, bytes);
  return entry == nullptr || entry->mapping ? nullptr : entry->address + place.offset;
}

Placed Home::copy_to(const Place& place, std::span<const std::byte> data) const {
  const Entry* const entry = find(place, data.size());
  return entry == nullptr ? Placed::not_allowed : copy_to_place(*entry, place.offset, data);
}

// The lane's use begins under the mutex: whoever forgets something there either comes before, and it is not found, or sees the use.
Home::Held Home::hold(unsigned lane, const Place& place, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Entry* const entry = find(place, bytes);
  if (entry == nullptr || entry->mapping) return {entry != nullptr, nullptr, {}};
  return {true, entry->address + place.offset, std::unique_lock(uses_[lane])};
}

// References into the map stay when others come.
Placed Home::copy_to(unsigned lane, const Place& place, std::span<const std::byte> data) {
  std::unique_lock lock(mutex_);
  const Entry* const entry = find(place, data.size());
  if (entry == nullptr) return Placed::not_allowed;
  const std::lock_guard use(uses_[lane]);
  lock.unlock();
  return copy_to_place(*entry, place.offset, data);
}

// --- Regions ---------------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Region>> PlacedRegion::make(std::shared_ptr<Home> home, const MemoryRange& range) {
  constexpr const char* kOperation = "register memory";
  const auto address = reinterpret_cast<std::uintptr_t>(range.address);
  const std::string object = range_text(address, range.bytes);
  if (range.address == nullptr || range.bytes == 0 || range.bytes > std::numeric_limits<std::uintptr_t>::max() - address) {
    return make_error(Status::invalid_argument, kOperation, object, "there is no such memory");
  }
  std::optional<Mapping> mapping;
  if (!is_host(range.kind)) {
    auto mapped = map(range.address, range.bytes);
    if (!mapped) {
      return make_error(Status::not_supported, kOperation, text(object, " (", name_of(range.kind), ')'),
                        text(home->transport(), " does not reach GPU memory, and the CPU cannot: ", mapped.error().record().cause),
                        "stage it through host memory");
    }
    mapping.emplace(std::move(*mapped));
  }
  return std::unique_ptr<Region>(new PlacedRegion(std::move(home), range, std::move(mapping)));
}

PlacedRegion::PlacedRegion(std::shared_ptr<Home> home, const MemoryRange& range, std::optional<Mapping> mapping)
    : Region(range), home_(std::move(home)), is_mapped_(mapping.has_value()) {
  if (is_mapped_) how_ = "mapped";
  reason_ = is_mapped_ ? "received bytes are stored by the CPU through a mapping"
                       : "host memory is sent as it is, and received bytes are placed by the CPU";
  // Last: where the rest throws there is no destructor that takes it out again.
  number_ = home_->add_region({static_cast<std::byte*>(range.address), range.bytes, std::move(mapping), {}});
}

Result<Parcel> PlacedRegion::key(const Peer& peer) const {
  const auto guard = home_->guard_of(number_, peer.rank);
  if (!guard) return guard.error();
  Parcel parcel;
  parcel.bytes = encode(RegionKey{number_, *guard, bytes(), is_mapped_});
  return parcel;
}

// --- Transports ------------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<RemoteRegion>> PlacedTransport::open_region(const Peer& /*peer*/, Parcel key) {
  if (!key.descriptors.empty()) {
    return make_error(Status::bad_file, "open region", "the peer's region key", "it came with descriptors");
  }
  const auto decoded = decode_region_key(key.bytes);
  if (!decoded) return decoded.error();
  return std::unique_ptr<RemoteRegion>(std::make_unique<PlacedRemoteRegion>(*decoded));
}

std::string PlacedTransport::why_no_words() const {
  return text("over ", home_->transport(), " the target's CPU places all bytes, and so sets its notifications");
}

void PlacedTransport::attend_to(PlacedLink& link) noexcept {
  if (std::ranges::find(attended_, &link) == attended_.end()) attended_.push_back(&link);
}

// What the sink's own posts add is for the next poll().
bool PlacedTransport::attend(Sink& sink) {
  bool is_something = false;
  for (std::size_t count = attended_.size(); count > 0; --count) {
    PlacedLink* const link = attended_.front();
    attended_.erase(attended_.begin());
    Undo again([&] { attend_to(*link); });
    is_something |= link->attend(sink);
    again.call_off();
  }
  return is_something;
}

// --- Links -----------------------------------------------------------------------------------------------------------------------

PlacedLink::PlacedLink(PlacedTransport& transport, Rank rank, std::size_t payload_bytes, std::string_view rail)
    : Link(rail), hub_(transport), rank_(rank), connect_until_ns_(now_ns() + transport.connect_deadline_ns()) {
  limits_.payload_bytes = payload_bytes;
  limits_.quick_payload_bytes = 4096;
  limits_.write_bytes = limits_.read_bytes = kTransferBytes;
}

Error PlacedLink::about_this(const Error& error) const {
  ErrorRecord record = error.record();
  record.object = object();
  return Error(std::move(record));
}

Posted PlacedLink::post_message(const Header& header, std::span<const std::byte> payload) {
  if (state_ == LinkState::broken) return Posted::broken;
  if (!can_post()) return Posted::full;
  if (payload.size() <= limits_.payload_bytes) return send_message(header, payload);
  fail(make_error(Status::out_of_range, "send a message", object(),
                  text(counted(payload.size(), "byte"), " are more than the limit")),
       Farewell::own_failure);
  return Posted::broken;
}

Reach PlacedLink::reach(Direction direction, const Region& local, const RemoteRegion& remote) const {
  const std::string_view transport = hub_.home()->transport();
  const bool is_local_mapped = static_cast<const PlacedRegion&>(local).is_mapped();
  const bool is_remote_mapped = static_cast<const PlacedRemoteRegion&>(remote).key().is_mapped;
  if (!is_local_mapped && !is_remote_mapped) {
    return {true, TransferPath::host, text("host memory at both ends, over ", transport, " (", rail_, ')')};
  }
  if (direction == Direction::read) {
    return {false, TransferPath::none, text("answers of ", transport, " are sent from host memory, and placed there")};
  }
  const bool is_sent_from_gpu = direction == Direction::write ? is_local_mapped : is_remote_mapped;
  if (is_sent_from_gpu) return {false, TransferPath::none, not_sent(transport)};
  return {true, TransferPath::bar,
          text("the receiver's CPU stores it into GPU memory through a mapping as it arrives, over ", transport, " (", rail_, ')')};
}

Posted PlacedLink::post_transfer(Direction direction, const Transfer& transfer) {
  if (state_ == LinkState::broken) return Posted::broken;
  if (!can_post() || transfers_ + dones_.size() >= kMaxTransfers) return Posted::full;
  if (auto why = why_no_transfer(transfer, object(), hub_.home()->transport())) {
    finish(transfer.cookie, std::move(*why));
    ++transfers_;  // behind what may throw; finish() has counted it down
  } else {
    const Place here = static_cast<const PlacedRegion&>(transfer.local).at(transfer.local_offset);
    begin(direction, here, static_cast<const PlacedRemoteRegion&>(transfer.remote).key(), transfer);
  }
  return Posted::ok;
}

std::uint32_t PlacedLink::add_read(const Place& to, const Transfer& transfer) {
  while (reads_.contains(next_read_)) ++next_read_;
  reads_.emplace(next_read_, Read{transfer.cookie, to, transfer.bytes, transfer.bytes});
  return next_read_++;
}

const std::byte* PlacedLink::memory_to_send(const Place& from, std::uint64_t bytes, bool is_answer) {
  const std::byte* const memory = hub_.home()->memory(from, bytes);
  if (memory == nullptr && is_answer) refuse("it reads from a region that was taken back", Farewell::bad_access);
  if (memory == nullptr && !is_answer) fail_as_taken_back("write");
  return memory;
}

bool PlacedLink::may_read(const Place& from, std::uint64_t bytes, std::size_t waiting_count) {
  const bool is_allowed = bytes > 0 && bytes <= kTransferBytes && hub_.home()->memory(from, bytes) != nullptr;
  if (!is_allowed) {
    refuse("a read of an unknown region, with a wrong guard or out of range", Farewell::bad_access);
  } else if (waiting_count >= kMaxTransfers) {
    refuse("it asked for too much at once");
  }
  return state_ != LinkState::broken;
}

void PlacedLink::become_ready() {
  state_ = LinkState::ready;
  is_ready_due_ = true;
  hub_.attend_to(*this);
}

void PlacedLink::finish(std::uint64_t cookie, Result<void> outcome) {
  dones_.push_back({cookie, std::move(outcome)});
  --transfers_;
  hub_.attend_to(*this);
}

bool PlacedLink::tell_ready(Sink& sink) {
  if (!std::exchange(is_ready_due_, false)) return false;
  is_ready_told_ = true;
  sink.ready(*this);
  return true;
}

void PlacedLink::tell_end(Sink& sink) {
  for (; !reads_.empty(); reads_.erase(reads_.begin())) give_up(reads_.begin()->second.cookie);
  tell_dones(sink);
  const auto error = std::exchange(error_, std::nullopt);
  sink.broken(*this, *error);
}

void PlacedLink::fail(Error error, std::optional<Farewell> farewell) noexcept {
  if (state_ == LinkState::broken) return;
  begin_to_break(farewell);
  state_ = LinkState::broken;
  error_ = std::move(error);
  hub_.attend_to(*this);
}

void PlacedLink::refuse(std::string_view why, Farewell reason) {
  if (state_ == LinkState::broken) return;
  fail(make_error(Status::peer_lost, "connection", object(), text("the peer broke the rules: ", why)), reason);
}

void PlacedLink::refuse_write() {
  refuse("a write to an unknown region, with a wrong guard or out of range", Farewell::bad_access);
}

void PlacedLink::lost(std::string cause, std::string remedy, NativeCode native) {
  if (state_ == LinkState::broken) return;
  fail(make_error(Status::peer_lost, "connection", object(), std::move(cause), std::move(remedy), std::move(native)));
}

void PlacedLink::fail_as_taken_back(const char* operation) {
  fail(make_error(Status::invalid_argument, operation, object(), text("the local region was taken back during the ", operation),
                  text("wait for a ", operation, " before its memory is deregistered")),
       Farewell::own_failure);
}

void PlacedLink::fail_to_place() {
  fail(make_error(Status::device_error, "place a write", object(), "the GPU's memory could not be written to through its mapping"),
       Farewell::own_failure);
}

void PlacedLink::fail_to_connect(const char* cause, const char* remedy) {
  fail(make_error(Status::timed_out, "connect", object(), cause, remedy));
}

}  // namespace gigabar::transport
