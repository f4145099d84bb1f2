// SPDX-License-Identifier: Apache-2.0
// Devices, memory, mappings and copies.
#include "gigabar/mapping.h"

#include <optional>

#include "c/call.hpp"
#include "c/json.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"

struct gigabar_memory {
  gigabar::DeviceMemory memory;
};
struct gigabar_mapping {
  gigabar::Mapping mapping;
};
struct gigabar_batch {
  explicit gigabar_batch(const gigabar::Mapping& mapping) noexcept : batch(mapping) {}
  gigabar::Batch batch;
};

using namespace gigabar;
using namespace gigabar::c;

namespace {

static_assert(static_cast<int>(DeviceAllocator::vmm) == GIGABAR_ALLOCATOR_VMM);
static_assert(static_cast<int>(MappingBackend::gdrdrv) == GIGABAR_BACKEND_GDRDRV);
static_assert(static_cast<int>(MappingBackend::rm) == GIGABAR_BACKEND_RM);
static_assert(static_cast<int>(MappingBackend::host) == GIGABAR_BACKEND_HOST);
static_assert(static_cast<int>(MappingType::uncached) == GIGABAR_UNCACHED);
static_assert(static_cast<int>(MappingType::cached) == GIGABAR_CACHED);
static_assert(static_cast<int>(Verification::nonce) == GIGABAR_VERIFY_NONCE);
static_assert(static_cast<int>(CopyMethod::cpu_parallel) == GIGABAR_COPY_CPU_PARALLEL);
static_assert(static_cast<int>(CopyMethod::copy_engine) == GIGABAR_COPY_ENGINE);
static_assert(static_cast<int>(CopyMethod::readback) == GIGABAR_COPY_READBACK);

MapOptions options_of(const gigabar_map_options* options) {
  const Fields fields(options, GIGABAR_MAP_BACKEND | GIGABAR_MAP_VERIFICATION | GIGABAR_MAP_INHERIT_ON_FORK, "options");
  MapOptions result;
  if (const auto* backend = fields.find(GIGABAR_MAP_BACKEND, &gigabar_map_options::backend)) {
    result.backend = enumerator<MappingBackend>(*backend, 4, "options->backend");
  }
  if (const auto* verification = fields.find(GIGABAR_MAP_VERIFICATION, &gigabar_map_options::verification)) {
    result.verification = enumerator<Verification>(*verification, 2, "options->verification");
  }
  fields.read(GIGABAR_MAP_INHERIT_ON_FORK, &gigabar_map_options::inherit_on_fork, result.inherit_on_fork);
  return result;
}

std::optional<CopyMethod> method_of(gigabar_copy_method method) {
  if (method == GIGABAR_COPY_CHOOSE) return std::nullopt;
  return enumerator<CopyMethod>(method, kCopyMethodCount, "method");
}

void store_method(CopyMethod method, gigabar_copy_method* used) noexcept {
  if (used != nullptr) *used = static_cast<gigabar_copy_method>(method);
}

template <class Value>
gigabar_status publish(const char* function, gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes,
                       size_t flag_offset_bytes, Value value) noexcept {
  return guarded(function, [&] {
    const Mapping& target = object_at(mapping, "mapping").mapping;
    take(gigabar::publish(target, data_offset_bytes, source, bytes, flag_offset_bytes, value));
  });
}

}  // namespace

gigabar_status gigabar_device_count(int32_t* count) {
  return guarded(__func__, [&] {
    int32_t& result = object_at(count, "count");
    result = static_cast<int32_t>(take(gigabar::devices()).size());
  });
}

