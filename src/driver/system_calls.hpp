// SPDX-License-Identifier: Apache-2.0
// The system calls that reach device files, behind one table: a test fills its own and plays a driver, or plants a fault.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "gigabar/status.hpp"

namespace gigabar::inline v0 {

// Each returns what the system call returns and sets errno. Never null.
struct SystemCalls {
  int (*open)(const char* path, int flags);
  int (*close)(int descriptor);
  int (*ioctl)(int descriptor, unsigned long request, void* argument);
  void* (*mmap)(void* hint, std::size_t bytes, int protection, int flags, int descriptor, off_t offset);
  int (*munmap)(void* address, std::size_t bytes);
  int (*madvise)(void* address, std::size_t bytes, int advice);
};

// The table in use. Threads: any.
const SystemCalls& system_calls() noexcept;
// The real ones.
const SystemCalls& kernel_system_calls() noexcept;
// For tests: uses `calls` (which must outlive its use) from now on, null for the real ones; not while other threads use drivers.
void replace_system_calls(const SystemCalls* calls) noexcept;

// Opens a device file for reading and writing. Errors: unavailable (there is no such device; `remedy` is for that), no_permission,
// out_of_descriptors and others of errno, all with `check`, one of check_ids.hpp.
Result<int> open_device_file(const char* operation, const std::string& path, std::string remedy, std::string_view check);
// ioctl() of the table, begun anew where a signal came between: 0, or -1 with errno set.
int call_device(int descriptor, unsigned long request, void* argument) noexcept;

}  // namespace gigabar::inline v0
