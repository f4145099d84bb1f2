// SPDX-License-Identifier: Apache-2.0
// Maps one buffer after another, as a communication library does that maps what its callers give it. Buffers of one allocation
// share a window, and an idle window is found again. When BAR1 is full, the program releases its idle windows and tries once more.
#include <cstdio>
#include <gigabar/mapping.hpp>

// Each failure says what would help: only a full BAR1 is worth a second try here.
gigabar::Result<gigabar::Mapping> map_or_make_space(const void* address, std::size_t bytes) {
  auto mapping = gigabar::map(address, bytes);
  if (mapping.status() != gigabar::Status::out_of_bar1) return mapping;
  std::printf("BAR1 is full; %zu bytes of idle windows released\n", gigabar::trim_mapping_cache());
  return gigabar::map(address, bytes);
}

int main() {
  constexpr std::size_t kBuffers = 16, kBufferBytes = 65536;
  auto memory = gigabar::DeviceMemory::allocate(0, kBuffers * kBufferBytes);
  if (!memory) return std::puts(memory.message().c_str()), 1;

  std::size_t shared_count = 0;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    auto mapping = map_or_make_space(static_cast<std::byte*>(memory->address()) + i * kBufferBytes, kBufferBytes);
    if (!mapping) {
      const gigabar::ErrorRecord& record = mapping.error().record();
      std::printf("buffer %zu: %s; cause: %s; remedy: %s\n", i, std::string(name_of(record.status)).c_str(), record.cause.c_str(),
                  record.remedy.c_str());
      return 1;
    }
    shared_count += mapping->report().came_from_cache ? 1 : 0;
  }  // the mapping ends here; its window stays for the next one

  const gigabar::MappingCacheStatistics before = gigabar::mapping_cache_statistics();
  std::printf("%zu of %zu mappings shared a window; %zu windows idle, %zu bytes\n", shared_count, kBuffers, before.idle_count,
              before.idle_bytes);
  // Before another library needs the aperture, or the GPU memory that idle windows keep:
  gigabar::trim_mapping_cache();
  const gigabar::MappingCacheStatistics after = gigabar::mapping_cache_statistics();
  return shared_count > 0 && after.idle_bytes == 0 ? 0 : 1;
}
