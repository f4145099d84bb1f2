// SPDX-License-Identifier: Apache-2.0
// The host backend: pinned host memory and stand-in devices are reachable at their own address.
#include <sys/mman.h>

#include "base/errors.hpp"
#include "driver/system_calls.hpp"
#include "mapping/backend.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

class HostWindow final : public Window {
 public:
  HostWindow(const PointerInfo& memory, std::shared_ptr<const void> pages)
      : Window(reinterpret_cast<std::byte*>(memory.base), memory.base, memory.length_bytes, MappingType::cached),
        pages_(std::move(pages)) {}

 private:
  const std::shared_ptr<const void> pages_;  // stand-in memory stays while a window shows it, as GPU memory does
};

class HostBackend final : public Backend {
 public:
  HostBackend() : Backend(MappingBackend::host) {}

  Availability availability(int device) override {
    const auto runtime = active_runtime();
    if (!runtime) return availability_of(runtime.error().record());
    if (device < 0 || *runtime == &stand_in_runtime()) return {AvailabilityCode::ok, "host memory", {}, {}};
    return not_supported(text("device ", device, " is a GPU; its memory is not host memory"), "use a backend that maps BAR1");
  }

  Availability can_map(const PointerInfo& memory) override {
    if (memory.kind == MemoryKind::host_pinned || memory.kind == MemoryKind::stand_in) return {};
    return not_supported(text("it serves pinned host memory and stand-ins, not ", name_of(memory.kind), " memory"), {});
  }

  Result<std::unique_ptr<Window>> open(const PointerInfo& memory, const WindowRequest& request) override {
    // Stand-in memory is kept from children where it is allocated; other host memory is the application's to decide about.
    if (memory.kind == MemoryKind::stand_in && request.is_inherited) {
      system_calls().madvise(reinterpret_cast<void*>(memory.base), memory.length_bytes, MADV_DOFORK);
    }
    return std::unique_ptr<Window>(new HostWindow(memory, runtime_of(memory).hold(memory.base)));
  }

  bool needs_proof() const override { return false; }
};

}  // namespace

Backend& host_backend() {
  static auto* const instance = new HostBackend;
  return *instance;
}

}  // namespace gigabar::inline v0
