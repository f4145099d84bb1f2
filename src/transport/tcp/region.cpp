// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/region.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/errors.hpp"
#include "gigabar/copy.hpp"

namespace gigabar::transport::tcp {
namespace {

constexpr const char* kOperation = "register memory";

bool is_host(MemoryKind kind) { return kind == MemoryKind::host_pageable || kind == MemoryKind::host_pinned; }

}  // namespace

std::uint32_t RegionTable::add(Entry entry) {
  while (next_ == 0 || entries_.contains(next_)) ++next_;
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

const RegionTable::Entry* RegionTable::find(const Place& place, std::uint64_t bytes) const {
  const auto found = entries_.find(place.region);
  if (found == entries_.end()) return nullptr;
  const Entry& entry = found->second;
  if (place.guard && *place.guard != entry.guard) return nullptr;
  return place.offset <= entry.bytes && bytes <= entry.bytes - place.offset ? &entry : nullptr;
}

std::byte* RegionTable::memory(const Place& place, std::uint64_t bytes) const {
  const Entry* const entry = find(place, bytes);
  return entry == nullptr || entry->mapping ? nullptr : entry->address + place.offset;
}

Placed RegionTable::copy_to(const Place& place, std::span<const std::byte> data) const {
  const Entry* const entry = find(place, data.size());
  if (entry == nullptr) return Placed::not_allowed;
  if (entry->mapping)
    return gigabar::copy_to(*entry->mapping, place.offset, data.data(), data.size()) ? Placed::ok : Placed::failed;
  std::ranges::copy(data, entry->address + place.offset);
  return Placed::ok;
}

Result<std::unique_ptr<Region>> TcpRegion::make(std::shared_ptr<RegionTable> table, const MemoryRange& range) {
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
                        text("sockets do not reach GPU memory, and the CPU cannot: ", mapped.error().record().cause),
                        "stage it through host memory");
    }
    mapping.emplace(std::move(*mapped));
  }
  return std::unique_ptr<Region>(new TcpRegion(std::move(table), range, std::move(mapping)));
}

TcpRegion::TcpRegion(std::shared_ptr<RegionTable> table, const MemoryRange& range, std::optional<Mapping> mapping)
    : table_(std::move(table)),
      address_(reinterpret_cast<std::uintptr_t>(range.address)),
      bytes_(range.bytes),
      kind_(range.kind),
      guard_(random_number()),
      is_mapped_(mapping.has_value()),
      reason_(is_mapped_ ? "received bytes are stored by the CPU through a mapping"
                         : "the kernel copies between host memory and its sockets"),
      number_(table_->add({static_cast<std::byte*>(range.address), range.bytes, guard_, std::move(mapping)})) {}

Result<Parcel> TcpRegion::key(const Peer&) const {
  Parcel parcel;
  parcel.bytes = encode(RegionKey{number_, guard_, bytes_, is_mapped_});
  return parcel;
}

Result<std::unique_ptr<RemoteRegion>> open_remote_region(const Parcel& key) {
  if (!key.descriptors.empty()) {
    return make_error(Status::bad_file, "open region", "the peer's TCP region key", "it came with descriptors");
  }
  const auto decoded = decode_region_key(key.bytes);
  if (!decoded) return decoded.error();
  return std::unique_ptr<RemoteRegion>(std::make_unique<TcpRemoteRegion>(*decoded));
}

}  // namespace gigabar::transport::tcp
