// SPDX-License-Identifier: Apache-2.0
#include "driver/rm/resource_manager.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check_ids.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"
#include "driver/system_calls.hpp"

namespace gigabar::rm {
namespace {

Status status_of(std::uint32_t status) {
  switch (status) {
    case kInsufficientPermissions: return Status::no_permission;
    case kNotSupported: return Status::not_supported;
    default: return Status::device_error;
  }
}

NativeCode native_code(std::uint32_t status) { return {NativeDomain::resource_manager, status, status_name(status)}; }

Result<int> open_file(const std::string& path) {
  return open_device_file("open resource manager", path, "load the NVIDIA driver; in a container, pass " + path + " in",
                          check_id::kDriverLoaded);
}

}  // namespace

std::string status_name(std::uint32_t status) {
  const char* name = "NV_ERR";
  switch (status) {
    case kOk: name = "NV_OK"; break;
    case kInsufficientResources: name = "NV_ERR_INSUFFICIENT_RESOURCES"; break;
    case kInsufficientPermissions: name = "NV_ERR_INSUFFICIENT_PERMISSIONS"; break;
    case kInvalidArgument: name = "NV_ERR_INVALID_ARGUMENT"; break;
    case kNoMemory: name = "NV_ERR_NO_MEMORY"; break;
    case kNotSupported: name = "NV_ERR_NOT_SUPPORTED"; break;
    case kObjectNotFound: name = "NV_ERR_OBJECT_NOT_FOUND"; break;
    default: break;
  }
  return text(name, " ", hex_text(status));
}

int branch_of(const std::string& driver_version) {
  return parse_number<int>(std::string_view(driver_version).substr(0, driver_version.find('.')), 1, 99999).value_or(0);
}

ResourceManager::ResourceManager(std::string device_folder, std::string driver_version, int control_descriptor) noexcept
    : device_folder_(std::move(device_folder)),
      driver_version_(std::move(driver_version)),
      control_descriptor_(control_descriptor),
      has_parameter_size_(branch_of(driver_version_) >= 535),
      export_info_bytes_(branch_of(driver_version_) >= 545 ? sizeof(ExportObjectInfo) : kExportObjectInfoBytesBefore545) {}

Result<std::unique_ptr<ResourceManager>> ResourceManager::open(const std::string& device_folder,
                                                               const std::string& driver_version) {
  // The device file first: where there is no driver, that is the reason, not its version.
  const std::string path = device_folder + "/nvidiactl";
  const auto descriptor = open_file(path);
  if (!descriptor) return descriptor.error();
  Undo close([&] { system_calls().close(*descriptor); });
  const int branch = branch_of(driver_version);
  if (branch < kOldestBranch) {
    return make_error(
        Status::unavailable, "open resource manager", "driver " + (driver_version.empty() ? "?" : driver_version),
        branch == 0 ? std::string("its version cannot be read") : text("branches before ", kOldestBranch, " are not known"),
        branch == 0 ? "check /sys/module/nvidia/version and /proc/driver/nvidia/version" : "install a newer NVIDIA driver");
  }
  if (branch > kNewestComparedBranch) {
    log(LogLevel::info, text("resource manager: driver branch ", branch, " is newer than ", kNewestComparedBranch,
                             ", the newest whose interface was compared; every answer is checked"));
  }
  std::unique_ptr<ResourceManager> manager(new ResourceManager(device_folder, driver_version, *descriptor));
  close.call_off();
  if (Result<void> made = manager->allocate("make client", 0, manager->client_, kClassRoot, nullptr, 0); !made) {
    return std::move(made).error();
  }
  if (manager->client_ == 0) {
    return make_error(Status::device_error, "make client", path, "the resource manager answered with the null handle");
  }
  return manager;
}

ResourceManager::~ResourceManager() {
  if (client_ != 0) free(0, client_);
  for (const auto& [minor, descriptor] : device_files_) system_calls().close(descriptor);
  system_calls().close(control_descriptor_);
}

Result<void> ResourceManager::escape(const char* operation, unsigned number, void* argument, std::size_t bytes,
                                     const std::uint32_t& status) {
  if (call_device(control_descriptor_, escape_request(number, bytes), argument) != 0) {
    const int code = errno;
    return make_errno_error(code, operation, "resource manager", "ioctl " + hex_text(number));
  }
  if (status != kOk) {
    return make_error(status_of(status), operation, "resource manager", text("ioctl ", hex_text(number), " was refused"), {},
                      native_code(status));
  }
  return {};
}

Result<void> ResourceManager::allocate(const char* operation, Handle parent, Handle& object, std::uint32_t object_class,
                                       void* parameters, std::size_t bytes) {
  Alloc argument{client_, parent, object, object_class, reinterpret_cast<std::uintptr_t>(parameters), 0, 0};
  if (has_parameter_size_) argument.parameters_bytes = static_cast<std::uint32_t>(bytes);
  Result<void> made =
      escape(operation, kAlloc, &argument, sizeof argument, has_parameter_size_ ? argument.status : argument.parameters_bytes);
  if (made) object = argument.object;
  return made;
}

Handle ResourceManager::new_handle() noexcept {
  // Unique within the client, and outside the range from which the resource manager picks its own.
  static std::atomic<Handle> next{0xcaf00001};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Result<void> ResourceManager::check_device_identity(const Device& device) {
  std::uint32_t answered = 0;
  if (Result<void> asked = control("ask device for its id", device.subdevice, kGetGpuId, answered); !asked) return asked;
  if (answered == device.gpu_id) return {};
  return make_error(Status::verification_failed, "open device", text("gpu id ", hex_text(device.gpu_id)),
                    text("device instance ", device.instance, " is gpu id ", hex_text(answered)),
                    "mappings on this device are refused; please report driver version and GPU list");
}

Result<void> ResourceManager::keep_device_file(unsigned minor) {
  const std::lock_guard lock(mutex_);
  if (device_files_.contains(minor)) return {};
  const auto opened = open_file(text(device_folder_, "/nvidia", minor));
  if (!opened) return opened.error();
  Undo close([&] { system_calls().close(*opened); });
  device_files_.emplace(minor, *opened);
  close.call_off();
  return {};
}

Result<Device> ResourceManager::open_device(std::uint32_t gpu_id, unsigned minor) {
  // A process that has a context of CUDA has the file anyway: where it cannot be opened the answer below decides.
  Result<void> kept = keep_device_file(minor);
  Device device;
  device.gpu_id = gpu_id;
  device.minor = minor;
  IdInfo info{};
  info.gpu_id = gpu_id;
  if (Result<void> asked = control("find device instance", client_, kGetIdInfo, info); !asked) return std::move(asked).error();
  device.instance = info.device_instance;

  DeviceParameters parameters{};
  parameters.device_instance = device.instance;
  device.device = new_handle();
  if (Result<void> made = allocate("open device", client_, device.device, kClassDevice, &parameters, sizeof parameters); !made) {
    return kept ? std::move(made).error() : std::move(kept).error();
  }
  std::uint32_t subdevice_index = 0;
  device.subdevice = new_handle();
  Result<void> opened =
      allocate("open subdevice", device.device, device.subdevice, kClassSubdevice, &subdevice_index, sizeof subdevice_index);
  if (opened) opened = check_device_identity(device);
  if (!opened) {
    free(client_, device.device);  // and the subdevice under it
    return std::move(opened).error();
  }
  return device;
}

void ResourceManager::close_device(const Device& device) noexcept { free(client_, device.device); }

Result<Handle> ResourceManager::duplicate(const Device& device, Handle source_client, Handle source_object) {
  DupObject argument{client_, device.device, new_handle(), source_client, source_object, 0, 0};
  if (Result<void> done = escape("duplicate memory", kDupObject, argument); !done) return std::move(done).error();
  return argument.object;
}

Result<Handle> ResourceManager::import(const Device& device, int descriptor) {
  ExportObjectInfo info{};
  info.descriptor = descriptor;
  if (Result<void> asked = control("inspect exported memory", client_, kGetExportObjectInfo, info, export_info_bytes_); !asked) {
    return std::move(asked).error();
  }
  if (info.device_instance != device.instance) {
    return make_error(Status::verification_failed, "import memory", text("descriptor ", descriptor),
                      text("exported from device instance ", info.device_instance, ", expected ", device.instance));
  }
  ImportObjects argument{};
  argument.descriptor = descriptor;
  argument.parent = device.device;
  argument.objects[0] = new_handle();
  argument.types[0] = kTypeVideoMemory;
  argument.count = 1;
  if (Result<void> done = control("import memory", client_, kImportObjectsFromFd, argument); !done) return std::move(done).error();
  if (argument.count != 1 || argument.types[0] != kTypeVideoMemory) {
    free(device.device, argument.objects[0]);
    return make_error(Status::not_supported, "import memory", text("descriptor ", descriptor),
                      text("it holds ", argument.count, " objects, the first of type ", int{argument.types[0]},
                           "; one of video memory is needed"));
  }
  return argument.objects[0];
}

Result<bool> ResourceManager::are_same_memory(Handle first, Handle second) {
  ObjectsAreDuplicates argument{first, second, 0, {}};
  if (Result<void> asked = control("compare memory", client_, kObjectsAreDuplicates, argument); !asked)
    return std::move(asked).error();
  return argument.are_duplicates != 0;
}

void ResourceManager::free(Handle parent, Handle object) noexcept {
  Free argument{client_, parent, object, 0};
  // A handle that cannot be freed keeps GPU memory from returning: worth a warning, not an error of whoever let go of it.
  quietly([&] {
    if (Result<void> done = escape("free object", kFree, argument); !done) log(LogLevel::warning, done.message());
  });
}

Result<CpuMapping> ResourceManager::map(const Device& device, Handle memory, std::uint64_t offset_bytes,
                                        std::uint64_t length_bytes) {
  const SystemCalls& calls = system_calls();
  const std::string path = text(device_folder_, "/nvidia", device.minor);
  const auto opened = open_file(path);
  if (!opened) return opened.error();
  const int descriptor = *opened;
  Undo close([&] { calls.close(descriptor); });

  // The device file must know which client it serves before it can hold a mapping.
  int control_descriptor = control_descriptor_;
  if (calls.ioctl(descriptor, escape_request(kRegisterFd, sizeof control_descriptor), &control_descriptor) != 0) {
    const int code = errno;
    return make_errno_error(code, "register device file", path);
  }

  MapMemory argument{client_, device.device, memory, 0, offset_bytes, length_bytes, 0, 0, 0, descriptor, 0};
  Result<void> mapped = escape("map memory", kMapMemory, argument);
  if (!mapped) {
    Error error = std::move(mapped).error();
    if (argument.status == kInsufficientResources || argument.status == kNoMemory) {
      edit(error).status = Status::out_of_bar1;
      edit(error).cause = text("no room for ", counted(length_bytes, "byte"), " in the GPU's BAR1 aperture");
      edit(error).remedy = "unmap other ranges, map a smaller one, or enable a larger BAR1 (resizable BAR) in the firmware";
    }
    return error;
  }

  close.call_off();  // from here on unmap() does it

  // The offset is always 0: the resource manager tied the range to this descriptor.
  void* address = calls.mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const CpuMapping mapping{address, length_bytes, argument.linear_address, descriptor};
  if (address == MAP_FAILED) {
    const int code = errno;
    unmap(device, memory, CpuMapping{nullptr, length_bytes, argument.linear_address, descriptor});
    return make_errno_error(code, "map memory", path, "mmap of " + counted(length_bytes, "byte"),
                            code == ENOMEM ? "check the limits on address space and mappings (ulimit -v, vm.max_map_count)" : "");
  }
  return mapping;
}

void ResourceManager::unmap(const Device& device, Handle memory, const CpuMapping& mapping) noexcept {
  const SystemCalls& calls = system_calls();
  if (mapping.address != nullptr && calls.munmap(mapping.address, mapping.bytes) != 0) {
    quietly([&] {
      log(LogLevel::error, text("unmap memory: ", range_text(reinterpret_cast<std::uintptr_t>(mapping.address), mapping.bytes),
                                ": ", std::strerror(errno)));
    });
  }
  UnmapMemory argument{client_, device.device, memory, 0, mapping.linear_address, 0, 0};
  quietly([&] {
    if (Result<void> done = escape("unmap memory", kUnmapMemory, argument); !done) log(LogLevel::warning, done.message());
  });
  calls.close(mapping.descriptor);
}

}  // namespace gigabar::rm
