// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/device.hpp"

#if GIGABAR_HAS_RDMACM

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check_ids.hpp"
#include "base/errors.hpp"

namespace gigabar::transport::rdma {
namespace {

constexpr const char* kMemlockRemedy =
    "raise the limit of locked memory: 'ulimit -l unlimited' with '* - memlock unlimited' in /etc/security/limits.d, "
    "LimitMEMLOCK=infinity for a service, --ulimit memlock=-1 for a container";

struct Explanation {
  Status status;
  std::string cause, remedy;
  std::string_view check = {};  // may be left out  NOLINT(readability-redundant-member-init)
};

Explanation explain_registration(int code) {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  switch (code) {
    case ENOMEM:
    case EAGAIN:
    case EPERM:
      if (is_limited)
        return {Status::out_of_memory, text("the pages cannot be pinned; the limit of locked memory is ", limit.rlim_cur, " bytes"),
                kMemlockRemedy, check_id::kLockedMemory};
      return {code == EPERM ? Status::no_permission : Status::out_of_memory,
              "the kernel or the device has no room to pin the pages, although no limit of locked memory is in force",
              "look at the kernel's log (dmesg), the memory cgroup and the rdma cgroup of this process"};
    case EFAULT:
      return {Status::not_supported, "the kernel cannot pin these addresses: not mapped, mapped read-only, or memory of a device",
              "register memory that this process can write"};
    default: return {status_of_errno(code), text("ibv_reg_mr failed: ", std::strerror(code)), "look at the kernel's log (dmesg)"};
  }
}

const char* remedy_of(int code) {
  switch (code) {
    case ENOMEM:
    case EAGAIN: return "the adapter or the kernel has no room: look at the limits of locked memory, the rdma cgroup and dmesg";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    case EACCES:
    case EPERM: return "let this user open the files in /dev/infiniband";
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL: return "check that the peer's address can be reached from this rail ('ip route get')";
    default: return "see the adapter's driver in the kernel's log (dmesg)";
  }
}

}  // namespace

void IdCloser::operator()(rdma_cm_id* id) const noexcept {
  if (id->qp != nullptr) rdmacm::functions().rdma_destroy_qp(id);
  rdmacm::functions().rdma_destroy_id(id);
}

Error call_failed(const char* call, const std::string& object, int code, std::string remedy) {
  if (remedy.empty()) remedy = remedy_of(code);
  const bool is_absent = code == EOPNOTSUPP || code == EPROTONOSUPPORT || code == ENOSYS;
  return make_error(status_of_errno(code, is_absent ? Status::not_supported : Status::device_error), call, object,
                    text(call, " failed: ", std::strerror(code)), std::move(remedy), errno_code(code));
}

Pages::Pages(std::size_t bytes) noexcept : data_(nullptr) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes_ = (bytes + page - 1) / page * page;
  void* const address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(address);
  // A child that this process forks must not make the adapter's pages copies: it does without them.
  ::madvise(address, bytes_, MADV_DONTFORK);
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Device::~Device() {
  probe.reset();
  if (channel != nullptr) verbs::functions().ibv_destroy_comp_channel(channel);
  if (domain != nullptr) verbs::functions().ibv_dealloc_pd(domain);
}

Result<Mr> register_pages(const Device& device, void* address, std::size_t bytes, int access) {
  errno = 0;
  Mr region(verbs::functions().ibv_reg_mr(device.domain, address, bytes, access));
  if (region != nullptr) return region;
  const int code = errno;
  Explanation why = explain_registration(code);
  return make_error(why.status, "register memory",
                    text(range_text(reinterpret_cast<std::uintptr_t>(address), bytes), " on ", device.name), std::move(why.cause),
                    std::move(why.remedy), errno_code(code), why.check);
}

SocketAddress socket_address(const RailAddress& address, std::uint16_t port) noexcept {
  SocketAddress result;
  if (address.is_ipv6) {
    auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
    std::memcpy(&ipv6->sin6_addr, address.bytes.data(), sizeof ipv6->sin6_addr);
  } else {
    auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
    std::memcpy(&ipv4->sin_addr, address.bytes.data(), sizeof ipv4->sin_addr);
  }
  return result;
}

}  // namespace gigabar::transport::rdma

#endif
