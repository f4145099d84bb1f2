// SPDX-License-Identifier: Apache-2.0
// The C boundary: checks arguments, keeps exceptions inside, turns error records into errno values.
#pragma GCC visibility push(default)
#include "gdrapi.h"

#undef gdr_get_info
extern "C" {
// What gdr_get_info filled before GDRCopy 2.4. Programs still look the symbol up, so it keeps its first meaning.
struct GdrInfoV1 {
  uint64_t va;
  uint64_t mapped_size;
  uint32_t page_size;
  uint64_t tm_cycles;
  uint32_t cycles_per_ms;
  unsigned mapped : 1;
  unsigned wc_mapping : 1;
};
int gdr_get_info(gdr_t g, gdr_mh_t handle, GdrInfoV1* info);
}
#pragma GCC visibility pop

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/errors.hpp"
#include "copy/readback/readback.hpp"
#include "gdrapi/log.hpp"
#include "gdrapi/session.hpp"
#include "gdrapi/table.hpp"
#include "gigabar/copy.hpp"

namespace {

using gigabar::gdrapi::CopyGuard;
using gigabar::gdrapi::guarded;
using gigabar::gdrapi::is_logged;
using gigabar::gdrapi::Pin;
using gigabar::gdrapi::refuse;
using gigabar::gdrapi::Session;
using gigabar::gdrapi::Table;

static_assert(sizeof(GdrInfoV1) == offsetof(gdr_info_v2, mapping_type), "the old structure is the beginning of the new one");

// Logs what the table answered; it has no words of its own.
int answer(const char* function, int code) noexcept {
  if (code == 0 || !is_logged()) return code;
  const char* const sentence = strerrordesc_np(code);
  return refuse(code, function, sentence != nullptr ? sentence : "failed");
}

// An enumeration's number, for values that C programs pass and C++ has no name for.
template <class Enumeration>
unsigned number_of(const Enumeration& value) noexcept {
  static_assert(sizeof(Enumeration) == sizeof(unsigned));
  unsigned number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

int pin_buffer(const char* function, gdr_t g, unsigned long address, size_t bytes, uint32_t flags, gdr_mh_t* handle) noexcept {
  if (handle == nullptr) return refuse(EINVAL, function, "handle is null");
  return guarded(function, [&] {
    Session session;
    if (const int code = Table::instance().find(g, session); code != 0) return answer(function, code);
    auto pin = gigabar::gdrapi::make_pin(session, address, bytes, flags);
    if (!pin) return refuse(gigabar::gdrapi::errno_of(pin.status()), function, pin.error().message());
    return answer(function, Table::instance().insert(g, std::make_unique<const Pin>(std::move(pin).value()), *handle));
  });
}

int get_info(const char* function, gdr_t g, gdr_mh_t handle, gdr_info_v2_t& info) noexcept {
  return guarded(function, [&] { return answer(function, Table::instance().describe(g, handle, info)); });
}

int map(const char* function, gdr_t g, gdr_mh_t handle, void** va, size_t bytes, gdr_mapping_type_t required) noexcept {
  if (va == nullptr) return refuse(EINVAL, function, "va is null");
  return guarded(function, [&] { return answer(function, Table::instance().map(g, handle, bytes, required, *va)); });
}

// The part that both directions share; `copy` gets the mapping and the offset in it.
template <class Copy>
int copy_mapped(const char* function, gdr_mh_t handle, const void* mapped, const void* host, size_t bytes, Copy&& copy) noexcept {
  const CopyGuard guard(Table::instance(), handle);
  std::size_t offset_bytes = 0;
  if (const int code = guard.check(mapped, bytes, offset_bytes); code != 0) [[unlikely]] {
    return refuse(code, function, "the handle is not mapped in this process, or the range leaves its mapping");
  }
  if (bytes == 0) return 0;
  if (host == nullptr) [[unlikely]]
    return refuse(EINVAL, function, "h_ptr is null");
  copy(guard.mapping(), offset_bytes);
  return 0;
}

}  // namespace

gdr_t gdr_open(void) {
  gdr_t g = nullptr;
  const int code = guarded("gdr_open", [&] {
    const auto session = gigabar::gdrapi::open_session();
    if (!session) return refuse(gigabar::gdrapi::errno_of(session.status()), "gdr_open", session.error().message());
    g = Table::instance().open(session.value());
    return 0;
  });
  if (code != 0) errno = code;
  return g;
}

int gdr_close(gdr_t g) {
  return guarded("gdr_close", [&] { return answer("gdr_close", Table::instance().close(g)); });
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t* handle) {
  if (p2p_token != 0 || va_space != 0) return refuse(EINVAL, "gdr_pin_buffer", "persistent mappings have no tokens, pass 0 and 0");
  return pin_buffer("gdr_pin_buffer", g, addr, size, GDR_PIN_FLAG_DEFAULT, handle);
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t* handle) {
  return pin_buffer("gdr_pin_buffer_v2", g, addr, size, flags, handle);
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle) {
  return guarded("gdr_unpin_buffer", [&] { return answer("gdr_unpin_buffer", Table::instance().remove(g, handle)); });
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int* flag) {
  if (flag == nullptr) return refuse(EINVAL, "gdr_get_callback_flag", "flag is null");
  gdr_info_v2_t info;
  const int code = get_info("gdr_get_callback_flag", g, handle, info);
  if (code == 0) *flag = 0;
  return code;
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t* info) {
  if (info == nullptr) return refuse(EINVAL, "gdr_get_info_v2", "info is null");
  return get_info("gdr_get_info_v2", g, handle, *info);
}

int gdr_get_info(gdr_t g, gdr_mh_t handle, GdrInfoV1* info) {
  if (info == nullptr) return refuse(EINVAL, "gdr_get_info", "info is null");
  gdr_info_v2_t whole;
  const int code = get_info("gdr_get_info", g, handle, whole);
  if (code == 0) std::memcpy(info, &whole, sizeof *info);
  return code;
}

int gdr_map(gdr_t g, gdr_mh_t handle, void** va, size_t size) { return map("gdr_map", g, handle, va, size, GDR_MAPPING_TYPE_NONE); }

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void** va, size_t size, int flags) {
  auto required = GDR_MAPPING_TYPE_NONE;
  switch (flags) {
    case GDR_MAP_FLAG_DEFAULT: break;
    case GDR_MAP_FLAG_REQ_WC_MAPPING: required = GDR_MAPPING_TYPE_WC; break;
    case GDR_MAP_FLAG_REQ_CACHE_MAPPING: required = GDR_MAPPING_TYPE_CACHING; break;
    case GDR_MAP_FLAG_REQ_DEVICE_MAPPING: required = GDR_MAPPING_TYPE_DEVICE; break;
    default: return refuse(EINVAL, "gdr_map_v2", "unknown flags");
  }
  return map("gdr_map_v2", g, handle, va, size, required);
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void* va, size_t size) {
  return guarded("gdr_unmap", [&] { return answer("gdr_unmap", Table::instance().unmap(g, handle, va, size)); });
}

