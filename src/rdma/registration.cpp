// SPDX-License-Identifier: Apache-2.0
#include "rdma/registration.hpp"

#if GIGABAR_HAS_RDMACM

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check_ids.hpp"
#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"

namespace gigabar::rdma {
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
        return {Status::out_of_memory,
                text("the pages cannot be pinned; the limit of locked memory is ", counted(limit.rlim_cur, "byte")), kMemlockRemedy,
                check_id::kLockedMemory};
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

constexpr int kKernelNotSupported = 524;  // ENOTSUPP, which user space has no name for

std::string why_no_dma_buf(int code) {
  switch (code) {
    case kKernelNotSupported: return "the GPU's driver refused to let the adapter attach (its own check of the PCI topology)";
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS: return "the adapter's driver or the kernel cannot register dma-bufs";
    case ENOMEM: return "there was no room in the GPU's BAR1 or in the adapter's tables";
    default: return text("ibv_reg_dmabuf_mr failed: ", std::strerror(code));
  }
}

std::string why_no_peer_memory(int code) {
  if (code == EFAULT)
    return "the kernel cannot pin GPU pointers (nvidia-peermem is not loaded, or its RDMA core has no peer memory)";
  return text("ibv_reg_mr failed: ", std::strerror(code));
}

Result<Mr> register_dma_buf(ibv_pd* domain, const std::string& device, std::uintptr_t address, std::size_t bytes, int access) {
  const std::string object = range_text(address, bytes);
  const auto& functions = verbs::functions();
  if (functions.ibv_reg_dmabuf_mr == nullptr)
    return make_error(Status::not_supported, "register memory", object, "libibverbs has no ibv_reg_dmabuf_mr",
                      "install rdma-core 34 or newer");
  Runtime* const runtime = cuda_runtime();
  if (runtime == nullptr) return make_error(Status::not_supported, "register memory", object, "CUDA cannot be used");
  const auto exported = runtime->export_dma_buf(address, bytes);
  if (!exported) return exported.error();
  const Descriptor descriptor(*exported);
  errno = 0;
  // The dma-buf begins with a page; the offset and the address have to agree below it.
  Mr region(functions.ibv_reg_dmabuf_mr(domain, address % host_page_bytes(), bytes, address, descriptor.get(), access));
  if (region != nullptr) return region;
  const int code = errno;
  return make_error(status_of_errno(code, Status::not_supported), "ibv_reg_dmabuf_mr", text(object, " on ", device),
                    why_no_dma_buf(code), {}, errno_code(code));
}

}  // namespace

Error call_failed(const char* call, const std::string& object, int code, std::string remedy) {
  if (remedy.empty()) remedy = remedy_of(code);
  const bool is_absent = code == EOPNOTSUPP || code == EPROTONOSUPPORT || code == ENOSYS;
  return make_errno_error(code, call, object, text(call, " failed"), std::move(remedy),
                          is_absent ? Status::not_supported : Status::device_error);
}

Result<Mr> register_pages(ibv_pd* domain, const std::string& device, void* address, std::size_t bytes, int access) {
  errno = 0;
  Mr region(verbs::functions().ibv_reg_mr(domain, address, bytes, access));
  if (region != nullptr) return region;
  const int code = errno;
  Explanation why = explain_registration(code);
  return make_error(why.status, "register memory",
                    text(range_text(reinterpret_cast<std::uintptr_t>(address), bytes), " on ", device), std::move(why.cause),
                    std::move(why.remedy), errno_code(code), why.check);
}

Result<Registration> register_gpu_memory(ibv_pd* domain, const std::string& device, std::uintptr_t address, std::size_t bytes,
                                         int access) {
  auto dma_buf = register_dma_buf(domain, device, address, bytes, access);
  if (dma_buf) return Registration{std::move(*dma_buf), "dma_buf", "the GPU memory is registered as a dma-buf"};
  errno = 0;
  Mr peer_memory(verbs::functions().ibv_reg_mr(domain, reinterpret_cast<void*>(address), bytes, access));
  const int code = errno;
  if (peer_memory != nullptr)
    return Registration{std::move(peer_memory), "peer_memory",
                        text("the GPU memory is registered through the kernel's peer memory (nvidia-peermem); not as a dma-buf: ",
                             dma_buf.error().record().cause)};
  if (status_of_errno(code) == Status::out_of_descriptors || dma_buf.status() == Status::out_of_descriptors)
    return std::move(dma_buf).error();
  return make_error(Status::not_supported, "register memory", range_text(address, bytes),
                    text("no NIC reaches this GPU memory; as a dma-buf: ", dma_buf.error().record().cause,
                         "; as peer memory: ", why_no_peer_memory(code)),
                    "see 'gigabar doctor' (probe.dmabuf, probe.peermem); without either the transfer is staged");
}

}  // namespace gigabar::rdma

#endif
