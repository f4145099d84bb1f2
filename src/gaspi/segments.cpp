// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "gaspi/process.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"

using namespace gigabar;
using namespace gigabar::gaspi;

namespace {

unsigned segment_count() {
  return static_cast<unsigned>(std::ranges::count_if(process().segments, [](const Segment& one) { return one.bytes != 0; }));
}

// Under the mutex, as everything here that makes or removes a segment.
gaspi_return_t check_new(gaspi_segment_id_t id, std::uint64_t bytes) {
  if (bytes == 0) return GASPI_ERR_INV_SEGSIZE;
  if (id >= kSegments || process().segments[id].bytes != 0) return GASPI_ERR_INV_SEG;
  return segment_count() < process().config.segment_max ? GASPI_SUCCESS : GASPI_ERR_MANY_SEG;
}

gaspi_return_t publish(gaspi_segment_id_t id, void* address, std::uint64_t bytes, const char* function) {
  Process& all = process();
  Segment& segment = all.segments[id];
  if (Result<void> registered = all.fabric->register_segment(id, address, bytes); !registered) {
    segment.memory = {};
    return code_of(registered.error(), function);
  }
  segment.address = address;
  segment.bytes.store(bytes, std::memory_order_release);
  return GASPI_SUCCESS;
}

// Memory of a GPU holds what was there before.
Result<void> clear(const DeviceMemory& memory) {
  constexpr std::size_t kPieceBytes = 1 << 20;
  auto mapping = map(memory.address(), memory.bytes());
  if (!mapping) return std::move(mapping).error();
  const std::vector<std::byte> zeros(std::min(memory.bytes(), kPieceBytes));
  for (std::size_t done = 0; done < memory.bytes(); done += zeros.size()) {
    const auto copied = copy({*mapping, done}, zeros.data(), std::min(zeros.size(), memory.bytes() - done));
    if (!copied) return Error(copied.error());
  }
  return {};
}

// Zeroed in any case.
gaspi_return_t allocate(gaspi_segment_id_t id, std::uint64_t bytes, gaspi_alloc_t policy, const char* function) {
  Process& all = process();
  if (const gaspi_return_t refused = check_new(id, bytes); refused != GASPI_SUCCESS) return refused;
  if ((policy & GASPI_MEM_GPU) != 0) {
    Result<DeviceMemory> memory = DeviceMemory::allocate(all.fabric->device(), bytes);
    if (!memory) return code_of(memory.error(), function);
    if (const Result<void> cleared = clear(*memory); !cleared) return code_of(cleared.error(), function);
    return publish(id, std::get<DeviceMemory>(all.segments[id].memory = std::move(*memory)).address(), bytes, function);
  }
  HostMemoryOptions options;
  options.pages = HostPages::pageable;
  options.is_shared = true;
  Result<HostMemory> memory = HostMemory::allocate(bytes, options);
  if (!memory) return code_of(memory.error(), function);
  return publish(id, std::get<HostMemory>(all.segments[id].memory = std::move(*memory)).address(), bytes, function);
}

gaspi_return_t bind(gaspi_segment_id_t id, void* pointer, std::uint64_t bytes, gaspi_memory_description_t description,
                    const char* function) {
  if (pointer == nullptr) return GASPI_ERR_NULLPTR;
  if (const gaspi_return_t refused = check_new(id, bytes); refused != GASPI_SUCCESS) return refused;
  if ((static_cast<unsigned>(description) & GASPI_MEM_GPU) != 0) {
    const Result<PointerInfo> info = describe(pointer);
    if (!info) return code_of(info.error(), function);
    if (info->kind == MemoryKind::host_pageable || info->kind == MemoryKind::host_pinned) return GASPI_ERR_DEVICE;
  }
  return publish(id, pointer, bytes, function);
}

// `make` makes the segment, unless the call goes on with one that it made before. Then waits for the group: after a time-out the
// same call comes here again.
template <class Make>
gaspi_return_t create(gaspi_segment_id_t id, const Creation& creation, gaspi_timeout_t timeout_ms, const char* function,
                      const Make& make) {
  Process& all = process();
  const Remaining time(timeout_of(timeout_ms));
  const Collective collective{Collective::Kind::create, id, creation.bytes, 0};
  {
    const std::scoped_lock lock(all.mutex);
    GroupState* group = find_group(creation.group);
    if (group == nullptr || !group->is_committed) return GASPI_ERR_INV_GROUP;
    if (id >= kSegments) return GASPI_ERR_INV_SEG;
    // Before anything is made. Where another thread is at the group, what it leaves is known later.
    const auto turn = lock_within(group->turn, Timeout::test());
    if (turn && is_held(*group, collective)) return GASPI_ERR_ACTIVE_COLL;
    if (all.segments[id].creation != creation) {
      if (const gaspi_return_t made = make(); made != GASPI_SUCCESS) return made;
      all.segments[id].creation = creation;
    }
  }
  const gaspi_return_t met = group_barrier(creation.group, collective, time.left(), function);
  if (met == GASPI_SUCCESS) {
    const std::scoped_lock lock(all.mutex);
    all.segments[id].creation.reset();
  }
  return met;
}

// Waits for the other ranks to leave it, without the mutex: until then the segment stays what it is.
gaspi_return_t delete_segment(gaspi_segment_id_t id) {
  Process& all = process();
  {
    const std::scoped_lock lock(all.mutex);
    if (!is_segment(id) || all.segments[id].is_going) return GASPI_ERR_INV_SEG;
    if (const gaspi_return_t refused = refuse_delete(id); refused != GASPI_SUCCESS) return refused;
    all.segments[id].is_going = true;
  }
  const Result<void> removed = all.fabric->deregister_segment(id, timeout_of(all.config.sn_timeout));
  const std::scoped_lock lock(all.mutex);
  Segment& segment = all.segments[id];
  segment.is_going = false;
  all.has_left.notify_all();
  if (!removed) {
    const gaspi_return_t code = code_of(removed.error(), "gaspi_segment_delete");
    return code == GASPI_TIMEOUT ? GASPI_ERROR : code;
  }
  drop_awaited_reads(id);
  segment.clear();
  return GASPI_SUCCESS;
}

}  // namespace