// The guard has checked what copy_to and copy_from check, so they cannot refuse.
int gdr_copy_to_mapping(gdr_mh_t handle, void* map_d_ptr, const void* h_ptr, size_t size) {
  return copy_mapped("gdr_copy_to_mapping", handle, map_d_ptr, h_ptr, size, [&](const gigabar::Mapping& mapping, size_t offset) {
    static_cast<void>(gigabar::copy_to(mapping, offset, h_ptr, size));
  });
}

int gdr_copy_from_mapping(gdr_mh_t handle, void* h_ptr, const void* map_d_ptr, size_t size) {
  return copy_mapped("gdr_copy_from_mapping", handle, map_d_ptr, h_ptr, size, [&](const gigabar::Mapping& mapping, size_t offset) {
    if (gigabar::has_copied_by_readback(h_ptr, mapping, offset, size)) return;  // where the user has asked for it
    static_cast<void>(gigabar::copy_from(mapping, offset, h_ptr, size));
  });
}

void gdr_runtime_get_version(int* major, int* minor) {
  if (major != nullptr) *major = GDR_API_MAJOR_VERSION;
  if (minor != nullptr) *minor = GDR_API_MINOR_VERSION;
}

int gdr_driver_get_version(gdr_t g, int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return refuse(EINVAL, "gdr_driver_get_version", "an output is null");
  return guarded("gdr_driver_get_version", [&] {
    Session session;
    const int code = Table::instance().find(g, session);
    if (code == 0) gdr_runtime_get_version(major, minor);
    return answer("gdr_driver_get_version", code);
  });
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int* v) {
  if (v == nullptr) return refuse(EINVAL, "gdr_get_attribute", "v is null");
  return guarded("gdr_get_attribute", [&] {
    Session session;
    if (const int code = Table::instance().find(g, session); code != 0) return answer("gdr_get_attribute", code);
    *v = 0;
    switch (number_of(attr)) {
      case GDR_ATTR_USE_PERSISTENT_MAPPING: *v = 1; return 0;
      case GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE: *v = session.has_coherent_link ? 0 : 1; return 0;
      case GDR_ATTR_USING_DMA_BUF_MMAP: *v = session.uses_dmabuf ? 1 : 0; return 0;
      default: return refuse(EINVAL, "gdr_get_attribute", "unknown attribute");
    }
  });
}

int gdr_get_mapping_type_string(gdr_mapping_type_t type, const char** s) {
  if (s == nullptr) return refuse(EINVAL, "gdr_get_mapping_type_string", "s is null");
  constexpr std::array kNames{"None", "Write Combining", "Caching", "Device"};
  static_assert(kNames.size() == GDR_MAPPING_TYPE_DEVICE + 1);
  const unsigned number = number_of(type);
  if (number >= kNames.size()) return refuse(EINVAL, "gdr_get_mapping_type_string", "unknown type");
  *s = kNames[number];
  return 0;
}
