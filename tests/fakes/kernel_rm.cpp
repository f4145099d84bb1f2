// SPDX-License-Identifier: Apache-2.0
// The resource manager behind /dev/nvidiactl and /dev/nvidia<minor>, as strict as the real one about who may do what.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fakes/state.hpp"

namespace gigabar::fake {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

enum : u32 {
  kOk = 0x00,
  kDuplicateName = 0x19,
  kInsufficientPermissions = 0x1b,
  kInvalidArgument = 0x1f,
  kInvalidClass = 0x22,
  kInvalidClient = 0x23,
  kInvalidCommand = 0x24,
  kInvalidObjectParent = 0x36,
  kInvalidParamStruct = 0x3a,
  kInvalidPointer = 0x3d,
  kNotSupported = 0x56,
  kObjectNotFound = 0x57,
  kStateInUse = 0x63,
};

constexpr u32 kClassClient = 0x41, kClassDevice = 0x80, kClassSubdevice = 0x2080, kClassMemory = 0x40;

struct FreeCall {
  u32 root, parent, object, status;
};
struct ControlCall {
  u32 client, object, command, flags;
  u64 parameters;
  u32 parameter_bytes, status;
};
struct AllocCall {
  u32 root, parent, object, object_class;
  u64 parameters;
  u32 parameter_bytes, status;
};
struct OldAllocCall {
  u32 root, parent, object, object_class;
  u64 parameters;
  u32 status, padding;
};  // before branch 535
struct DupCall {
  u32 client, parent, object, source_client, source_object, flags, status;
};
struct MapCall {
  u32 client, device, memory, padding;
  u64 offset, bytes, linear_address;
  u32 status, flags;
  int descriptor;
  u32 padding2;
};
struct UnmapCall {
  u32 client, device, memory, padding;
  u64 linear_address;
  u32 status, flags;
};
struct DeviceParameters {
  u32 instance, client_share, target_client, target_device, flags, padding;
  u64 va[3];
  u32 va_mode, padding2;
};
struct GpuIdInfo {
  u32 gpu_id, flags, device_instance, subdevice_instance;
  u64 name;
  u32 sli, board, gpu_instance;
  int numa_node;
};
struct ExportInfo {
  int descriptor;
  u32 device_instance, gpu_instance;
  u16 most_objects;
  u8 metadata[64];
};
struct OldExportInfo {
  int descriptor;
  u32 device_instance;
  u16 most_objects;
  u8 metadata[64];
};  // before branch 545
struct ImportCall {
  int descriptor;
  u32 parent;
  u32 objects[128];
  u8 types[128];
  u16 object_count, index;
};
struct DuplicatesCall {
  u32 first, second;
  u8 are_duplicates;
};
static_assert(sizeof(FreeCall) == 16 && sizeof(ControlCall) == 32 && sizeof(AllocCall) == 32 && sizeof(DupCall) == 28);
static_assert(sizeof(MapCall) == 56 && sizeof(UnmapCall) == 32 && sizeof(DeviceParameters) == 56 && sizeof(GpuIdInfo) == 40);
static_assert(sizeof(ExportInfo) == 80 && sizeof(OldExportInfo) == 76 && sizeof(ImportCall) == 652 && sizeof(DuplicatesCall) == 12);

bool is_before_branch(int branch) { return std::atoi(state().machine.driver_version) < branch; }

const Gpu* gpu_with_instance(u32 instance, int* index) {
  for (u32 gpu = 0; gpu < state().machine.gpu_count; ++gpu) {
    if (state().machine.gpus[gpu].device_instance != instance) continue;
    *index = static_cast<int>(gpu);
    return &state().machine.gpus[gpu];
  }
  return nullptr;
}

// A client can be used through the descriptor that made it only.
RmClient* find_client(const File& file, u32 handle) {
  const auto place = state().clients.find(handle);
  return place != state().clients.end() && place->second.file_inode == file.inode ? &place->second : nullptr;
}

RmObject* find_object(RmClient& client, u32 handle, u32 object_class) {
  const auto place = client.objects.find(handle);
  return place != client.objects.end() && place->second.object_class == object_class ? &place->second : nullptr;
}

u32 alloc_object(RmClient& client, u32 client_handle, const AllocCall& call, bool has_parameter_bytes) {
  if (client.objects.contains(call.object) || call.object == client_handle) return kDuplicateName;
  const auto fits = [&](u32 bytes) { return call.parameters != 0 && (!has_parameter_bytes || call.parameter_bytes == bytes); };
  RmObject object;
  object.parent = call.parent;
  object.object_class = call.object_class;
  int gpu = 0;
  if (call.object_class == kClassDevice) {
    if (call.parent != client_handle) return kInvalidObjectParent;
    if (!fits(sizeof(DeviceParameters))) return kInvalidParamStruct;
    object.device_instance = reinterpret_cast<const DeviceParameters*>(call.parameters)->instance;
    if (gpu_with_instance(object.device_instance, &gpu) == nullptr) return kInvalidArgument;
    // The driver looks for the GPU's file among the descriptors of the process. CUDA has it open.
    const auto is_its_file = [&](const auto& entry) {
      return entry.second.kind == File::Kind::device && entry.second.gpu == gpu && entry.second.opener == ::getpid();
    };
    if (state().initialised_in != ::getpid() && std::ranges::none_of(state().files, is_its_file)) return kInsufficientPermissions;
  } else if (call.object_class == kClassSubdevice) {
    const RmObject* device = find_object(client, call.parent, kClassDevice);
    if (device == nullptr) return kInvalidObjectParent;
    if (!fits(sizeof(u32))) return kInvalidParamStruct;
    if (*reinterpret_cast<const u32*>(call.parameters) != 0) return kInvalidArgument;
    object.device_instance = device->device_instance;
  } else {
    return kInvalidClass;
  }
  client.objects[call.object] = object;
  return kOk;
}

u32 alloc(const File& file, AllocCall& call, bool has_parameter_bytes) {
  if (call.object_class == kClassClient) {
    if (call.root != 0 || call.parent != 0) return kInvalidArgument;
    const u32 handle = state().next_client++;
    state().clients[handle].file_inode = file.inode;
    call.object = handle;
    return kOk;
  }
  RmClient* client = find_client(file, call.root);
  return client == nullptr ? u32{kInvalidClient} : alloc_object(*client, call.root, call, has_parameter_bytes);
}

u32 attached_ids(u32* ids) {
  for (u32 i = 0; i < 32; ++i) ids[i] = i < state().machine.gpu_count ? state().machine.gpus[i].gpu_id : 0xffffffff;
  return kOk;
}

u32 gpu_id_info(GpuIdInfo& info) {
  for (u32 gpu = 0; gpu < state().machine.gpu_count; ++gpu) {
    const Gpu& candidate = state().machine.gpus[gpu];
    if (candidate.gpu_id != info.gpu_id) continue;
    info.device_instance = candidate.told_instance;
    info.subdevice_instance = 0;
    info.numa_node = candidate.numa_node;
    return kOk;
  }
  return kInvalidArgument;
}

const File* find_export(int descriptor) {
  const File* file = find_file(descriptor);
  return file != nullptr && file->kind == File::Kind::vmm_export ? file : nullptr;
}

template <class Info>
u32 export_info(void* parameters) {
  auto& info = *static_cast<Info*>(parameters);
  const File* file = find_export(info.descriptor);
  if (file == nullptr) return kInvalidArgument;
  info.device_instance = state().machine.gpus[file->gpu].told_instance;
  if constexpr (requires { info.gpu_instance; }) info.gpu_instance = 0xffffffff;
  info.most_objects = 1;
  return kOk;
}

u32 import_object(RmClient& client, ImportCall& call) {
  const File* file = find_export(call.descriptor);
  const RmObject* device = find_object(client, call.parent, kClassDevice);
  if (file == nullptr || call.object_count != 1 || call.index != 0) return kInvalidArgument;
  if (device == nullptr) return kObjectNotFound;
  if (call.objects[0] == 0) {
    u32 handle = 0xfe000001;
    while (client.objects.contains(handle)) ++handle;
    call.objects[0] = handle;
  }
  if (client.objects.contains(call.objects[0])) return kDuplicateName;
  client.objects[call.objects[0]] = {call.parent, kClassMemory, device->device_instance, file->block};
  call.types[0] = 1;  // video memory
  ++state().totals.total_rm_dups;
  return kOk;
}

u32 are_duplicates(RmClient& client, DuplicatesCall& call) {
  const RmObject* first = find_object(client, call.first, kClassMemory);
  const RmObject* second = find_object(client, call.second, kClassMemory);
  if (first == nullptr || second == nullptr) return kObjectNotFound;
  call.are_duplicates = first->block == second->block;
  return kOk;
}

u32 gpu_id_of_subdevice(const RmObject& subdevice, u32* gpu_id) {
  int gpu = 0;
  *gpu_id = gpu_with_instance(subdevice.device_instance, &gpu)->told_gpu_id;
  return kOk;
}

u32 control(const File& file, ControlCall& call) {
  RmClient* client = find_client(file, call.client);
  if (client == nullptr) return kInvalidClient;
  if (call.parameters == 0) return kInvalidPointer;
  auto* parameters = reinterpret_cast<void*>(call.parameters);
  const auto sized = [&](std::size_t bytes) { return call.parameter_bytes == bytes; };
  if (call.command == 0x20800142) {
    const RmObject* subdevice = find_object(*client, call.object, kClassSubdevice);
    if (subdevice == nullptr) return kObjectNotFound;
    return sized(4) ? gpu_id_of_subdevice(*subdevice, static_cast<u32*>(parameters)) : u32{kInvalidParamStruct};
  }
  if (call.object != call.client) return kObjectNotFound;
  switch (call.command) {
    case 0x201: return sized(128) ? attached_ids(static_cast<u32*>(parameters)) : u32{kInvalidParamStruct};
    case 0x202: return sized(sizeof(GpuIdInfo)) ? gpu_id_info(*static_cast<GpuIdInfo*>(parameters)) : u32{kInvalidParamStruct};
    case 0xd07:
      return sized(sizeof(DuplicatesCall)) ? are_duplicates(*client, *static_cast<DuplicatesCall*>(parameters))
                                           : u32{kInvalidParamStruct};
    case 0x3d07: return kNotSupported;
    case 0x3d08:
      if (is_before_branch(545))
        return sized(sizeof(OldExportInfo)) ? export_info<OldExportInfo>(parameters) : u32{kInvalidParamStruct};
      return sized(sizeof(ExportInfo)) ? export_info<ExportInfo>(parameters) : u32{kInvalidParamStruct};
    case 0x3d0c:
      return sized(sizeof(ImportCall)) ? import_object(*client, *static_cast<ImportCall*>(parameters)) : u32{kInvalidParamStruct};
    default: return kInvalidCommand;
  }
}

// The source belongs to CUDA's own client, or to another of this process.
BlockRef find_memory(u32 client_handle, u32 object) {
  if (client_handle == kCudaClient) {
    const auto place = state().cuda_objects.find(object);
    return place == state().cuda_objects.end() ? nullptr : place->second.lock();
  }
  const auto client = state().clients.find(client_handle);
  if (client == state().clients.end()) return nullptr;
  const RmObject* memory = find_object(client->second, object, kClassMemory);
  return memory == nullptr ? nullptr : memory->block;
}

u32 duplicate(const File& file, DupCall& call) {
  RmClient* client = find_client(file, call.client);
  if (client == nullptr) return kInvalidClient;
  const RmObject* device = find_object(*client, call.parent, kClassDevice);
  if (device == nullptr) return kObjectNotFound;
  if (call.object == 0) {
    call.object = 0xfd000001;
    while (client->objects.contains(call.object)) ++call.object;
  }
  if (client->objects.contains(call.object)) return kDuplicateName;
  const BlockRef block = find_memory(call.source_client, call.source_object);
  if (block == nullptr) return kObjectNotFound;
  // Under the device of another GPU this succeeds, and shows that GPU's memory: as seen on real machines.
  client->objects[call.object] = {call.parent, kClassMemory, device->device_instance, block};
  ++state().totals.total_rm_dups;
  return kOk;
}

bool has_room_in_bar1(int gpu, u64 bytes) {
  u64 used = 0;
  for (const auto& [linear, mapping] : state().mappings) used += mapping.gpu == gpu ? mapping.bytes : 0;
  const u64 most = state().machine.gpus[gpu].bar1_bytes;
  return bytes <= most && used <= most - bytes;
}

u32 map_memory(const File& file, MapCall& call) {
  RmClient* client = find_client(file, call.client);
  if (client == nullptr) return kInvalidClient;
  const RmObject* device = find_object(*client, call.device, kClassDevice);
  const RmObject* memory = find_object(*client, call.memory, kClassMemory);
  if (device == nullptr || memory == nullptr) return kObjectNotFound;
  File* target = find_file(call.descriptor);
  int gpu = 0;
  gpu_with_instance(memory->device_instance, &gpu);
  if (target == nullptr || target->kind != File::Kind::device || !target->is_registered) return kInvalidArgument;
  if (target->gpu != gpu || memory->parent != call.device) return kInvalidArgument;  // minor and instance do not belong together
  if (target->has_mapping) return kStateInUse;
  if (call.flags != 0 || call.bytes == 0 || call.offset % kHostPage != 0 || call.bytes % kHostPage != 0) return kInvalidArgument;
  if (call.offset > memory->block->bytes || call.bytes > memory->block->bytes - call.offset) return kInvalidArgument;
  if (!has_room_in_bar1(gpu, call.bytes)) return state().machine.bar1_status;
  call.linear_address = state().next_linear_address;
  state().next_linear_address += round_up(call.bytes, kBlockBytes);
  state().mappings[call.linear_address] = {call.client, call.device, call.memory, gpu, call.bytes, memory->block};
  target->has_mapping = true;
  target->block = memory->block;
  target->bytes = call.bytes;
  target->offset = call.linear_address;
  target->physical_offset = memory->block->offset + call.offset;
  ++state().totals.total_rm_maps;
  return kOk;
}

u32 unmap_memory(const File& file, UnmapCall& call) {
  if (find_client(file, call.client) == nullptr) return kInvalidClient;
  const auto place = state().mappings.find(call.linear_address);
  if (place == state().mappings.end() || place->second.memory != call.memory || place->second.device != call.device)
    return kObjectNotFound;
  for (const auto& [address, window] : state().windows) {
    if (window.linear_address == call.linear_address) note_violation("UNMAP_MEMORY before the window was unmapped");
  }
  state().mappings.erase(place);
  return kOk;
}

void free_tree(RmClient& client, u32 client_handle, u32 object) {
  for (auto place = client.objects.begin(); place != client.objects.end();) {
    if (place->second.parent != object) {
      ++place;
      continue;
    }
    free_tree(client, client_handle, place->first);
    place = client.objects.begin();
  }
  std::erase_if(state().mappings, [&](const auto& entry) {
    const bool is_mapped = entry.second.client == client_handle && entry.second.memory == object;
    if (is_mapped) note_violation("RM memory object freed while it was mapped");
    return is_mapped;
  });
  client.objects.erase(object);
}

u32 free_object(const File& file, const FreeCall& call) {
  RmClient* client = find_client(file, call.root);
  if (client == nullptr) return kInvalidClient;
  if (call.object == call.root) {
    state().clients.erase(call.root);
    return kOk;
  }
  if (!client->objects.contains(call.object)) return kObjectNotFound;
  free_tree(*client, call.root, call.object);
  return kOk;
}

int register_descriptor(File& file, const void* argument) {
  const File* control_file = find_file(*static_cast<const int*>(argument));
  if (file.kind != File::Kind::device || control_file == nullptr || control_file->kind != File::Kind::control ||
      file.is_registered) {
    errno = EINVAL;
    return -1;
  }
  file.is_registered = true;
  return 0;
}

template <class Structure, class Handler>
int answer(void* argument, const Handler& handler) {
  auto& call = *static_cast<Structure*>(argument);
  call.status = handler(call);
  return 0;
}

}  // namespace

