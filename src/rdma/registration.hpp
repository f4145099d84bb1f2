// SPDX-License-Identifier: Apache-2.0
// Memory that an RDMA device reaches, and what the errors of its calls mean.
#pragma once

#if GIGABAR_HAS_RDMACM

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/errors.hpp"
#include "driver/verbs/functions.hpp"
#include "gigabar/memory.hpp"

namespace gigabar::rdma {

struct MrCloser {
  void operator()(ibv_mr* region) const noexcept { verbs::functions().ibv_dereg_mr(region); }
};
using Mr = std::unique_ptr<ibv_mr, MrCloser>;

// An error of a call of verbs or rdma_cm on `object`; `code` is its errno. Without a remedy it has the usual one of that errno.
Error call_failed(const char* call, const std::string& object, int code, std::string remedy = {});
// Registers `bytes` at `address` with `domain` of `device`. Errors: out_of_memory (with the remedy for the limit of locked memory),
// no_permission, not_supported, device_error.
Result<Mr> register_pages(ibv_pd* domain, const std::string& device, void* address, std::size_t bytes, int access);

// Device memory, or host memory that plays it.
constexpr bool is_gpu_memory(MemoryKind kind) noexcept {
  return kind == MemoryKind::device || kind == MemoryKind::device_vmm || kind == MemoryKind::device_pool ||
         kind == MemoryKind::managed || kind == MemoryKind::stand_in;
}

// GPU memory with one domain of `device`, in the way that works: as a dma-buf, else through the kernel's peer memory.
// Errors: out_of_descriptors; not_supported, with both reasons.
struct Registration {
  Mr region;
  std::string_view how;  // "dma_buf", "peer_memory"
  std::string reason;
};
Result<Registration> register_gpu_memory(ibv_pd* domain, const std::string& device, std::uintptr_t address, std::size_t bytes,
                                         int access);

}  // namespace gigabar::rdma

#endif
