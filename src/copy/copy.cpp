// SPDX-License-Identifier: Apache-2.0
#include "gigabar/copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/names.hpp"
#include "base/uncancelled.hpp"
#include "copy/chooser.hpp"
#include "copy/readback/readback.hpp"
#include "mapping/access.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

std::string range_of(const Mapping& mapping, std::size_t offset_bytes, std::size_t bytes) {
  return text("offset ", offset_bytes, " +", bytes, " of the mapping of ", range_text(mapping.device_address(), mapping.bytes()));
}

template <class Value>
Result<void> publish_word(const Mapping& mapping, std::size_t flag_offset_bytes, Value value) try {
  if (!detail::may_copy(mapping, flag_offset_bytes, &value, sizeof value)) {
    return detail::refuse_copy("publish (flag)", mapping, flag_offset_bytes, &value, sizeof value);
  }
  if ((mapping.device_address() + flag_offset_bytes) % sizeof value != 0) {
    return make_error(Status::invalid_argument, "publish (flag)", range_of(mapping, flag_offset_bytes, sizeof value),
                      text("the flag's device address is not a multiple of ", sizeof value), "move the flag to an aligned offset");
  }
  detail::fence_stores();
  // One store instruction on every mapping type; for a cached mapping the release is what orders it.
  __atomic_store_n(reinterpret_cast<Value*>(mapping.address() + flag_offset_bytes), value, __ATOMIC_RELEASE);
  detail::fence_stores();
  return {};
} catch (...) {
  return error_of_exception("publish");
}

Result<CopyMethod> finished(CopyMethod method, Result<void> outcome) {
  if (!outcome) return std::move(outcome).error();
  return method;
}

}  // namespace

std::string_view name_of(CopyDirection direction) noexcept {
  constexpr std::array<std::string_view, 2> kNames{"to_device", "from_device"};
  return name_at(kNames, direction);
}

std::string_view name_of(CopyMethod method) noexcept {
  constexpr std::array<std::string_view, kCopyMethodCount> kNames{"cpu", "cpu_parallel", "copy_engine", "readback"};
  return name_at(kNames, method);
}

Result<void> detail::refuse_copy(std::string_view operation, const Mapping& mapping, std::size_t offset_bytes, const void* host,
                                 std::size_t bytes) try {
  const std::string name(operation);
  if (mapping.address() == nullptr) {
    return make_error(Status::invalid_argument, name, "mapping", "is empty: it was moved from", "use the mapping it was moved to");
  }
  if (!mapping.is_usable()) {
    return make_error(Status::foreign_process, name, range_of(mapping, offset_bytes, bytes),
                      "the mapping belongs to the process this one was forked from",
                      "map with inherit_on_fork, or map in the child after exec");
  }
  if (!mapping.covers(offset_bytes, bytes)) {
    return make_error(Status::out_of_range, name, range_of(mapping, offset_bytes, bytes),
                      offset_bytes > mapping.bytes()
                          ? text("the offset is ", counted(offset_bytes - mapping.bytes(), "byte"), " past the mapping's end")
                          : text("the range is ", counted(bytes - (mapping.bytes() - offset_bytes), "byte"),
                                 " longer than the rest of the mapping"),
                      text("stay within ", counted(mapping.bytes(), "byte"), ", or map a larger range"));
  }
  return make_error(Status::invalid_argument, name, text("host pointer for ", counted(bytes, "byte")),
                    host == nullptr ? "is null" : "is not usable", "pass host memory of that length");
} catch (...) {
  return error_of_exception("copy");
}

Result<void> fill(const Mapping& mapping, std::size_t offset_bytes, std::byte value, std::size_t bytes) {
  if (!detail::may_copy(mapping, offset_bytes, &value, bytes)) {
    return detail::refuse_copy("fill", mapping, offset_bytes, &value, bytes);
  }
  constexpr std::size_t kPatternBytes = 4096;
  alignas(64) std::byte pattern[kPatternBytes];
  std::memset(pattern, static_cast<int>(value), std::min(bytes, kPatternBytes));
  // After the first piece every one starts at a 64-byte line of the mapped side.
  std::size_t room_bytes = kPatternBytes - reinterpret_cast<std::uintptr_t>(mapping.address() + offset_bytes) % 64;
  while (bytes != 0) {
    const std::size_t piece_bytes = std::min(bytes, room_bytes);
    detail::store(mapping, offset_bytes, pattern, piece_bytes);
    offset_bytes += piece_bytes;
    bytes -= piece_bytes;
    room_bytes = kPatternBytes;
  }
  detail::fence_stores();
  return {};
}

