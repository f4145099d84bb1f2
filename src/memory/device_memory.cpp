// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

struct DeviceMemory::State : InPlace {
  DeviceBlock block;
  Runtime* runtime = nullptr;  // null while there is no block
  const pid_t process = ::getpid();

  ~State() {
    if (runtime == nullptr || process != ::getpid()) return;  // a forked child's memory is its parent's
    const Uncancelled uncancelled;
    quietly([&] {
      if (Result<void> done = runtime->release(block); !done) log(LogLevel::error, done.message());
    });
  }
};

Result<DeviceMemory> DeviceMemory::allocate(int device, std::size_t bytes, DeviceAllocator allocator) try {
  const Uncancelled uncancelled;
  if (bytes == 0 || bytes > SIZE_MAX / 2) {
    return make_error(Status::invalid_argument, "allocate device memory", counted(bytes, "byte"),
                      "the size must be from 1 byte to half the address space");
  }
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  const auto list = (*runtime)->devices();
  if (!list) return list.error();
  if (device < 0 || static_cast<std::size_t>(device) >= list->size()) {
    return make_error(Status::invalid_argument, "allocate device memory", text("device ", device),
                      text("this process sees ", list->size(), " device(s)"), text("use 0 to ", list->size() - 1));
  }
  // The owner is there before the memory, so that nothing is lost when host memory runs out.
  auto state = std::make_unique<State>();
  const auto block = (*runtime)->allocate(device, bytes, allocator);
  if (!block) return block.error();
  state->block = *block;
  state->runtime = *runtime;
  return DeviceMemory(std::move(state));
} catch (...) {
  return error_of_exception("allocate");
}

DeviceMemory::DeviceMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;
DeviceMemory::~DeviceMemory() = default;

void* DeviceMemory::address() const noexcept { return state_ ? reinterpret_cast<void*>(state_->block.address) : nullptr; }
std::size_t DeviceMemory::bytes() const noexcept { return state_ ? state_->block.bytes : 0; }
int DeviceMemory::device() const noexcept { return state_ ? state_->block.device : -1; }
bool DeviceMemory::is_stand_in() const noexcept { return state_ && state_->runtime == &stand_in_runtime(); }

Result<int> DeviceMemory::export_descriptor() const try {
  const Uncancelled uncancelled;
  if (!state_) return make_error(Status::invalid_argument, "export memory", "DeviceMemory", "was moved from");
  if (!is_stand_in() && state_->block.allocator != DeviceAllocator::vmm) {
    return make_error(Status::not_supported, "export memory", range_text(state_->block.address, state_->block.bytes),
                      "cudaMalloc memory has no POSIX descriptor", "allocate with DeviceAllocator::vmm, or use export_dma_buf");
  }
  return state_->runtime->export_descriptor(state_->block.address);
} catch (...) {
  return error_of_exception("export_descriptor");
}

Result<int> DeviceMemory::export_dma_buf() const try {
  const Uncancelled uncancelled;
  if (!state_) return make_error(Status::invalid_argument, "export dma-buf", "DeviceMemory", "was moved from");
  return state_->runtime->export_dma_buf(state_->block.address, state_->block.bytes);
} catch (...) {
  return error_of_exception("export_dma_buf");
}

}  // namespace gigabar::inline v0
