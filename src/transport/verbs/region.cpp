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
bool have_common_atomics(const std::vector<Rail>& rails) {
  const bool is_one = std::ranges::all_of(rails, [&](const Rail& rail) { return rail.device == rails.front().device; });
  const auto least = is_one ? IBV_ATOMIC_HCA : IBV_ATOMIC_GLOB;
  return std::ranges::all_of(rails, [&](const Rail& rail) { return rail.device->attributes.atomic_cap >= least; });
}

}  // namespace

VerbsRegion::~VerbsRegion() {
  if (is_ordered_) order_->remove(range_.device);
}

Result<std::unique_ptr<Region>> VerbsRegion::make(const MemoryRange& range, const std::vector<Rail>& rails,
                                                  std::shared_ptr<GpuOrder> order) {
  const std::string object = range_text(reinterpret_cast<std::uintptr_t>(range.address), range.bytes);
  if (range.address == nullptr || range.bytes == 0)
    return make_error(Status::invalid_argument, "register memory", object, "there is no memory to register");
  if (range.kind == MemoryKind::managed)
    return make_error(Status::not_supported, "register memory", object, "managed memory moves between CPU and GPU",
                      "use cudaMalloc, or stage it");
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(range, std::move(order)));
  if (Result<void> registered = region->register_all(rails); !registered) return std::move(registered).error();
  return std::unique_ptr<Region>(std::move(region));
}

Result<void> VerbsRegion::register_all(const std::vector<Rail>& rails) {
  if (is_gpu_memory(range_.kind) && range_.kind != MemoryKind::stand_in) {
    if (Result<void> ordered = order_->add(range_.device); !ordered) return ordered;
    is_ordered_ = true;
  } else {
    has_atomics_ = range_.holds_words && have_common_atomics(rails);
  }
  for (const Rail& rail : rails) {
    const auto first = std::ranges::find(rails, rail.device, &Rail::device);  // rails of one device share its region
    std::shared_ptr<ibv_mr>& region = regions_.emplace_back();
    if (&*first != &rail) region = regions_[static_cast<std::size_t>(first - rails.begin())];
    if (&*first != &rail || rail.device->is_gone) continue;
    auto registered = register_with(*rail.device);
    if (!registered) return std::move(registered).error();
    region = {registered->region.release(), [device = rail.device](ibv_mr* mr) { gigabar::rdma::MrCloser()(mr); }};
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
  for (const auto& region : regions_) key.keys.push_back(region != nullptr ? region->rkey : 0);
  return Parcel{write_key(key), {}};
}

}  // namespace gigabar::transport::rdma
