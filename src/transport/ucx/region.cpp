// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/region.hpp"

#include <limits>
#include <utility>

#include "gigabar/mapping.hpp"

#include "base/errors.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr const char* kOperation = "register memory";

bool is_host(MemoryKind kind) { return kind == MemoryKind::host_pageable || kind == MemoryKind::host_pinned; }

}  // namespace

Result<std::unique_ptr<Region>> UcxRegion::make(std::shared_ptr<Hub> hub, const MemoryRange& range) {
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
                        text("UCX of this machine does not reach GPU memory, and the CPU cannot: ", mapped.error().record().cause),
                        "stage it through host memory");
    }
    mapping.emplace(std::move(*mapped));
  }
  auto guard = random_number();
  if (!guard) return std::move(guard).error();
  return std::unique_ptr<Region>(new UcxRegion(std::move(hub), range, *guard, std::move(mapping)));
}

UcxRegion::UcxRegion(std::shared_ptr<Hub> hub, const MemoryRange& range, std::uint64_t guard, std::optional<Mapping> mapping)
    : hub_(std::move(hub)),
      address_(reinterpret_cast<std::uintptr_t>(range.address)),
      bytes_(range.bytes),
      kind_(range.kind),
      guard_(guard),
      is_mapped_(mapping.has_value()),
      number_(hub_->home().add_region({static_cast<std::byte*>(range.address), range.bytes, guard, std::move(mapping)})),
      reason_(is_mapped_ ? "received bytes are stored by the CPU through a mapping"
                         : "UCX sends host memory as it is, and received bytes are placed by the CPU") {}

Result<Parcel> UcxRegion::key(const Peer&) const {
  Parcel parcel;
  parcel.bytes = encode(RegionKey{number_, guard_, bytes_, is_mapped_});
  return parcel;
}

Result<std::unique_ptr<RemoteRegion>> open_remote_region(const Parcel& key) {
  if (!key.descriptors.empty()) {
    return make_error(Status::bad_file, "open region", "the peer's UCX region key", "it came with descriptors");
  }
  const auto decoded = decode_region_key(key.bytes);
  if (!decoded) return decoded.error();
  return std::unique_ptr<RemoteRegion>(std::make_unique<UcxRemoteRegion>(*decoded));
}

}  // namespace gigabar::transport::ucx