int rm_ioctl(File& file, unsigned long request, void* argument) {
  const std::size_t grown = state().machine.has_other_rm_structs ? 8 : 0;
  const auto is_call = [&](unsigned number, std::size_t bytes) {
    return _IOC_NR(request) == number && _IOC_SIZE(request) == bytes + grown;
  };
  if (file.opener != ::getpid()) note_violation("an RM call on a descriptor of another process");
  if (_IOC_TYPE(request) == 'F' && argument != nullptr) {
    if (is_call(201, sizeof(int))) return register_descriptor(file, argument);
    if (file.kind == File::Kind::control) {
      if (is_call(0x29, sizeof(FreeCall))) return answer<FreeCall>(argument, [&](auto& call) { return free_object(file, call); });
      if (is_call(0x2A, sizeof(ControlCall))) return answer<ControlCall>(argument, [&](auto& call) { return control(file, call); });
      if (is_call(0x2B, sizeof(AllocCall)) && is_before_branch(535)) {
        return answer<OldAllocCall>(argument, [&](auto& call) {
          AllocCall modern{call.root, call.parent, call.object, call.object_class, call.parameters, 0, 0};
          const u32 status = alloc(file, modern, false);
          call.object = modern.object;
          return status;
        });
      }
      if (is_call(0x2B, sizeof(AllocCall))) return answer<AllocCall>(argument, [&](auto& call) { return alloc(file, call, true); });
      if (is_call(0x34, sizeof(DupCall))) return answer<DupCall>(argument, [&](auto& call) { return duplicate(file, call); });
      if (is_call(0x4E, sizeof(MapCall))) return answer<MapCall>(argument, [&](auto& call) { return map_memory(file, call); });
      if (is_call(0x4F, sizeof(UnmapCall)))
        return answer<UnmapCall>(argument, [&](auto& call) { return unmap_memory(file, call); });
    }
  }
  errno = EINVAL;
  return -1;
}

void close_rm_file(const File& file) {
  std::erase_if(state().clients, [&](const auto& entry) {
    if (entry.second.file_inode != file.inode) return false;
    std::erase_if(state().mappings, [&](const auto& mapping) { return mapping.second.client == entry.first; });
    return true;
  });
}

void* mmap_device(File& file, void* hint, std::size_t bytes, int protection, int flags, off_t offset) {
  if (!file.has_mapping || offset != 0 || bytes != file.bytes) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  Window window;
  window.linear_address = file.offset;
  window.block = file.block;
  const u64 shift = state().machine.is_rm_window_wrong ? kBlockBytes : 0;
  return open_window(hint, bytes, protection, flags, file.gpu, file.physical_offset + shift, window);
}

}  // namespace gigabar::fake
