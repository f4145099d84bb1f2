// SPDX-License-Identifier: Apache-2.0
// A client of the NVIDIA resource manager: the ioctls of /dev/nvidiactl and /dev/nvidia<minor> that map GPU memory for the CPU.
// An ordinary user may do all of this wherever CUDA works. Nothing here guesses: every answer that does not fit is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/in_place.hpp"
#include "driver/rm/abi.hpp"
#include "gigabar/status.hpp"

namespace gigabar::rm {

// "NV_ERR_INVALID_ARGUMENT 0x1f".
std::string status_name(std::uint32_t status);

// Driver branch from a version text: 580 from "580.159.04"; 0 when it is none.
int branch_of(const std::string& driver_version);
// Oldest branch whose structures are known, and the newest that they were compared with.
inline constexpr int kOldestBranch = 515;
inline constexpr int kNewestComparedBranch = 610;

// A device as the resource manager sees it: the objects every memory handle and mapping hangs under.
struct Device {
  Handle device = 0;
  Handle subdevice = 0;
  std::uint32_t gpu_id = 0;
  std::uint32_t instance = 0;
  unsigned minor = 0;
};

// GPU memory mapped into this process.
struct CpuMapping {
  void* address = nullptr;
  std::size_t bytes = 0;
  std::uint64_t linear_address = 0;
  int descriptor = -1;
};

// Threads: any; the kernel serialises. A forked child must not use its parent's.
class ResourceManager : InPlace {
 public:
  // Opens <dev>/nvidiactl and makes a client. Errors: unavailable (no such file; driver_version is unknown, older than
  // kOldestBranch), no_permission, out_of_descriptors, device_error. A branch newer than kNewestComparedBranch is used, with an
  // info line in the log.
  static Result<std::unique_ptr<ResourceManager>> open(const std::string& device_folder, const std::string& driver_version);
  ~ResourceManager();

  const std::string& driver_version() const noexcept { return driver_version_; }

  // The device object of the GPU with that id (domain << 16 | bus << 8 | device), whose device file is nvidia<minor>. The resource
  // manager is asked for the instance of the id and then the object for its id; both must agree.
  // The file stays open as long as this: the driver gives the object only to a process that has it open, as one with a context of
  // CUDA has, and takes objects away when the last process closes it. Errors: verification_failed (they do not agree), unavailable
  // (no such file), no_permission, out_of_descriptors, device_error.
  Result<Device> open_device(std::uint32_t gpu_id, unsigned minor);
  void close_device(const Device& device) noexcept;

  // A handle of our own for memory of another client; it keeps the memory alive. Errors: device_error, no_permission.
  Result<Handle> duplicate(const Device& device, Handle source_client, Handle source_object);
  // The same for memory exported as a descriptor (VMM). Errors: not_supported (not exactly one object of video memory),
  // verification_failed (exported from another device), device_error.
  Result<Handle> import(const Device& device, int descriptor);
  // Whether two handles of this client are the same memory. Errors: not_supported (the driver cannot tell).
  Result<bool> are_same_memory(Handle first, Handle second);
  void free(Handle parent, Handle object) noexcept;

  // Maps `length_bytes` of the memory at `offset_bytes` (both multiples of the page). Errors: out_of_bar1, out_of_descriptors,
  // no_permission, out_of_memory, device_error.
  Result<CpuMapping> map(const Device& device, Handle memory, std::uint64_t offset_bytes, std::uint64_t length_bytes);
  void unmap(const Device& device, Handle memory, const CpuMapping& mapping) noexcept;

 private:
  ResourceManager(std::string device_folder, std::string driver_version, int control_descriptor) noexcept;
  Result<void> escape(const char* operation, unsigned number, void* argument, std::size_t bytes, const std::uint32_t& status);
  template <class Argument>
  Result<void> escape(const char* operation, unsigned number, Argument& argument) {
    return escape(operation, number, &argument, sizeof argument, argument.status);
  }
  // `bytes`: of the parameters, as far as the driver's branch has them.
  template <class Parameters>
  Result<void> control(const char* operation, Handle object, std::uint32_t command, Parameters& parameters,
                       std::size_t bytes = sizeof(Parameters)) {
    Control argument{client_, object, command, 0, reinterpret_cast<std::uintptr_t>(&parameters), static_cast<std::uint32_t>(bytes),
                     0};
    return escape(operation, kControl, argument);
  }
  Result<void> allocate(const char* operation, Handle parent, Handle& object, std::uint32_t object_class, void* parameters,
                        std::size_t bytes);
  Result<void> keep_device_file(unsigned minor);
  Result<void> check_device_identity(const Device& device);
  Handle new_handle() noexcept;

  const std::string device_folder_;
  const std::string driver_version_;
  const int control_descriptor_;
  const bool has_parameter_size_;
  const std::size_t export_info_bytes_;  // of ExportObjectInfo
  Handle client_ = 0;
  std::mutex mutex_;                      // of what follows
  std::map<unsigned, int> device_files_;  // by minor
};

}  // namespace gigabar::rm