Result<void> publish(const Mapping& mapping, std::size_t flag_offset_bytes, std::uint32_t value) {
  return publish_word(mapping, flag_offset_bytes, value);
}

Result<void> publish(const Mapping& mapping, std::size_t flag_offset_bytes, std::uint64_t value) {
  return publish_word(mapping, flag_offset_bytes, value);
}

namespace {

// The copy engine and the readback kernel go by the GPU's address, the CPU by the mapping, which keeps memory that was freed.
Result<CopyMethod> usable_method(CopyMethod method, bool is_required, MappedPlace place, std::size_t bytes) {
  if (method == CopyMethod::cpu || method == CopyMethod::cpu_parallel || bytes == 0) return method;
  const AtAddress found = memory_at_address(place.mapping);
  if (found == AtAddress::mapped) return method;
  if (!is_required) return CopyMethod::cpu;
  if (found == AtAddress::nothing && method == CopyMethod::copy_engine) return method;  // the driver says why it cannot
  return make_error(Status::invalid_argument, "copy", range_of(place.mapping, place.offset_bytes, bytes),
                    "the mapped memory was freed, or is another process's", "map what is there now, or leave the method open");
}

// By the copy engine, or by the readback kernel.
Result<void> copy_by_gpu(CopyMethod method, CopyDirection direction, MappedPlace place, void* host, std::size_t bytes) {
  const int device = place.mapping.device();
  const std::uintptr_t address = place.mapping.device_address() + place.offset_bytes;
  const bool is_store = direction == CopyDirection::to_device;
  if (method != CopyMethod::readback)
    return is_store ? engine_copy_to(device, address, host, bytes) : engine_copy_from(device, host, address, bytes);
  if (is_store) {
    return make_error(Status::not_supported, "copy", range_of(place.mapping, place.offset_bytes, bytes),
                      "the readback kernel copies from the device only", "use another method");
  }
  const auto readback = readback_of(device);
  if (!readback) return readback.error();
  return (*readback)->copy(address, host, bytes);
}

// By what is required, else by the best; then by the CPU alone where its threads cannot start, or the memory has left its address.
Result<CopyMethod> copy_by_best(CopyDirection direction, MappedPlace place, void* host, std::size_t bytes,
                                std::optional<CopyMethod> required) try {
  const Uncancelled uncancelled;
  const Mapping& mapping = place.mapping;
  const std::size_t offset_bytes = place.offset_bytes;
  const bool is_store = direction == CopyDirection::to_device;
  if (!detail::may_copy(mapping, offset_bytes, host, bytes)) [[unlikely]] {
    return detail::refuse_copy("copy", mapping, offset_bytes, host, bytes).error();
  }
  if (!is_store && !required && has_copied_by_readback(host, mapping, offset_bytes, bytes)) return CopyMethod::readback;
  auto usable =
      usable_method(required ? *required : choose_method(direction, mapping, host, bytes), required.has_value(), place, bytes);
  if (!usable) return usable;
  const CopyMethod method = *usable;
  const auto by_cpu = [&] {
    return is_store ? copy_to(mapping, offset_bytes, host, bytes) : copy_from(mapping, offset_bytes, host, bytes);
  };
  if (method == CopyMethod::cpu || bytes == 0) return finished(method, by_cpu());
  if (method != CopyMethod::cpu_parallel) return finished(method, copy_by_gpu(method, direction, place, host, bytes));
  Result<void> done =
      is_store ? copy_to_parallel(mapping, offset_bytes, host, bytes) : copy_from_parallel(mapping, offset_bytes, host, bytes);
  const bool could_not_start = done.status() == Status::out_of_memory || done.status() == Status::no_permission;
  if (required || !could_not_start) return finished(method, std::move(done));
  return finished(CopyMethod::cpu, by_cpu());
} catch (...) {
  return error_of_exception("copy");
}

}  // namespace

Result<CopyMethod> detail::copy_chosen(MappedPlace destination, const void* source, std::size_t bytes,
                                       std::optional<CopyMethod> required) {
  return copy_by_best(CopyDirection::to_device, destination, const_cast<void*>(source), bytes, required);
}

Result<CopyMethod> detail::copy_chosen(void* destination, MappedPlace source, std::size_t bytes,
                                       std::optional<CopyMethod> required) {
  return copy_by_best(CopyDirection::from_device, source, destination, bytes, required);
}

}  // namespace gigabar::inline v0
