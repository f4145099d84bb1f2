// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/region.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace gigabar::transport::rdma {
namespace {

// Peers write to and read from every region, and so do we; a read's sink must be open to remote writes on iWARP. Never relaxed
// ordering: who sees a word must see the data that an adapter wrote before it. An adapter whose firmware uses relaxed
// ordering for all memory does not keep to that.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Atomics of two adapters are atomic with each other only where both say so.
bool have_common_atomics(const std::vector<std::shared_ptr<Device>>& devices) {
  const auto least = devices.size() == 1 ? IBV_ATOMIC_HCA : IBV_ATOMIC_GLOB;
  return std::all_of(devices.begin(), devices.end(), [&](const auto& device) { return device->attributes.atomic_cap >= least; });
}

}  // namespace

VerbsRegion::VerbsRegion(const MemoryRange& range, const std::vector<std::shared_ptr<Device>>& devices,
                         std::vector<std::size_t> rail_devices, std::shared_ptr<GpuOrder> order)
    : range_(range), devices_(devices), rail_devices_(std::move(rail_devices)), order_(std::move(order)) {}

VerbsRegion::~VerbsRegion() {
  if (is_ordered_) order_->remove(range_.device);
}

Result<std::unique_ptr<Region>> VerbsRegion::make(const MemoryRange& range, const std::vector<std::shared_ptr<Device>>& devices,
                                                  std::vector<std::size_t> rail_devices, std::shared_ptr<GpuOrder> order) {
  const std::string object = range_text(reinterpret_cast<std::uintptr_t>(range.address), range.bytes);
  if (range.address == nullptr || range.bytes == 0)
    return make_error(Status::invalid_argument, "register memory", object, "there is no memory to register");
  if (range.kind == MemoryKind::managed)
    return make_error(Status::not_supported, "register memory", object, "managed memory moves between CPU and GPU",
                      "use cudaMalloc, or stage it");
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(range, devices, std::move(rail_devices), std::move(order)));
  if (Result<void> registered = region->register_all(); !registered) return std::move(registered).error();
  return std::unique_ptr<Region>(std::move(region));
}

Result<void> VerbsRegion::register_all() {
  if (is_gpu_memory(range_.kind) && range_.kind != MemoryKind::stand_in) {
    if (Result<void> ordered = order_->add(range_.device); !ordered) return ordered;
    is_ordered_ = true;
  } else {
    has_atomics_ = range_.holds_words && have_common_atomics(devices_);
  }
  for (const auto& device : devices_) {
    Mr& region = regions_.emplace_back();
    if (device->is_gone) continue;
    auto registered = register_with(*device);
    if (!registered) return std::move(registered).error();
    region = std::move(registered->region);
    how_ = registered->how;
    reason_ = std::move(registered->reason);
  }
  return {};
}

Result<gigabar::rdma::Registration> VerbsRegion::register_with(const Device& device) const {
  if (is_ordered_) return gigabar::rdma::register_gpu_memory(device.domain, device.name, address(), range_.bytes, kAccess);
  const int access = has_atomics_ ? kAccess | IBV_ACCESS_REMOTE_ATOMIC : kAccess;
  auto pages = register_pages(device.domain, device.name, range_.address, range_.bytes, access);
  if (!pages) return std::move(pages).error();
  const bool is_stand_in = range_.kind == MemoryKind::stand_in;
  return gigabar::rdma::Registration{
      std::move(*pages), "pinned",
      is_stand_in ? "stand-in memory is host memory, which every NIC can pin" : "host memory is pinned"};
}

Result<Parcel> VerbsRegion::key(const Peer&) const {
  Key key{range_.kind, address(), range_.bytes, {}, has_atomics_};
  // No link of the peer's stands on a rail whose device is gone, so that its key is never used.
  for (const std::size_t device : rail_devices_) key.keys.push_back(regions_[device] != nullptr ? regions_[device]->rkey : 0);
  return Parcel{write_key(key), {}};
}

}  // namespace gigabar::transport::rdma
