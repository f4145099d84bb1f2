// SPDX-License-Identifier: Apache-2.0
// Segments that this process's loads and stores, or its kernels, reach.
#include "base/errors.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {

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

Result<MappedSegment> Engine::make_mapping(const MappedPlace& place, LocalSegment* own, RemoteState* remote) const {
  MappedSegment mapped;
  mapped.own = own;
  mapped.remote = remote;
  const std::string name = text(segment_text(place.id), " of rank ", place.rank);
  if (own != nullptr) {
    if (Result<void> done = map_own(mapped, place.who, name); !done) return std::move(done).error();
    return mapped;
  }
  if (remote->region == nullptr) {
    return make_error(Status::not_supported, "map segment", name, remote->why_not, "use operations: they find another path");
  }
  auto region = place.who == MappedFor::cpu ? remote->region->map_for_cpu() : remote->region->map(gpu_ ? device_ : -1);
  if (!region) {
    Error error = std::move(region).error();
    edit(error).object = name;
    return error;
  }
  mapped.region = std::move(*region);
  return mapped;
}

Result<void*> Engine::map_segment(Lock& lock, const MappedPlace& place, const Timeout& timeout) {
  const auto one_more = [](MappedSegment& mapped) {
    ++mapped.count;
    return reinterpret_cast<void*>(mapped.region.address);
  };
  LocalSegment* own = nullptr;
  if (place.rank == job_.rank) {
    auto found = local_segment(place.id);
    if (!found) return std::move(found).error();
    own = *found;
  }
  if (const auto known = mapped_segments_.find(place); known != mapped_segments_.end()) return one_more(known->second);
  RemoteState* remote = nullptr;
  if (own == nullptr) {
    auto peer = ready_peer(lock, place.rank, timeout);
    if (!peer) return std::move(peer).error();
    auto found = remote_segment(lock, **peer, place.id, timeout);
    if (!found) return std::move(found).error();
    remote = *found;
    // Another thread may have mapped it while this one waited.
    if (const auto known = mapped_segments_.find(place); known != mapped_segments_.end()) return one_more(known->second);
  }
  auto mapped = make_mapping(place, own, remote);
  if (!mapped) return std::move(mapped).error();
  MappedSegment& made = mapped_segments_.emplace(place, std::move(*mapped)).first->second;
  if (own != nullptr) ++own->users;
  if (remote != nullptr) ++remote->users;
  return one_more(made);
}

namespace {

Error not_mapped(const char* operation, Rank rank, SegmentId id) {
  return make_error(Status::invalid_argument, operation, text(segment_text(id), " of rank ", rank), "it is not mapped",
                    "map it first");
}

}  // namespace

Result<std::string> Engine::why_no_atomics(const MappedPlace& place) const {
  const auto found = mapped_segments_.find(place);
  if (found == mapped_segments_.end()) return not_mapped("why no atomics", place.rank, place.id);
  return found->second.region.why_no_atomics;
}

Result<void> Engine::unmap_segment(const MappedPlace& place) {
  const auto found = mapped_segments_.find(place);
  if (found == mapped_segments_.end()) return not_mapped("unmap segment", place.rank, place.id);
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
