// SPDX-License-Identifier: Apache-2.0
// The fake kernel: device files, their descriptors and their windows. Everything that is not a device file of a GPU goes to the
// real system calls.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "fakes/state.hpp"

namespace gigabar::fake {
namespace {

constexpr int kNotSupported = 524;  // ENOTSUPP of the Linux kernel, which <errno.h> does not have

int fail(int error) {
  errno = error;
  return -1;
}

std::optional<std::uint64_t> inode_of(int descriptor) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return {};
  return status.st_ino;
}

void close_file(const File& file) {
  if (file.kind == File::Kind::control) close_rm_file(file);
  if (file.kind == File::Kind::gdrdrv) close_gdrdrv_file(file);
}

std::optional<int> gpu_of_minor(std::uint32_t minor) {
  for (std::uint32_t gpu = 0; gpu < state().machine.gpu_count; ++gpu) {
    if (state().machine.gpus[gpu].minor == minor) return static_cast<int>(gpu);
  }
  return {};
}

// The file that stands behind a device path; nothing when there is no such device.
std::optional<File> file_behind(std::string_view path) {
  File file;
  file.opener = ::getpid();
  if (path == "/dev/nvidiactl") {
    if (state().machine.gpu_count == 0) return {};
    return file;
  }
  if (path == "/dev/gdrdrv") {
    file.kind = File::Kind::gdrdrv;
    if (!state().machine.has_gdrdrv) return {};
    return file;
  }
  file.kind = File::Kind::device;
  char* end = nullptr;
  const std::string digits(path.substr(std::string_view("/dev/nvidia").size()));
  const unsigned long minor = std::strtoul(digits.c_str(), &end, 10);
  const auto gpu = digits.empty() || *end != '\0' ? std::nullopt : gpu_of_minor(static_cast<std::uint32_t>(minor));
  if (!gpu) return {};
  file.gpu = *gpu;
  return file;
}

int fake_open(const char* path, int flags) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  if (const Fault* fault = planted_fault(Call::open, path)) return fail(fault->error);
  const std::string_view name(path);
  if (!name.starts_with("/dev/nvidia") && name != "/dev/gdrdrv") return ::open(path, flags);
  auto file = file_behind(name);
  if (!file) return fail(ENOENT);
  if ((flags & O_ACCMODE) != O_RDWR) return fail(EACCES);
  if ((flags & O_CLOEXEC) == 0) note_violation(std::string(name) + " opened without O_CLOEXEC");
  return make_file(std::move(*file), 0);
}

int fake_close(int descriptor) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  const File* file = find_file(descriptor);
  if (file != nullptr) {
    close_file(*file);
    state().files.erase(descriptor);
  }
  if (const Fault* fault = planted_fault(Call::close, "")) {
    ::close(descriptor);
    return fail(fault->error);
  }
  return ::close(descriptor);
}

std::uint32_t command_of(unsigned long request, const void* argument) {
  const auto* words = static_cast<const std::uint32_t*>(argument);
  if (_IOC_TYPE(request) != 'F' || argument == nullptr) return 0;
  if (_IOC_NR(request) == 0x2A) return words[2];
  if (_IOC_NR(request) == 0x2B) return words[3];
  return 0;
}

// An RM fault leaves its status where the structure of that call has it.
void put_rm_status(unsigned long request, void* argument, std::uint32_t status) {
  static constexpr struct {
    unsigned number, offset;
  } kStatusOffsets[] = {{0x29, 12}, {0x2A, 28}, {0x2B, 28}, {0x34, 24}, {0x4E, 40}, {0x4F, 24}};
  for (const auto [number, offset] : kStatusOffsets) {
    if (number == _IOC_NR(request)) std::memcpy(static_cast<char*>(argument) + offset, &status, sizeof status);
  }
}

int fake_ioctl(int descriptor, unsigned long request, void* argument) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  File* file = find_file(descriptor);
  if (file == nullptr) return ::ioctl(descriptor, request, argument);
  if (const Fault* fault = planted_fault(Call::ioctl, "", _IOC_NR(request), command_of(request, argument))) {
    if (fault->error != 0) return fail(fault->error);
    put_rm_status(request, argument, fault->status);
    return 0;
  }
  switch (file->kind) {
    case File::Kind::control:
    case File::Kind::device: return rm_ioctl(*file, request, argument);
    case File::Kind::gdrdrv: return gdrdrv_ioctl(*file, request, argument);
    default: return _IOC_TYPE(request) == 'b' ? 0 : fail(ENOTTY);  // dma-buf synchronisation
  }
}

