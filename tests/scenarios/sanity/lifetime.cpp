// SPDX-License-Identifier: Apache-2.0
// Freed memory, closed sessions, repeated cycles.
#include <fmt/format.h>

#include <optional>

#include "base/counted.hpp"
#include "scenarios/sanity/scenario.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kBytes = 256 << 10;

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

}  // namespace

void add_lifetime(Table& table) {
  table.add("access_after_free", "freed memory under a mapping stays, and is nobody else's", access_after_free,
            "invalidation_access_after_free_cumemalloc", "invalidation_access_after_free_vmmalloc");
  table.add("access_after_close", "a closed session's mappings are gone", access_after_close,
            "invalidation_access_after_gdr_close_cumemalloc", "invalidation_access_after_gdr_close_vmmalloc");
  table.add("two_mappings", "the end of one mapping of a block leaves the other alone", two_mappings,
            "invalidation_two_mappings_cumemalloc", "invalidation_two_mappings_vmmalloc");
  table.add("freed_and_allocated_again", "new memory at an old address is never shown as the old one", freed_and_allocated_again);
}

}  // namespace gigabar::tool
