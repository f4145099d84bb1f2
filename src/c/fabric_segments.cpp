// SPDX-License-Identifier: Apache-2.0
// Segments and notifications.
#include "c/fabric_handle.hpp"

using namespace gigabar;
using namespace gigabar::c;

namespace {

static_assert(static_cast<int>(MappedFor::cpu) == GIGABAR_MAPPED_FOR_CPU);

MappedFor mapped_for_of(gigabar_mapped_for mapped_for) { return enumerator<MappedFor>(mapped_for, 2, "mapped_for"); }

}  // namespace

gigabar_status gigabar_segment_register(gigabar_fabric* fabric, uint16_t id, void* address, uint64_t bytes) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.register_segment(id, address, bytes)); });
}

gigabar_status gigabar_segment_quiesce(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.quiesce(id, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_segment_enable(gigabar_fabric* fabric, uint16_t id) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.enable(id)); });
}

gigabar_status gigabar_segment_deregister(gigabar_fabric* fabric, uint16_t id, int64_t timeout_ns) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.deregister_segment(id, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_segment_remote_bytes(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                            uint64_t* bytes) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint64_t& result = object_at(bytes, "bytes");
    result = take(job.remote_segment(rank, id, timeout_of(timeout_ns))).bytes;
  });
}

gigabar_status gigabar_segment_map(gigabar_fabric* fabric, uint32_t rank, uint16_t id, int64_t timeout_ns,
                                   gigabar_mapped_for mapped_for, void** address) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    void*& result = object_at(address, "address");
    result = take(job.map_segment(rank, id, timeout_of(timeout_ns), mapped_for_of(mapped_for)));
  });
}

gigabar_status gigabar_segment_unmap(gigabar_fabric* fabric, uint32_t rank, uint16_t id, gigabar_mapped_for mapped_for) {
  return on_fabric(__func__, fabric, [&](Fabric& job) { take(job.unmap_segment(rank, id, mapped_for_of(mapped_for))); });
}

gigabar_status gigabar_notification_wait(gigabar_fabric* fabric, uint16_t segment, uint32_t first, uint32_t count,
                                         int64_t timeout_ns, uint32_t* id) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint32_t& result = object_at(id, "id");
    result = take(job.notification_wait(segment, first, count, timeout_of(timeout_ns)));
  });
}

gigabar_status gigabar_notification_wait_count(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t value,
                                               int64_t timeout_ns) {
  return on_fabric(__func__, fabric,
                   [&](Fabric& job) { take(job.notification_wait_count(segment, id, value, timeout_of(timeout_ns))); });
}

gigabar_status gigabar_notification_reset(gigabar_fabric* fabric, uint16_t segment, uint32_t id, uint32_t* previous) {
  return on_fabric(__func__, fabric, [&](Fabric& job) {
    uint32_t& result = object_at(previous, "previous");
    result = take(job.notification_reset(segment, id));
  });
}
