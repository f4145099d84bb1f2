// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/region.hpp"

#if GIGABAR_HAS_RDMACM

#include <cerrno>
#include <cstring>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "memory/runtime.hpp"

namespace gigabar::transport::rdma {
namespace {

// Peers write to and read from every region, and so do we; a read's sink must be open to remote writes on iWARP.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint64_t kPageBytes = 4096;  // of dma-bufs: their first page's offset and the address must agree below it
constexpr int kKernelNotSupported = 524;    // ENOTSUPP, which user space has no name for

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
  Mr region(functions.ibv_reg_dmabuf_mr(domain, address % kPageBytes, bytes, address, descriptor.get(), access));
  if (region != nullptr) return region;
  const int code = errno;
  return make_error(status_of_errno(code, Status::not_supported), "ibv_reg_dmabuf_mr", text(object, " on ", device),
                    why_no_dma_buf(code), {}, errno_code(code));
}

Result<Mr> register_peer_memory(ibv_pd* domain, const std::string& device, std::uintptr_t address, std::size_t bytes, int access) {
  errno = 0;
  Mr region(verbs::functions().ibv_reg_mr(domain, reinterpret_cast<void*>(address), bytes, access));
  if (region != nullptr) return region;
  const int code = errno;
  return make_error(status_of_errno(code, Status::not_supported), "ibv_reg_mr", text(range_text(address, bytes), " on ", device),
                    why_no_peer_memory(code), {}, errno_code(code));
}

}  // namespace

Result<GpuMr> register_gpu_memory(ibv_pd* domain, const std::string& device, std::uintptr_t address, std::size_t bytes,
                                  int access) {
  auto dma_buf = register_dma_buf(domain, device, address, bytes, access);
  if (dma_buf) return GpuMr{std::move(*dma_buf), "dma_buf", "the GPU memory is registered as a dma-buf"};
  auto peer_memory = register_peer_memory(domain, device, address, bytes, access);
  if (peer_memory)
    return GpuMr{std::move(*peer_memory), "peer_memory",
                 text("the GPU memory is registered through the kernel's peer memory (nvidia-peermem); not as a dma-buf: ",
                      dma_buf.error().record().cause)};
  if (peer_memory.status() == Status::out_of_descriptors || dma_buf.status() == Status::out_of_descriptors)
    return std::move(dma_buf).error();
  return make_error(Status::not_supported, "register memory", range_text(address, bytes),
                    text("no NIC reaches this GPU memory; as a dma-buf: ", dma_buf.error().record().cause,
                         "; as peer memory: ", peer_memory.error().record().cause),
                    "see 'gigabar doctor' (trial.dmabuf, trial.peermem); without either the transfer is staged");
}

VerbsRegion::VerbsRegion(const MemoryRange& range, const std::vector<std::shared_ptr<Device>>& devices,
                         std::vector<std::size_t> rail_devices, std::shared_ptr<GpuOrder> order)
    : range_(range), devices_(devices), rail_devices_(std::move(rail_devices)), order_(std::move(order)) {}

VerbsRegion::~VerbsRegion() {
  if (is_ordered_) order_->remove(range_.device);
}

Result<std::unique_ptr<Region>> VerbsRegion::make(const MemoryRange& range, const std::vector<std::shared_ptr<Device>>& devices,
                                                  std::vector<std::size_t> rail_devices, std::shared_ptr<GpuOrder> order) {
  const std::string object = range_text(reinterpret_cast<std::uintptr_t>(range.address), range.bytes);
  if (range.address == nullptr || range.bytes == 0)
    return make_error(Status::invalid_argument, "register memory", object, "there is no memory to register");
  std::unique_ptr<VerbsRegion> region(new VerbsRegion(range, devices, std::move(rail_devices), std::move(order)));
  Outcome registered;
  switch (range.kind) {
    case MemoryKind::managed:
      return make_error(Status::not_supported, "register memory", object, "managed memory moves between CPU and GPU",
                        "use cudaMalloc, or stage it");
    case MemoryKind::device:
    case MemoryKind::device_vmm:
    case MemoryKind::device_pool: registered = region->register_gpu(); break;
    case MemoryKind::stand_in:
    case MemoryKind::host_pageable:
    case MemoryKind::host_pinned: registered = region->register_host(); break;
  }
  if (!registered) return std::move(registered).take_error();
  return std::unique_ptr<Region>(std::move(region));
}

Outcome VerbsRegion::register_host() {
  for (const auto& device : devices_) {
    auto region = register_pages(*device, range_.address, range_.bytes, kAccess);
    if (!region) return std::move(region).error();
    regions_.push_back(std::move(*region));
  }
  how_ = "pinned";
  reason_ =
      range_.kind == MemoryKind::stand_in ? "stand-in memory is host memory, which every NIC can pin" : "host memory is pinned";
  return {};
}

Outcome VerbsRegion::register_gpu() {
  if (Outcome ordered = order_->add(range_.device); !ordered) return ordered;
  is_ordered_ = true;
  for (const auto& device : devices_) {
    auto registered = register_gpu_memory(device->domain, device->name, address(), range_.bytes, kAccess);
    if (!registered) return std::move(registered).error();
    regions_.push_back(std::move(registered->region));
    how_ = registered->how;
    reason_ = std::move(registered->reason);
  }
  return {};
}

Result<Parcel> VerbsRegion::key(const Peer&) const {
  Key key{range_.kind, address(), range_.bytes, {}};
  for (const std::size_t device : rail_devices_) key.keys.push_back(regions_[device]->rkey);
  return Parcel{write_key(key), {}};
}

}  // namespace gigabar::transport::rdma

#endif
