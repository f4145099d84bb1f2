// SPDX-License-Identifier: Apache-2.0
// Segments that this process's loads and stores, or its kernels, reach.
#include "base/errors.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {
namespace {

std::string name_of(const MappedPlace& place) { return text(segment_text(place.id), " of rank ", place.rank); }

Error not_mapped(const char* operation, const MappedPlace& place) {
  return make_error(Status::invalid_argument, operation, name_of(place), "it is not mapped", "map it first");
}

}  // namespace

Result<void> Engine::map_own(MappedSegment& mapped, MappedFor who, const std::string& name) const {
  const LocalMemory& memory = mapped.own->memory;
  if (who == MappedFor::kernels && gpu_ && !memory.is_device() && memory.kind() != MemoryKind::host_pinned) {
    return make_error(Status::not_supported, "map segment", name, "kernels do not reach pageable memory",
                      "register device memory or pinned host memory");
  }
  mapped.region.address = reinterpret_cast<std::uintptr_t>(memory.address());
  if (who == MappedFor::kernels || !memory.is_device()) return {};
  auto mapping = gigabar::map(memory.address(), memory.bytes());
  if (mapping.status() == Status::out_of_memory) return std::move(mapping).error();
  if (!mapping) return make_error(Status::not_supported, "map segment", name, mapping.error().record().cause, {});
  const auto hold = std::make_shared<Mapping>(std::move(*mapping));
  mapped.region = {reinterpret_cast<std::uintptr_t>(hold->address()), hold, {}};
  return {};
}

Result<void> Engine::make_mapping(MappedSegment& mapped, const MappedPlace& place) const {
  const std::string name = name_of(place);
  if (mapped.own != nullptr) return map_own(mapped, place.who, name);
  if (mapped.remote->region == nullptr) {
    return make_error(Status::not_supported, "map segment", name, mapped.remote->why_not, "use operations: they find another path");
  }
  transport::RemoteRegion& remote = *mapped.remote->region;
  auto region = place.who == MappedFor::cpu ? remote.map_for_cpu() : remote.map(gpu_ ? device_ : -1);
  if (!region) {
    edit(region.error()).object = name;
    return std::move(region).error();
  }
  mapped.region = std::move(*region);
  return {};
}

Result<void*> Engine::map_segment(Lock& lock, const MappedPlace& place, const Timeout& timeout) {
  MappedSegment mapped;
  bool is_known = mapped_segments_.contains(place);
  if (place.rank == job_.rank) {
    auto found = local_segment(place.id);
    if (!found) return std::move(found).error();
    mapped.own = *found;
  } else if (!is_known) {
    auto peer = ready_peer(lock, place.rank, timeout);
    if (!peer) return std::move(peer).error();
    auto found = remote_segment(lock, **peer, place.id, timeout);
    if (!found) return std::move(found).error();
    mapped.remote = *found;
    is_known = mapped_segments_.contains(place);  // another thread may have mapped it while this one waited
  }
  if (!is_known) {
    if (Result<void> made = make_mapping(mapped, place); !made) return std::move(made).error();
    const MappedSegment& kept = mapped_segments_.emplace(place, std::move(mapped)).first->second;
    if (kept.own != nullptr) ++kept.own->users;
    if (kept.remote != nullptr) ++kept.remote->users;
  }
  MappedSegment& known = mapped_segments_.find(place)->second;
  ++known.count;
  return reinterpret_cast<void*>(known.region.address);
}

Result<std::string> Engine::why_no_atomics(const MappedPlace& place) const {
  const auto found = mapped_segments_.find(place);
  if (found == mapped_segments_.end()) return not_mapped("why no atomics", place);
  return found->second.region.why_no_atomics;
}

Result<void> Engine::unmap_segment(const MappedPlace& place) {
  const auto found = mapped_segments_.find(place);
  if (found == mapped_segments_.end()) return not_mapped("unmap segment", place);
  MappedSegment& mapped = found->second;
  if (mapped.count > 1) {
    --mapped.count;
    return {};
  }
  // Where there is no memory for it nothing has changed.
  if (mapped.own != nullptr) release(mapped.own);
  if (mapped.remote != nullptr) release(*peers_[place.rank], mapped.remote);
  mapped_segments_.erase(found);
  return {};
}

}  // namespace gigabar::fabric
