// SPDX-License-Identifier: Apache-2.0
// The part of the NVIDIA resource manager's ioctl interface that CPU mappings need: numbers and structures.
// Source: NVIDIA's open kernel modules (nvos.h, nv_escape.h, nv-ioctl-numbers.h, ctrl0000unix.h, ctrl0000gpu.h, ctrl0000client.h),
// whose published branches 545 to 610 agree on all of it; older ones differ in ExportObjectInfo, and 515 to 530 in Alloc (see
// there).
#pragma once

#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

namespace gigabar::rm {

using Handle = std::uint32_t;

// Escapes: ioctl numbers of type 'F', on the control descriptor unless said otherwise.
inline constexpr unsigned kFree = 0x29;
inline constexpr unsigned kControl = 0x2A;
inline constexpr unsigned kAlloc = 0x2B;
inline constexpr unsigned kDupObject = 0x34;
inline constexpr unsigned kMapMemory = 0x4E;
inline constexpr unsigned kUnmapMemory = 0x4F;
inline constexpr unsigned kRegisterFd = 201;  // on /dev/nvidia<minor>

constexpr unsigned long escape_request(unsigned number, std::size_t bytes) {
  return _IOC(_IOC_READ | _IOC_WRITE, 'F', number, bytes);
}

// Classes of objects.
inline constexpr std::uint32_t kClassRoot = 0x41;
inline constexpr std::uint32_t kClassDevice = 0x80;
inline constexpr std::uint32_t kClassSubdevice = 0x2080;

// Controls.
inline constexpr std::uint32_t kGetIdInfo = 0x202;             // on the client
inline constexpr std::uint32_t kObjectsAreDuplicates = 0xd07;  // on the client
inline constexpr std::uint32_t kGetExportObjectInfo = 0x3d08;  // on the client
inline constexpr std::uint32_t kImportObjectsFromFd = 0x3d0c;  // on the client
inline constexpr std::uint32_t kGetGpuId = 0x20800142;         // on a subdevice

// Statuses that need words of their own; an ioctl that returned 0 can still carry one of them.
inline constexpr std::uint32_t kOk = 0x00;
inline constexpr std::uint32_t kInsufficientResources = 0x1a;
inline constexpr std::uint32_t kInsufficientPermissions = 0x1b;
inline constexpr std::uint32_t kInvalidArgument = 0x1f;
inline constexpr std::uint32_t kNoMemory = 0x51;
inline constexpr std::uint32_t kNotSupported = 0x56;
inline constexpr std::uint32_t kObjectNotFound = 0x57;

// Before branch 535 there was no parameters_bytes, and status stood in its place (offset 24).
struct Alloc {
  Handle root;
  Handle parent;
  Handle object;  // in, or out when 0
  std::uint32_t object_class;
  std::uint64_t parameters;
  std::uint32_t parameters_bytes;
  std::uint32_t status;
};
static_assert(sizeof(Alloc) == 32);

struct Control {
  Handle client;
  Handle object;
  std::uint32_t command;
  std::uint32_t flags;
  std::uint64_t parameters;
  std::uint32_t parameters_bytes;
  std::uint32_t status;
};
static_assert(sizeof(Control) == 32);

struct Free {
  Handle root;
  Handle parent;
  Handle object;
  std::uint32_t status;
};
static_assert(sizeof(Free) == 16);

struct DupObject {
  Handle client;
  Handle parent;
  Handle object;
  Handle source_client;
  Handle source_object;
  std::uint32_t flags;
  std::uint32_t status;
};
static_assert(sizeof(DupObject) == 28);

struct MapMemory {
  Handle client;
  Handle device;
  Handle memory;
  std::uint32_t padding;
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;
  std::uint64_t linear_address;  // out: names the mapping to UnmapMemory
  std::uint32_t status;
  std::uint32_t flags;
  std::int32_t descriptor;
  std::uint32_t padding_end;
};
static_assert(sizeof(MapMemory) == 56);

struct UnmapMemory {
  Handle client;
  Handle device;
  Handle memory;
  std::uint32_t padding;
  std::uint64_t linear_address;
  std::uint32_t status;
  std::uint32_t flags;
};
static_assert(sizeof(UnmapMemory) == 32);

struct DeviceParameters {
  std::uint32_t device_instance;
  Handle client_share;
  Handle target_client;
  Handle target_device;
  std::uint32_t flags;
  std::uint32_t padding;
  std::uint64_t address_space[3];
  std::uint32_t address_mode;
  std::uint32_t padding_end;
};
static_assert(sizeof(DeviceParameters) == 56);

struct IdInfo {
  std::uint32_t gpu_id;
  std::uint32_t flags;
  std::uint32_t device_instance;
  std::uint32_t subdevice_instance;
  std::uint64_t name;
  std::uint32_t sli_status;
  std::uint32_t board_id;
  std::uint32_t gpu_instance;
  std::int32_t numa_id;
};
static_assert(sizeof(IdInfo) == 40);

struct ObjectsAreDuplicates {
  Handle first;
  Handle second;
  std::uint8_t are_duplicates;
  std::uint8_t padding[3];
};
static_assert(sizeof(ObjectsAreDuplicates) == 12);

// Before 545.23.06 there was no gpu_instance, and what follows stood in its place. The resource manager refuses any other size.
struct ExportObjectInfo {
  std::int32_t descriptor;
  std::uint32_t device_instance;
  std::uint32_t gpu_instance;
  std::uint16_t object_count;
  std::uint8_t metadata[64];
  std::uint8_t padding[2];
};
static_assert(sizeof(ExportObjectInfo) == 80);
inline constexpr std::size_t kExportObjectInfoBytesBefore545 = 76;

struct ImportObjects {
  std::int32_t descriptor;
  Handle parent;
  Handle objects[128];
  std::uint8_t types[128];
  std::uint16_t count;
  std::uint16_t index;
};
static_assert(sizeof(ImportObjects) == 652);
inline constexpr std::uint8_t kTypeVideoMemory = 1;

}  // namespace gigabar::rm
