// SPDX-License-Identifier: Apache-2.0
#include "transport/placing.hpp"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
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

template <class IsMeant>
void Home::wait_for_lanes(const IsMeant& is_meant) const noexcept {
  for (const Busy& busy : busy_) {
    while (is_meant(busy)) sched_yield();
  }
}

void Home::remove_region(std::uint32_t number) noexcept {
  if (process_ != ::getpid()) return;
  // A lane may still be copying through its mapping: that goes last.
  decltype(regions_)::node_type removed;
  {
    const std::lock_guard lock(mutex_);
    removed = regions_.extract(number);
  }
  wait_for_lanes([&](const Busy& busy) { return busy.region.load(std::memory_order_acquire) == number; });
}

Result<std::uint64_t> Home::guard_of(std::uint32_t number, Rank rank) {
  auto fresh = random_number();
  if (!fresh) return fresh;
  const std::lock_guard lock(mutex_);
  return regions_.at(number).guards.try_emplace(rank, *fresh).first->second;
}

void Home::forget_guard(std::uint32_t number, Rank rank) noexcept {
  if (process_ != ::getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(number);
    if (found == regions_.end() || found->second.guards.erase(rank) == 0) return;
  }
  // Others' lanes may go on there without end.
  wait_for_lanes([&](const Busy& busy) {
    return busy.region.load(std::memory_order_acquire) == number && busy.rank.load(std::memory_order_relaxed) == rank;
  });
}

void Home::add_link(std::uint64_t number, Rank rank) {
  const std::lock_guard lock(mutex_);
  links_.emplace(number, rank);
}

void Home::remove_link(std::uint64_t number) noexcept {
  if (process_ != ::getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    links_.erase(number);
  }
  wait_for_lanes([&](const Busy& busy) { return busy.link.load(std::memory_order_acquire) == number; });
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

const Home::Entry* Home::mark(unsigned lane, std::uint64_t link, Place& place, std::uint64_t bytes, Placed& why) {
  Busy& busy = busy_[lane];
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(link);
  why = found == links_.end() ? Placed::no_link : Placed::not_allowed;
  if (found == links_.end()) return nullptr;
  if (place.guard) place.guard->rank = found->second;
  const Entry* const entry = find(place, bytes);
  if (entry == nullptr) return nullptr;
  why = Placed::ok;
  busy.link.store(link, std::memory_order_relaxed);
  busy.rank.store(found->second, std::memory_order_relaxed);
  busy.region.store(place.region, std::memory_order_relaxed);
  return entry;
}

void Home::release(unsigned lane) noexcept {
  busy_[lane].link.store(0, std::memory_order_release);
  busy_[lane].region.store(0, std::memory_order_release);
}

// Neither goes while it is marked: references into the map stay when others come.
Placed Home::copy_to(unsigned lane, std::uint64_t link, Place place, std::span<const std::byte> data) {
  Placed placed = Placed::ok;
  const Entry* const entry = mark(lane, link, place, data.size(), placed);
  if (entry == nullptr) return placed;
  placed = copy_to_place(*entry, place.offset, data);
  release(lane);
  return placed;
}

Home::Held Home::hold(unsigned lane, std::uint64_t link, Place place, std::uint64_t bytes) {
  Held held;
  const Entry* const entry = mark(lane, link, place, bytes, held.why);
  if (entry == nullptr) return held;
  if (entry->mapping) return release(lane), held;
  held.memory = entry->address + place.offset;
  return held;
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
    : home_(std::move(home)),
      address_(reinterpret_cast<std::uintptr_t>(range.address)),
      bytes_(range.bytes),
      kind_(range.kind),
      is_mapped_(mapping.has_value()),
      reason_(is_mapped_ ? "received bytes are stored by the CPU through a mapping"
                         : "host memory is sent as it is, and received bytes are placed by the CPU"),
      number_(home_->add_region({static_cast<std::byte*>(range.address), range.bytes, std::move(mapping), {}})) {}

Result<Parcel> PlacedRegion::key(const Peer& peer) const {
  const auto guard = home_->guard_of(number_, peer.rank);
  if (!guard) return guard.error();
  Parcel parcel;
  parcel.bytes = encode(RegionKey{number_, *guard, bytes_, is_mapped_});
  return parcel;
}

Result<std::unique_ptr<RemoteRegion>> open_placed_region(const Parcel& key) {
  if (!key.descriptors.empty()) {
    return make_error(Status::bad_file, "open region", "the peer's region key", "it came with descriptors");
  }
  const auto decoded = decode_region_key(key.bytes);
  if (!decoded) return decoded.error();
  return std::unique_ptr<RemoteRegion>(std::make_unique<PlacedRemoteRegion>(*decoded));
}

// --- For links -------------------------------------------------------------------------------------------------------------------

Reach reach_by_placing(Direction direction, const Region& local, const RemoteRegion& remote, std::string_view transport,
                       std::string_view rail) {
  const bool is_local_mapped = static_cast<const PlacedRegion&>(local).is_mapped();
  const bool is_remote_mapped = static_cast<const PlacedRemoteRegion&>(remote).key().is_mapped;
  if (!is_local_mapped && !is_remote_mapped) {
    return {true, TransferPath::host, text("host memory at both ends, over ", transport, " (", rail, ')')};
  }
  if (direction == Direction::read) {
    return {false, TransferPath::none, text("answers of ", transport, " are sent from host memory, and placed there")};
  }
  const bool is_sent_from_gpu = direction == Direction::write ? is_local_mapped : is_remote_mapped;
  if (is_sent_from_gpu) return {false, TransferPath::none, not_sent(transport)};
  return {true, TransferPath::bar,
          text("the receiver's CPU stores it into GPU memory through a mapping as it arrives, over ", transport, " (", rail, ')')};
}

std::optional<Error> why_no_transfer(const Region& local, std::uint64_t local_offset, const RemoteRegion& remote,
                                     std::uint64_t remote_offset, std::uint64_t bytes, const std::string& object,
                                     std::string_view transport) {
  if (static_cast<const PlacedRegion&>(local).is_mapped()) {
    return make_error(Status::not_supported, "post", object, not_sent(transport), "stage it through host memory");
  }
  const bool is_inside = bytes > 0 && bytes <= kTransferBytes && bytes <= local.bytes() && local_offset <= local.bytes() - bytes &&
                         bytes <= remote.bytes() && remote_offset <= remote.bytes() - bytes;
  if (is_inside) return {};
  return make_error(Status::out_of_range, "post", object,
                    text(counted(bytes, "byte"), " from ", local_offset, " to ", remote_offset, " leave a region"));
}

std::string why_no_words(std::string_view transport) {
  return text("over ", transport, " the target's CPU places all bytes, and so sets its notifications");
}

Error taken_back_under_way(const char* operation, std::string object) {
  return make_error(Status::invalid_argument, operation, std::move(object),
                    text("the local region was taken back during the ", operation),
                    text("wait for a ", operation, " before its memory is deregistered"));
}

Error placing_failed(std::string object) {
  return make_error(Status::device_error, "place a write", std::move(object),
                    "the GPU's memory could not be written to through its mapping");
}

}  // namespace gigabar::transport