gigabar_status gigabar_device_describe(int32_t device, gigabar_device_info* info) {
  return guarded(__func__, [&] {
    Fields fields(&object_at(info, "info"), GIGABAR_DEVICE_ALL, "info");
    const std::vector<DeviceInfo> all = take(gigabar::devices());
    if (device < 0 || static_cast<std::size_t>(device) >= all.size()) {
      refuse("device", gigabar::text("there is no device ", device, " among ", all.size()),
             "pass a number below gigabar_device_count()'s");
    }
    const DeviceInfo& one = all[static_cast<std::size_t>(device)];
    fields.fill(GIGABAR_DEVICE_NAME, &gigabar_device_info::name, one.name);
    fields.fill(GIGABAR_DEVICE_IS_STAND_IN, &gigabar_device_info::is_stand_in, one.is_stand_in);
    fields.fill(GIGABAR_DEVICE_MEMORY_BYTES, &gigabar_device_info::memory_bytes, one.memory_bytes);
    if (!one.uuid.empty()) fields.fill(GIGABAR_DEVICE_UUID, &gigabar_device_info::uuid, one.uuid);
    if (one.pci) fields.fill(GIGABAR_DEVICE_PCI_ADDRESS, &gigabar_device_info::pci_address, one.pci->to_string());
    if (one.numa_node >= 0) fields.fill(GIGABAR_DEVICE_NUMA_NODE, &gigabar_device_info::numa_node, one.numa_node);
    if (one.bar1_bytes) fields.fill(GIGABAR_DEVICE_BAR1_BYTES, &gigabar_device_info::bar1_bytes, *one.bar1_bytes);
    if (one.bar1_used_bytes) {
      fields.fill(GIGABAR_DEVICE_BAR1_USED_BYTES, &gigabar_device_info::bar1_used_bytes, *one.bar1_used_bytes);
    }
    if (!one.is_stand_in) {
      fields.fill(GIGABAR_DEVICE_COMPUTE_CAPABILITY, &gigabar_device_info::compute_major, one.compute_major);
      fields.fill(GIGABAR_DEVICE_COMPUTE_CAPABILITY, &gigabar_device_info::compute_minor, one.compute_minor);
    }
    fields.finish();
  });
}

gigabar_status gigabar_memory_allocate(int32_t device, size_t bytes, gigabar_allocator allocator, gigabar_memory** memory) {
  return guarded(__func__, [&] {
    gigabar_memory*& result = object_at(memory, "memory");
    const auto kind = enumerator<DeviceAllocator>(allocator, 2, "allocator");
    result = new gigabar_memory{take(DeviceMemory::allocate(device, bytes, kind))};
  });
}

gigabar_status gigabar_memory_free(gigabar_memory* memory) {
  return guarded(__func__, [&] { delete &object_at(memory, "memory"); });
}

gigabar_status gigabar_memory_address(const gigabar_memory* memory, void** address) {
  return guarded(__func__, [&] {
    const DeviceMemory& block = object_at(memory, "memory").memory;
    object_at(address, "address") = block.address();
  });
}

gigabar_status gigabar_map(const void* address, size_t bytes, const gigabar_map_options* options, gigabar_mapping** mapping) {
  return guarded(__func__, [&] {
    gigabar_mapping*& result = object_at(mapping, "mapping");
    result = new gigabar_mapping{take(gigabar::map(address, bytes, options_of(options)))};
  });
}

gigabar_status gigabar_unmap(gigabar_mapping* mapping) {
  return guarded(__func__, [&] { delete &object_at(mapping, "mapping"); });
}

gigabar_status gigabar_mapping_describe(const gigabar_mapping* mapping, gigabar_mapping_info* info) {
  return guarded(__func__, [&] {
    const Mapping& one = object_at(mapping, "mapping").mapping;
    Fields fields(&object_at(info, "info"), GIGABAR_MAPPING_ALL, "info");
    fields.fill(GIGABAR_MAPPING_ADDRESS, &gigabar_mapping_info::address, one.address());
    fields.fill(GIGABAR_MAPPING_BYTES, &gigabar_mapping_info::bytes, one.bytes());
    fields.fill(GIGABAR_MAPPING_DEVICE_ADDRESS, &gigabar_mapping_info::device_address, one.device_address());
    fields.fill(GIGABAR_MAPPING_TYPE, &gigabar_mapping_info::type, one.type());
    fields.fill(GIGABAR_MAPPING_BACKEND, &gigabar_mapping_info::backend, one.backend());
    fields.fill(GIGABAR_MAPPING_DEVICE, &gigabar_mapping_info::device, one.device());
    fields.fill(GIGABAR_MAPPING_IS_STAND_IN, &gigabar_mapping_info::is_stand_in, one.is_stand_in());
    fields.fill(GIGABAR_MAPPING_IS_SHARED, &gigabar_mapping_info::is_shared, one.report().came_from_cache);
    fields.finish();
  });
}

