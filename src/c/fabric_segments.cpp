// SPDX-License-Identifier: Apache-2.0
// Segments and notifications.
#include "c/fabric_handle.hpp"

using gigabar::c::enumerator;
using gigabar::c::fabric_at;
using gigabar::c::guarded;
using gigabar::c::object_at;
using gigabar::c::take;
using gigabar::c::timeout_of;

namespace {

static_assert(static_cast<int>(gigabar::MappedFor::cpu) == GIGABAR_MAPPED_FOR_CPU);

gigabar::MappedFor mapped_for_of(gigabar_mapped_for mapped_for, const char* function) {
  return enumerator<gigabar::MappedFor>(mapped_for, 2, function, "mapped_for");
}

}  // namespace

gigabar_status gigabar_segment_register(gigabar_fabric* fabric, uint16_t id, void* address, uint64_t bytes) {
  constexpr const char* kFunction = "gigabar_segment_register";
  return guarded(kFunction, [&] { take(fabric_at(fabric, kFunction).register_segment(id, address, bytes)); });
}

gigabar_status gigabar_segment_quiesce(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  constexpr const char* kFunction = "gigabar_segment_quiesce";
  return guarded(kFunction, [&] { take(fabric_at(fabric, kFunction).quiesce(id, timeout_of(timeout_ns, kFunction))); });
}

gigabar_status gigabar_segment_enable(gigabar_fabric* fabric, uint16_t id) {
  constexpr const char* kFunction = "gigabar_segment_enable";
  return guarded(kFunction, [&] { take(fabric_at(fabric, kFunction).enable(id)); });
}

gigabar_status gigabar_segment_deregister(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  constexpr const char* kFunction = "gigabar_segment_deregister";
  return guarded(kFunction, [&] { take(fabric_at(fabric, kFunction).deregister_segment(id, timeout_of(timeout_ns, kFunction))); });
}

gigabar_status gigabar_segment_remote_bytes(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                            uint64_t* bytes) {
  constexpr const char* kFunction = "gigabar_segment_remote_bytes";
  return guarded(kFunction, [&] {
    gigabar::Fabric& job = fabric_at(fabric, kFunction);
    uint64_t& result = object_at(bytes, kFunction, "bytes");
    result = take(job.remote_segment(rank, id, timeout_of(timeout_ns, kFunction))).bytes;
  });
}

gigabar_status gigabar_segment_map(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                   gigabar_mapped_for mapped_for, void** address) {
  constexpr const char* kFunction = "gigabar_segment_map";
  return guarded(kFunction, [&] {
    gigabar::Fabric& job = fabric_at(fabric, kFunction);
    void*& result = object_at(address, kFunction, "address");
    result = take(job.map_segment(rank, id, timeout_of(timeout_ns, kFunction), mapped_for_of(mapped_for, kFunction)));
  });
}

gigabar_status gigabar_segment_unmap(gigabar_fabric* fabric, uint32_t rank, uint16_t id, gigabar_mapped_for mapped_for) {
  constexpr const char* kFunction = "gigabar_segment_unmap";
  return guarded(kFunction,
                 [&] { take(fabric_at(fabric, kFunction).unmap_segment(rank, id, mapped_for_of(mapped_for, kFunction))); });
}

gigabar_status gigabar_notification_wait(gigabar_fabric* fabric, uint16_t segment, uint32_t first, uint32_t count,
                                         int64_t timeout_ns, uint32_t* id) {
  constexpr const char* kFunction = "gigabar_notification_wait";
  return guarded(kFunction, [&] {
    gigabar::Fabric& job = fabric_at(fabric, kFunction);
    uint32_t& result = object_at(id, kFunction, "id");
    result = take(job.notification_wait(segment, first, count, timeout_of(timeout_ns, kFunction)));
  });
}

gigabar_status gigabar_notification_wait_count(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t value,
                                               int64_t timeout_ns) {
  constexpr const char* kFunction = "gigabar_notification_wait_count";
  return guarded(kFunction, [&] {
    take(fabric_at(fabric, kFunction).notification_wait_count(segment, id, value, timeout_of(timeout_ns, kFunction)));
  });
}

gigabar_status gigabar_notification_reset(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t* previous) {
  constexpr const char* kFunction = "gigabar_notification_reset";
  return guarded(kFunction, [&] {
    gigabar::Fabric& job = fabric_at(fabric, kFunction);
    uint32_t& result = object_at(previous, kFunction, "previous");
    result = take(job.notification_reset(segment, id));
  });
}
