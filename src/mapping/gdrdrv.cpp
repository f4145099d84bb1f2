// SPDX-License-Identifier: Apache-2.0
// The gdrdrv backend: GDRCopy's kernel module, where a machine has it.
#include "driver/gdrdrv/gdrdrv.hpp"

#include <memory>
#include <mutex>

#include "base/errors.hpp"
#include "base/rounding.hpp"
#include "mapping/backend.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

using gdrdrv::kPageBytes;

MappingType type_of(gdrdrv::CacheType type) {
  switch (type) {
    case gdrdrv::CacheType::cached: return MappingType::cached;
    case gdrdrv::CacheType::device: return MappingType::uncached;
    default: return MappingType::write_combined;
  }
}

// The module's file, opened once per process (the module refuses other processes).
Result<std::shared_ptr<gdrdrv::Module>> open_module() {
  struct Opened {
    std::mutex mutex;
    std::shared_ptr<gdrdrv::Module> module;
    std::uint32_t generation = 0;
  };
  static auto& state = *new Opened;
  const std::lock_guard lock(state.mutex);
  if (state.module != nullptr && state.generation == detail::process_generation()) return state.module;
  auto opened = gdrdrv::Module::open(platform_roots().dev);
  if (!opened) return std::move(opened).error();
  state.module = std::move(*opened);
  state.generation = detail::process_generation();
  return state.module;
}

Availability availability(int device) {
  if (Availability gpu = gpu_availability(device); !gpu.is_ok()) return gpu;
  const auto module = open_module();
  if (!module) return availability_of(module.error().record());
  return (*module)->availability();
}

Availability can_map(const PointerInfo& memory) {
  if (is_cuda_device_memory(memory.kind)) return {};
  return not_supported(text("the module pins device memory, not ", name_of(memory.kind), " memory"), {});
}

Result<Window> open_window(const PointerInfo& memory, const WindowRequest& request) {
  if (request.is_inherited) {
    return make_error(Status::not_supported, "map", range_text(request.asked.begin, request.asked.bytes),
                      "the module keeps its mappings from forked children", "use another backend, or map in the child");
  }
  auto module = open_module();
  if (!module) return std::move(module).error();
  const DeviceRange range = range_to_map({memory.base, memory.length_bytes}, request.asked);
  const std::uintptr_t begin = range.begin / kPageBytes * kPageBytes;
  const std::uintptr_t past = round_up<std::uintptr_t>(range.begin + range.bytes, kPageBytes);
  const auto mapping = (*module)->map(begin, past - begin);
  if (!mapping) return mapping.error();
  std::shared_ptr<const void> pages(mapping->address,
                                    [module = *module, mapping = *mapping, generation = detail::process_generation()](const void*) {
                                      if (generation == detail::process_generation()) module->unmap(mapping);
                                    });
  return Window{static_cast<std::byte*>(mapping->address), begin, mapping->bytes, type_of(mapping->type), std::move(pages)};
}

}  // namespace

constinit const Backend gdrdrv_backend{MappingBackend::gdrdrv, availability, can_map, open_window};

}  // namespace gigabar::inline v0
