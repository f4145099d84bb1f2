// SPDX-License-Identifier: Apache-2.0
#include "memory/stand_in_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/ranges.hpp"
#include "base/rounding.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr const char* kVariable = "GIGABAR_STAND_IN_MEMORY";

// Each try that does not move on met a range that was given back in between; so many in a row mean that something else is wrong.
constexpr int kMaxTries = 1000;

struct OpenFile {
  Descriptor file;
  std::uint64_t bytes = 0;
};

Error refused(const std::string& path, Status status, const std::string& cause, int code) {
  return make_error(status, "open stand-in memory", text(kVariable, "=", path), cause,
                    "name a device file that maps memory, or an ordinary file of the wanted size, or unset the variable",
                    code == 0 ? NativeCode{} : errno_code(code));
}

Status status_of_open(int code) {
  const Status status = status_of_errno(code);
  return status == Status::no_permission || status == Status::out_of_descriptors ? status : Status::invalid_argument;
}

Result<OpenFile> open_file(const std::string& path) {
  OpenFile opened{Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC)), 0};
  if (!opened.file.is_open()) {
    const int code = errno;
    return refused(path, status_of_open(code), std::strerror(code), code);
  }
  // Not stat: a device file has its size only behind lseek.
  const off_t end = ::lseek(opened.file.get(), 0, SEEK_END);
  if (end < 0) {
    const int code = errno;
    return refused(path, Status::invalid_argument, text("it does not tell its size: ", std::strerror(code)), code);
  }
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  opened.bytes = static_cast<std::uint64_t>(end) / page_bytes * page_bytes;
  if (opened.bytes == 0)
    return refused(path, Status::invalid_argument,
                   text("it has ", counted(static_cast<std::uint64_t>(end), "byte"), ", less than one page"), 0);
  return opened;
}

struct flock lock_of(std::uint64_t offset_bytes, std::uint64_t bytes) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset_bytes);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

Error exhausted(const std::string& path, std::uint64_t file_bytes, std::uint64_t bytes) {
  return make_error(Status::out_of_memory, "allocate device memory", text(counted(bytes, "byte"), " of ", path),
                    text("no free range of it is that large; it has ", counted(file_bytes, "byte"), " for all processes"),
                    "free memory of stand-in devices, or name a larger file in GIGABAR_STAND_IN_MEMORY");
}

}  // namespace

Result<std::uint64_t> stand_in_file_bytes(const std::string& path) {
  const auto opened = open_file(path);
  if (!opened) return opened.error();
  return opened->bytes;
}

Result<FileRange> take_from_stand_in_file(const std::string& path, std::uint64_t bytes, std::uint64_t alignment_bytes) {
  auto opened = open_file(path);
  if (!opened) return opened.error();
  const int file = opened->file.get();
  std::uint64_t offset_bytes = 0;
  for (int tries = 0; tries < kMaxTries;) {
    if (!fits(offset_bytes, bytes, opened->bytes)) return exhausted(path, opened->bytes, bytes);
    // Locks of the open file, not of the process: an allocation of this process keeps the next one out too.
    struct flock lock = lock_of(offset_bytes, bytes);
    if (::fcntl(file, F_OFD_SETLK, &lock) == 0) return FileRange{std::move(opened->file), offset_bytes};
    int code = errno;
    if (code == EAGAIN || code == EACCES) {
      lock = lock_of(offset_bytes, bytes);
      code = ::fcntl(file, F_OFD_GETLK, &lock) == 0 ? 0 : errno;
    }
    if (code != 0) return refused(path, Status::invalid_argument, text("its ranges cannot be locked: ", std::strerror(code)), code);
    if (lock.l_type == F_UNLCK) {
      ++tries;
      continue;
    }
    if (lock.l_len == 0) break;  // somebody's lock to the end
    const auto end = static_cast<std::uint64_t>(lock.l_start) + static_cast<std::uint64_t>(lock.l_len);
    offset_bytes = round_up(end, alignment_bytes);
  }
  return exhausted(path, opened->bytes, bytes);
}

}  // namespace gigabar::inline v0
