// SPDX-License-Identifier: Apache-2.0
#include "transport/local/peer_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/rounding.hpp"

namespace gigabar::transport::local {
namespace {

Error malformed(const char* cause) {
  return make_error(Status::bad_file, "open", "a memfd", cause,
                    "name the memfd that the memory is mapped from, and its place in it");
}

Error copy_failed(const char* operation, int code) {
  return make_error(Status::peer_lost, operation, "a peer's memfd", code == 0 ? "it has become smaller" : std::strerror(code),
                    "forget the peer's memory", code == 0 ? NativeCode{} : errno_code(code));
}

template <class Copy>
Result<void> copy_all(const char* operation, std::uint64_t offset, std::size_t bytes, Copy copy_some) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = copy_some(done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return copy_failed(operation, count < 0 ? errno : 0);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

Result<void> check_memfd(int descriptor, std::uint64_t offset_bytes, std::size_t bytes) {
  if (::fcntl(descriptor, F_GET_SEALS) < 0) return malformed("is no memfd");
  struct stat status{};
  ::fstat(descriptor, &status);
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (offset_bytes > file_bytes || bytes > file_bytes - offset_bytes) return malformed("is smaller than the memory told");
  return {};
}

Result<std::unique_ptr<PeerFile>> PeerFile::open(Descriptor file, std::uint64_t offset_bytes, std::size_t bytes) {
  if (Result<void> checked = check_memfd(file.get(), offset_bytes, bytes); !checked) return std::move(checked).error();
  if ((::fcntl(file.get(), F_GETFL) & O_ACCMODE) != O_RDWR) return malformed("cannot be written");
  std::unique_ptr<PeerFile> opened(new PeerFile(std::move(file), offset_bytes));
  if ((::fcntl(opened->file_.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) return opened;
  struct stat status{};
  ::fstat(opened->file_.get(), &status);  // its block is the page, which is a huge one for huge pages
  const auto page_bytes = static_cast<std::size_t>(std::max<long>(::sysconf(_SC_PAGESIZE), status.st_blksize));
  if (Result<void> mapped = opened->map(bytes, page_bytes); !mapped) return std::move(mapped).error();
  return opened;
}

Result<void> PeerFile::map(std::size_t bytes, std::size_t page_bytes) {
  const std::uint64_t begin = offset_bytes_ / page_bytes * page_bytes;
  const std::size_t length = round_up(offset_bytes_ - begin + bytes, page_bytes);
  void* const address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), static_cast<off_t>(begin));
  if (address == MAP_FAILED) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::out_of_memory), "map", text(counted(bytes, "byte"), " of a peer's memfd"),
                      std::strerror(code), "free memory, or raise vm.max_map_count", errno_code(code));
  }
  mapped_ = address;
  mapped_bytes_ = length;
  ::madvise(mapped_, mapped_bytes_, MADV_DONTFORK);
  address_ = static_cast<std::byte*>(address) + (offset_bytes_ - begin);
  file_ = Descriptor();
  return {};
}

PeerFile::~PeerFile() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

Result<void> PeerFile::write(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const {
  if (address_ != nullptr) {
    std::memcpy(address_ + offset_bytes, source, bytes);
    return {};
  }
  return copy_all("write", offset_bytes_ + offset_bytes, bytes, [&](std::size_t done, std::size_t left, off_t at) {
    return ::pwrite(file_.get(), static_cast<const std::byte*>(source) + done, left, at);
  });
}

Result<void> PeerFile::read(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const {
  if (address_ != nullptr) {
    std::memcpy(destination, address_ + offset_bytes, bytes);
    return {};
  }
  return copy_all("read", offset_bytes_ + offset_bytes, bytes, [&](std::size_t done, std::size_t left, off_t at) {
    return ::pread(file_.get(), static_cast<std::byte*>(destination) + done, left, at);
  });
}

}  // namespace gigabar::transport::local
