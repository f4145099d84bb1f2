// SPDX-License-Identifier: Apache-2.0
// GDRCopy's kernel module behind /dev/gdrdrv, versions 2.0 to 2.6.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fakes/state.hpp"

namespace gigabar::fake {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u64 kGpuPage = 64 * kKiB;
constexpr u32 kWriteCombined = 1, kCached = 2, kDevice = 3;

struct PinCall {
  u64 address, bytes, token;
  u32 va_space, padding;
  u64 handle;
};
struct PinV2Call {
  u64 address, bytes;
  u32 flags, padding;
  u64 handle;
};
struct UnpinCall {
  u64 handle;
};
struct CallbackCall {
  u64 handle;
  u32 flag, padding;
};
struct InfoCall {
  u64 handle, address, mapped_bytes;
  u32 page_bytes, tsc_khz;
  u64 tm_cycles;
  u32 is_mapped, is_write_combined;
};
struct InfoV2Call {
  u64 handle, address, mapped_bytes;
  u32 page_bytes, tsc_khz;
  u64 tm_cycles;
  u32 mapping_type, padding;
};
struct AttributeCall {
  u32 attribute, value;
};
struct MappingTypeCall {
  u64 handle;
  u32 mapping_type, padding;
};
struct VersionCall {
  u32 driver, oldest_library;
};
static_assert(sizeof(PinCall) == 40 && sizeof(PinV2Call) == 32 && sizeof(InfoCall) == 48 && sizeof(InfoV2Call) == 48);

int fail(int error) {
  errno = error;
  return -1;
}

// Pages are pinned whole; all of them have to be device memory of one block.
int pin(File& file, Address address, u64 bytes, u32 flags, u64* handle) {
  if (bytes == 0 || flags > 1) return fail(EINVAL);
  const Address first = address / kGpuPage * kGpuPage;
  const u64 whole = round_up(address + bytes, kGpuPage) - first;
  u64 contiguous = 0;
  if (translate(first, &contiguous) == nullptr || whole > contiguous) return fail(EINVAL);
  const auto& [start, range] = *std::prev(state().ranges.upper_bound(first));
  Pin pinned;
  pinned.file_inode = file.inode;
  pinned.address = address;
  pinned.bytes = whole;
  pinned.block = range.block;
  pinned.gpu = range.block->gpu;
  pinned.physical_offset = range.block->offset + range.block_offset + (first - start);
  *handle = file.next_handle;
  file.next_handle += whole / kHostPage;
  state().pins[{file.inode, *handle}] = pinned;
  ++state().totals.total_gdrdrv_pins;
  return 0;
}

Pin* find_pin(const File& file, u64 handle) {
  const auto place = state().pins.find({file.inode, handle});
  return place == state().pins.end() ? nullptr : &place->second;
}

int unpin(const File& file, u64 handle) {
  const Pin* pinned = find_pin(file, handle);
  if (pinned == nullptr) {
    note_violation("gdrdrv: unpin of an unknown handle");
    return fail(EINVAL);
  }
  if (pinned->window != nullptr) note_violation("gdrdrv: unpin before the window was unmapped");
  state().pins.erase({file.inode, handle});
  return 0;
}

template <class Structure>
int fill_common(const Pin& pinned, Structure& info) {
  info.address = pinned.address;
  info.mapped_bytes = pinned.bytes;
  info.page_bytes = kGpuPage;
  info.tsc_khz = 2'000'000;
  info.tm_cycles = 0;
  return 0;
}

int request_mapping_type(Pin& pinned, u32 type) {
  if (type > kDevice) return fail(EINVAL);
  if (pinned.window != nullptr) return fail(EBUSY);
  if (type == kCached || type == kDevice) return fail(EOPNOTSUPP);
  pinned.mapping_type = type;
  return 0;
}

int get_attribute(AttributeCall& call) {
  if (call.attribute == 1) {
    call.value = state().machine.is_gdrdrv_persistent;
  } else if (call.attribute == 2) {
    call.value = 1;
  } else {
    return fail(EINVAL);
  }
  return 0;
}

// Which version brought each call; most encode a pointer's size, not the structure's.
u32 version_of(unsigned long request) {
  switch (request) {
    case 0xc028da01:
    case 0xc008da02:
    case 0xc008da03:
    case 0xc008da04:
    case 0xc008daff: return 0x20000;
    case 0xc008da05: return 0x20004;
    case 0xc008da06:
    case 0xc020da07:
    case 0xc008da08: return 0x20005;
    default: return UINT32_MAX;
  }
}

}  // namespace