void* mmap_dma_buf(const File& file, void* hint, std::size_t bytes, int protection, int flags, off_t offset) {
  if (!state().machine.is_dma_buf_mappable) {
    errno = kNotSupported;
    return MAP_FAILED;
  }
  if (offset < 0 || static_cast<std::uint64_t>(offset) > file.bytes || bytes > file.bytes - static_cast<std::uint64_t>(offset)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  const std::uint64_t shift = state().machine.is_dma_buf_mmap_shifted ? 64 * kKiB : 0;
  Window window;
  window.block = file.block;
  return open_window(hint, bytes, protection, flags, file.gpu, file.physical_offset + static_cast<std::uint64_t>(offset) + shift,
                     window);
}

void* fake_mmap(void* hint, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  File* file = find_file(descriptor);
  if (file == nullptr) return ::mmap(hint, bytes, protection, flags, descriptor, offset);
  if (const Fault* fault = planted_fault(Call::mmap, "")) {
    errno = fault->error;
    return MAP_FAILED;
  }
  switch (file->kind) {
    case File::Kind::device: return mmap_device(*file, hint, bytes, protection, flags, offset);
    case File::Kind::gdrdrv: return mmap_gdrdrv(*file, hint, bytes, protection, flags, offset);
    case File::Kind::dma_buf: return mmap_dma_buf(*file, hint, bytes, protection, flags, offset);
    default: errno = ENODEV; return MAP_FAILED;
  }
}

int fake_munmap(void* address, std::size_t bytes) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  const auto place = state().windows.find(reinterpret_cast<Address>(address));
  if (place == state().windows.end()) return ::munmap(address, bytes);
  if (const Fault* fault = planted_fault(Call::munmap, "")) return fail(fault->error);
  const Window window = place->second;
  if (bytes != window.bytes) note_violation("a window of " + std::to_string(window.bytes) + " bytes was unmapped in part");
  if (const auto pin = state().pins.find({window.pin_inode, window.pin_handle}); pin != state().pins.end())
    pin->second.window = nullptr;
  state().windows.erase(place);
  return ::munmap(address, bytes);
}

int fake_madvise(void* address, std::size_t bytes, int advice) {
  const Inside inside;
  const std::lock_guard lock(state().mutex);
  if (const Fault* fault = planted_fault(Call::madvise, "")) return fail(fault->error);
  return ::madvise(address, bytes, advice);
}

}  // namespace

int make_file(File file, std::uint64_t bytes) {
  const int descriptor = ::memfd_create("gigabar-fake-file", MFD_CLOEXEC);
  if (descriptor < 0) return -1;
  if (bytes != 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) return fail(ENOMEM);
  find_file(descriptor);  // forgets one that had this number and was closed behind the table
  file.inode = *inode_of(descriptor);
  file.opener = ::getpid();
  state().files[descriptor] = std::move(file);
  return descriptor;
}

File* find_file(int descriptor) {
  const auto place = state().files.find(descriptor);
  if (place == state().files.end()) return nullptr;
  if (inode_of(descriptor) == place->second.inode) return &place->second;
  const File closed = place->second;
  state().files.erase(place);
  close_file(closed);
  return nullptr;
}

void* open_window(void* hint, std::size_t bytes, int protection, int flags, int gpu, std::uint64_t physical_offset, Window window) {
  if ((flags & MAP_SHARED) == 0 || protection != (PROT_READ | PROT_WRITE)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (state().machine.are_window_stores_lost) flags = (flags & ~MAP_SHARED) | MAP_PRIVATE;
  void* address = ::mmap(hint, bytes, protection, flags | MAP_NORESERVE, state().memory[static_cast<std::size_t>(gpu)].memfd,
                         static_cast<off_t>(physical_offset));
  if (address == MAP_FAILED) return address;
  window.bytes = bytes;
  state().windows[reinterpret_cast<Address>(address)] = std::move(window);
  ++state().totals.total_mmaps;
  return address;
}

}  // namespace gigabar::fake

extern "C" __attribute__((visibility("default"))) const gigabar::SystemCalls* gigabar_fake_system_calls() {
  using namespace gigabar::fake;
  static const gigabar::SystemCalls calls{fake_open, fake_close, fake_ioctl, fake_mmap, fake_munmap, fake_madvise};
  return &calls;
}