gaspi_return_t pgaspi_segment_alloc(const gaspi_segment_id_t segment_id, const gaspi_size_t size,
                                    const gaspi_alloc_t alloc_policy) {
  return when_ready([&]() -> gaspi_return_t {
    const std::scoped_lock lock(process().mutex);
    return allocate(segment_id, size, alloc_policy, "gaspi_segment_alloc");
  });
}
GASPI_NAMED(gaspi_segment_alloc);

gaspi_return_t pgaspi_segment_bind(gaspi_segment_id_t const segment_id, gaspi_pointer_t const pointer, gaspi_size_t const size,
                                   gaspi_memory_description_t const memory_description) {
  return when_ready([&]() -> gaspi_return_t {
    const std::scoped_lock lock(process().mutex);
    return bind(segment_id, pointer, size, memory_description, "gaspi_segment_bind");
  });
}
GASPI_NAMED(gaspi_segment_bind);

gaspi_return_t pgaspi_segment_register(const gaspi_segment_id_t segment_id, const gaspi_rank_t rank,
                                       const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (!is_segment(segment_id)) return GASPI_ERR_INV_SEG;
    if (rank >= process().rank_count) return GASPI_ERR_INV_RANK;
    const Result<void> connected = process().fabric->connect(rank, timeout_of(timeout_ms));
    return connected ? GASPI_SUCCESS : code_of(connected.error(), "gaspi_segment_register");
  });
}
GASPI_NAMED(gaspi_segment_register);