gigabar_status gigabar_mapping_json(const gigabar_mapping* mapping, char** text) {
  return guarded(__func__, [&] {
    const Mapping& one = object_at(mapping, "mapping").mapping;
    char*& result = object_at(text, "text");
    result = new_text(json_of(Members{[&](const auto& put) {
      put("backend", name_of(one.backend()));
      put("type", name_of(one.type()));
      put("passed_over", one.report().passed_over);
    }}));
  });
}

gigabar_status gigabar_mapping_trim(size_t keep_bytes, size_t* released_bytes) {
  return guarded(__func__, [&] {
    const size_t released = gigabar::trim_mapping_cache(keep_bytes);
    if (released_bytes != nullptr) *released_bytes = released;
  });
}

gigabar_status gigabar_copy_to(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes) {
  return guarded(__func__, [&] { take(gigabar::copy_to(object_at(mapping, "mapping").mapping, offset_bytes, source, bytes)); });
}

gigabar_status gigabar_copy_from(const gigabar_mapping* mapping, size_t offset_bytes, void* destination, size_t bytes) {
  return guarded(__func__,
                 [&] { take(gigabar::copy_from(object_at(mapping, "mapping").mapping, offset_bytes, destination, bytes)); });
}

gigabar_status gigabar_fill(gigabar_mapping* mapping, size_t offset_bytes, uint8_t value, size_t bytes) {
  return guarded(__func__,
                 [&] { take(gigabar::fill(object_at(mapping, "mapping").mapping, offset_bytes, std::byte{value}, bytes)); });
}

gigabar_status gigabar_fence(void) {
  gigabar::fence();
  return GIGABAR_OK;
}

gigabar_status gigabar_copy_to_by(gigabar_mapping* mapping, size_t offset_bytes, const void* source, size_t bytes,
                                  gigabar_copy_method method, gigabar_copy_method* used) {
  return guarded(__func__, [&] {
    const Mapping& target = object_at(mapping, "mapping").mapping;
    store_method(take(gigabar::copy({target, offset_bytes}, source, bytes, method_of(method))), used);
  });
}

gigabar_status gigabar_copy_from_by(const gigabar_mapping* mapping, size_t offset_bytes, void* destination, size_t bytes,
                                    gigabar_copy_method method, gigabar_copy_method* used) {
  return guarded(__func__, [&] {
    const Mapping& source = object_at(mapping, "mapping").mapping;
    store_method(take(gigabar::copy(destination, {source, offset_bytes}, bytes, method_of(method))), used);
  });
}

gigabar_status gigabar_publish32(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes,
                                 size_t flag_offset_bytes, uint32_t value) {
  return publish(__func__, mapping, data_offset_bytes, source, bytes, flag_offset_bytes, value);
}

gigabar_status gigabar_publish64(gigabar_mapping* mapping, size_t data_offset_bytes, const void* source, size_t bytes,
                                 size_t flag_offset_bytes, uint64_t value) {
  return publish(__func__, mapping, data_offset_bytes, source, bytes, flag_offset_bytes, value);
}

gigabar_status gigabar_batch_open(gigabar_mapping* mapping, gigabar_batch** batch) {
  return guarded(__func__, [&] {
    const Mapping& target = object_at(mapping, "mapping").mapping;
    gigabar_batch*& result = object_at(batch, "batch");  // before anything is made
    result = new gigabar_batch(target);
  });
}

gigabar_status gigabar_batch_copy_to(gigabar_batch* batch, size_t offset_bytes, const void* source, size_t bytes) {
  return guarded(__func__, [&] { take(object_at(batch, "batch").batch.copy_to(offset_bytes, source, bytes)); });
}

gigabar_status gigabar_batch_commit(gigabar_batch* batch) {
  return guarded(__func__, [&] { object_at(batch, "batch").batch.commit(); });
}

gigabar_status gigabar_batch_close(gigabar_batch* batch) {
  return guarded(__func__, [&] { delete &object_at(batch, "batch"); });
}
