// SPDX-License-Identifier: Apache-2.0
// Freed memory, closed sessions, repeated cycles.
#include <dirent.h>
#include <fmt/format.h>

#include <fstream>
#include <optional>

#include "base/counted.hpp"
#include "sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kBytes = 256 << 10;

std::size_t open_descriptor_count() {
  std::size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) fail("cannot read /proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Lines of /proc/self/maps, without the heap and the anonymous ones that malloc makes and merges as it likes.
std::size_t file_mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('/') != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

void access_after_free(const Context& context) {
  // Larger than the blocks that CUDA cuts small allocations from: those it gives out again itself, without the driver's knowledge.
  constexpr std::size_t kOwnBlock = std::size_t{4} << 20;
  const auto session = open_session();
  std::optional<DeviceMemory> memory(allocate(context, kOwnBlock));
  const GdrBuffer buffer(session->get(), memory->address(), kOwnBlock);
  const Pattern pattern(9);
  std::vector<std::byte> data(kOwnBlock);
  pattern.fill(data);
  buffer.write(0, data);
  memory.reset();
  // Persistent mappings: the pages stay with the mapping, no signal, and nobody else gets them meanwhile.
  pattern.poison(data);
  buffer.read(0, data);
  if (const auto wrong = pattern.compare(data))
    fail("after the memory was freed the mapping lost its pages: " + wrong->to_string());
  const DeviceMemory other = allocate(context, kOwnBlock);
  const EngineView view(other);
  std::vector<std::byte> zeros(kOwnBlock);
  view.write(0, zeros);
  pattern.fill(data);
  buffer.write(0, data);
  std::vector<std::byte> found(kOwnBlock);
  view.read(0, found);
  expect(found == zeros, "a write through the mapping of freed memory changed memory that was allocated later");
}

void access_after_close(const Context& context) {
  auto session = open_session();
  std::optional<DeviceMemory> memory(allocate(context, kBytes));
  GdrBuffer buffer(session->get(), memory->address(), kBytes);
  const gdr_mh_t handle = buffer.handle();
  const std::byte* const address = buffer.address();
  expect(!load_faults(address), "the mapping cannot be read while the session is open");
  memory.reset();
  buffer.forget();
  gdr_t g = session->release();
  expect_code(gdr_close(g), 0, "gdr_close of a session with a mapped buffer");
  std::byte word[8] = {};
  expect(gdr_copy_from_mapping(handle, word, address, sizeof word) != 0, "gdr_copy_from_mapping works after gdr_close");
  expect(gdr_close(g) != 0, "a session can be closed twice");
  expect(load_faults(address), "the mapping can still be read after gdr_close");
}

void two_mappings(const Context& context) {
  const auto session = open_session();
  const DeviceMemory memory = allocate(context, kBytes);
  const EngineView view(memory);
  GdrBuffer first(session->get(), memory.address(), kBytes);
  GdrBuffer second(session->get(), static_cast<std::byte*>(memory.address()) + 4096, kBytes - 4096);
  expect(first.handle().h != second.handle().h, "two pins share one handle");
  expect_both_ways(first, view, 0, kBytes);
  expect_both_ways(second, view, 4096, kBytes - 4096);
  first.unmap();
  expect_both_ways(second, view, 4096, kBytes - 4096);
  first.unpin();
  trim_mapping_cache(0);
  expect_both_ways(second, view, 4096, kBytes - 4096);
}

void freed_and_allocated_again(const Context& context) {
  // The allocator likes to give the same address again; the cache of mappings must notice that it is other memory.
  std::size_t same_address_count = 0;
  const void* last = nullptr;
  for (std::uint64_t pass = 0; pass < 50; ++pass) {
    const auto session = open_session();
    if (pass % 2 == 1) trim_mapping_cache(0);  // a window that is kept can also keep the address from being given again
    const DeviceMemory memory = allocate(context, kBytes);
    same_address_count += memory.address() == last ? 1 : 0;
    last = memory.address();
    const GdrBuffer buffer(session->get(), memory.address(), kBytes);
    expect_both_ways(buffer, EngineView(memory), 0, kBytes);
  }
  if (same_address_count == 0) waive("the data is right, but the allocator never gave the same address twice");
}

void leaks(const Context& context) {
  const auto cycle = [&] {
    const auto session = open_session();
    const DeviceMemory memory = allocate(context, kBytes);
    const GdrBuffer buffer(session->get(), memory.address(), kBytes);
    const std::byte one{1};
    buffer.write(0, {&one, 1});
  };
  for (int i = 0; i < 20; ++i) cycle();
  trim_mapping_cache(0);
  const std::size_t descriptors = open_descriptor_count();
  const std::size_t mappings = file_mapping_count();
  for (int i = 0; i < 1000; ++i) cycle();
  trim_mapping_cache(0);
  const std::size_t descriptors_after = open_descriptor_count();
  const std::size_t mappings_after = file_mapping_count();
  expect(descriptors_after <= descriptors, fmt::format("1000 cycles left {} descriptors open ({} before, {} after)",
                                                       descriptors_after - descriptors, descriptors, descriptors_after));
  expect(mappings_after <= mappings, fmt::format("1000 cycles left {} ({} before, {} after)",
                                                 counted(mappings_after - mappings, "mapping"), mappings, mappings_after));
  const MappingCacheStatistics cache = mapping_cache_statistics();
  expect(cache.window_count == 0, fmt::format("{} windows are left without a user", cache.window_count));
}

}  // namespace gigabar::tool