gaspi_return_t pgaspi_segment_create(const gaspi_segment_id_t segment_id, const gaspi_size_t size, const gaspi_group_t group,
                                     const gaspi_timeout_t timeout_ms, const gaspi_alloc_t alloc_policy) {
  return when_ready([&] {
    return create(segment_id, {size, group, nullptr}, timeout_ms, "gaspi_segment_create",
                  [&] { return allocate(segment_id, size, alloc_policy, "gaspi_segment_create"); });
  });
}
GASPI_NAMED(gaspi_segment_create);

gaspi_return_t pgaspi_segment_use(gaspi_segment_id_t const segment_id, gaspi_pointer_t const pointer, gaspi_size_t const size,
                                  gaspi_group_t const group, gaspi_timeout_t const timeout_ms,
                                  gaspi_memory_description_t const memory_description) {
  return when_ready([&] {
    return create(segment_id, {size, group, pointer}, timeout_ms, "gaspi_segment_use",
                  [&] { return bind(segment_id, pointer, size, memory_description, "gaspi_segment_use"); });
  });
}
GASPI_NAMED(gaspi_segment_use);

gaspi_return_t pgaspi_segment_delete(const gaspi_segment_id_t segment_id) {
  return when_ready([&] { return delete_segment(segment_id); });
}
GASPI_NAMED(gaspi_segment_delete);

gaspi_return_t pgaspi_segment_num(gaspi_number_t* const segment_num) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  return store(segment_num, segment_count());
}
GASPI_NAMED(gaspi_segment_num);

gaspi_return_t pgaspi_segment_list(const gaspi_number_t num, gaspi_segment_id_t* const segment_id_list) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (segment_id_list == nullptr) return GASPI_ERR_NULLPTR;
  gaspi_number_t stored = 0;
  for (unsigned id = 0; id < kSegments && stored < num; ++id) {
    if (is_segment(static_cast<SegmentId>(id))) segment_id_list[stored++] = static_cast<gaspi_segment_id_t>(id);
  }
  return stored == num ? GASPI_SUCCESS : GASPI_ERR_INV_NUM;
}
GASPI_NAMED(gaspi_segment_list);

gaspi_return_t pgaspi_segment_ptr(const gaspi_segment_id_t segment_id, gaspi_pointer_t* const pointer) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  if (!is_segment(segment_id)) return GASPI_ERR_INV_SEG;
  if (pointer == nullptr) return GASPI_ERR_NULLPTR;
  *pointer = process().segments[segment_id].address;
  return GASPI_SUCCESS;
}
GASPI_NAMED(gaspi_segment_ptr);

gaspi_return_t pgaspi_segment_avail_local(gaspi_segment_id_t* const avail_seg_id) {
  if (!is_ready()) return GASPI_ERR_NOINIT;
  for (unsigned id = 0; id < kSegments; ++id) {
    if (!is_segment(static_cast<SegmentId>(id))) return store(avail_seg_id, id);
  }
  return GASPI_ERR_MANY_SEG;
}
GASPI_NAMED(gaspi_segment_avail_local);

gaspi_return_t pgaspi_segment_size(const gaspi_segment_id_t segment_id, const gaspi_rank_t rank, gaspi_size_t* const size) {
  return when_ready([&]() -> gaspi_return_t {
    Process& all = process();
    if (rank >= all.rank_count) return GASPI_ERR_INV_RANK;
    if (segment_id >= kSegments) return GASPI_ERR_INV_SEG;
    if (size == nullptr) return GASPI_ERR_NULLPTR;
    const auto remote = all.fabric->remote_segment(rank, segment_id, timeout_of(all.config.sn_timeout));
    if (remote.status() == Status::out_of_range) return GASPI_ERR_INV_SEG;
    if (!remote) return code_of(remote.error(), "gaspi_segment_size");
    return store(size, remote->bytes);
  });
}
GASPI_NAMED(gaspi_segment_size);
