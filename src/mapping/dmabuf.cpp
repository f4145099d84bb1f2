// SPDX-License-Identifier: Apache-2.0
// The dmabuf backend: mmap of the descriptor that CUDA exports. Needs CUDA 13.3 and its DMA_BUF_MMAP_SUPPORTED attribute; being
// able to export alone is not enough (older drivers export and then refuse the mmap).
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check_ids.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/rounding.hpp"
#include "driver/system_calls.hpp"
#include "mapping/backend.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr int kOldestVersion = 13030;

Availability availability(int device) {
  if (Availability gpu = gpu_availability(device); !gpu.is_ok()) return gpu;
  const auto traits = cuda_runtime()->traits(device);
  if (!traits) return availability_of(traits.error().record());
  if (traits->can_mmap_dma_buf) return {AvailabilityCode::ok, "the driver maps its dma-bufs", {}};
  if (traits->driver_api_version < kOldestVersion) {
    return {AvailabilityCode::driver_too_old,
            text("the driver supports CUDA ", traits->driver_api_version / 1000, ".", traits->driver_api_version % 1000 / 10,
                 "; 13.3 is needed"),
            "install NVIDIA driver 610 or newer",
            {},
            std::string(check_id::kDriverFlavour)};
  }
  return not_supported("the device does not report DMA_BUF_MMAP_SUPPORTED", {});
}

Availability can_map(const PointerInfo& memory) {
  if (is_cuda_device_memory(memory.kind)) return {};
  return not_supported(text("a dma-buf is made of device memory, not of ", name_of(memory.kind), " memory"), {});
}

Result<Window> open_window(const PointerInfo& memory, const WindowRequest& request) {
  DeviceRange range = range_to_map({memory.base, memory.length_bytes}, request.asked);
  const std::size_t page = host_page_bytes();
  const std::uintptr_t past = round_up(range.begin + range.bytes, page);
  range.begin = range.begin / page * page;
  range.bytes = past - range.begin;
  const auto traits = cuda_runtime()->traits(memory.device);
  if (!traits) return traits.error();
  auto exported = cuda_runtime()->export_dma_buf(range.begin, range.bytes);
  if (!exported) return std::move(exported).error();
  const Descriptor descriptor(*exported);  // the mapping keeps the memory; the descriptor is not needed after it
  void* address = system_calls().mmap(nullptr, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) {
    const int code = errno;
    return make_errno_error(code, "map", range_text(range.begin, range.bytes), "mmap of the dma-buf");
  }
  std::shared_ptr<const void> pages(address, [bytes = range.bytes, generation = detail::process_generation()](void* mapped) {
    if (generation == detail::process_generation() && system_calls().munmap(mapped, bytes) != 0)
      quietly([] { log(LogLevel::error, text("unmap dma-buf: ", std::strerror(errno))); });
  });
  if (!request.is_inherited) keep_from_forked_children(address, range.bytes);
  // Which caching CUDA gives is documented by platform, not reported: ordinary cached memory where the CPU is coherent with the
  // GPU.
  const MappingType type = traits->is_coherent ? MappingType::cached : MappingType::write_combined;
  return Window{static_cast<std::byte*>(address), range.begin, range.bytes, type, std::move(pages)};
}

}  // namespace

constinit const Backend dmabuf_backend{MappingBackend::dmabuf, availability, can_map, open_window};

}  // namespace gigabar::inline v0