int gdrdrv_ioctl(File& file, unsigned long request, void* argument) {
  if (file.opener != ::getpid()) return fail(EACCES);
  if (_IOC_TYPE(request) != 0xda) return fail(EINVAL);
  if (version_of(request) > state().machine.gdrdrv_version) return fail(ENOTTY);
  if (request == 0xc008daff) {
    *static_cast<VersionCall*>(argument) = {state().machine.gdrdrv_version, 0x20000};
    return 0;
  }
  if (request == 0xc028da01) {
    auto& call = *static_cast<PinCall*>(argument);
    return pin(file, call.address, call.bytes, 0, &call.handle);
  }
  if (request == 0xc020da07) {
    auto& call = *static_cast<PinV2Call*>(argument);
    return call.padding != 0 ? fail(EINVAL) : pin(file, call.address, call.bytes, call.flags, &call.handle);
  }
  if (request == 0xc008da06) return get_attribute(*static_cast<AttributeCall*>(argument));
  const u64 handle = *static_cast<const u64*>(argument);
  if (request == 0xc008da02) return unpin(file, handle);
  Pin* pinned = find_pin(file, handle);
  if (pinned == nullptr) {
    note_violation("gdrdrv: call with an unknown handle");
    return fail(EINVAL);
  }
  if (request == 0xc008da08) return request_mapping_type(*pinned, static_cast<MappingTypeCall*>(argument)->mapping_type);
  if (request == 0xc008da03) {
    static_cast<CallbackCall*>(argument)->flag = pinned->was_revoked;
    return 0;
  }
  const bool is_mapped = pinned->window != nullptr;
  if (request == 0xc008da04) {
    auto& info = *static_cast<InfoCall*>(argument);
    info.is_mapped = is_mapped;
    info.is_write_combined = is_mapped;
    return fill_common(*pinned, info);
  }
  auto& info = *static_cast<InfoV2Call*>(argument);
  info.mapping_type = is_mapped ? kWriteCombined : 0;
  return fill_common(*pinned, info);
}

void* mmap_gdrdrv(File& file, void* hint, std::size_t bytes, int protection, int flags, off_t offset) {
  const u64 handle = static_cast<u64>(offset) / kHostPage;
  Pin* pinned = find_pin(file, handle);
  const int refusal = file.opener != ::getpid() ? EACCES : EINVAL;
  if (refusal == EACCES || pinned == nullptr || pinned->was_revoked || pinned->address % kGpuPage != 0 || bytes > pinned->bytes ||
      bytes % kHostPage != 0) {
    errno = refusal;
    return MAP_FAILED;
  }
  if (pinned->window != nullptr) {
    note_violation("gdrdrv: handle mapped twice");
    errno = EINVAL;
    return MAP_FAILED;
  }
  Window window;
  window.pin_inode = file.inode;
  window.pin_handle = handle;
  window.block = pinned->block;
  void* address = open_window(hint, bytes, protection, flags, pinned->gpu, pinned->physical_offset, window);
  if (address == MAP_FAILED) return address;
  ::madvise(address, bytes, MADV_DONTFORK);
  pinned->window = address;
  return address;
}

void close_gdrdrv_file(const File& file) {
  std::erase_if(state().pins, [&](const auto& entry) { return entry.first.first == file.inode; });
}

// Without persistent mode cudaFree takes the pages away: the next access is SIGBUS.
void revoke_pins(const Block& block) {
  if (state().machine.is_gdrdrv_persistent) return;
  for (auto& [key, pinned] : state().pins) {
    if (pinned.block.get() != &block) continue;
    pinned.was_revoked = true;
    const auto window = state().windows.find(reinterpret_cast<Address>(pinned.window));
    if (window == state().windows.end()) continue;
    const int empty = ::memfd_create("gigabar-fake-revoked", MFD_CLOEXEC);
    ::mmap(pinned.window, window->second.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty, 0);
    ::close(empty);
  }
}

}  // namespace gigabar::fake
