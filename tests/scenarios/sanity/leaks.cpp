// SPDX-License-Identifier: Apache-2.0
// Repeated cycles leave nothing behind.
#include <fmt/format.h>

#include "base/counted.hpp"
#include "scenarios/sanity/scenario.hpp"
#include "support/descriptors.hpp"

namespace gigabar::tool {
namespace {

constexpr std::size_t kBytes = 256 << 10;

// Without the heap and the anonymous ones that malloc makes and merges as it likes.
std::size_t file_mapping_count() { return test::mapped_ranges("/"); }

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
  const std::size_t descriptors = test::open_descriptors();
  const std::size_t mappings = file_mapping_count();
  expect(descriptors != 0 && mappings != 0, "/proc/self cannot be read");
  for (int i = 0; i < 1000; ++i) cycle();
  trim_mapping_cache(0);
  const std::size_t descriptors_after = test::open_descriptors();
  const std::size_t mappings_after = file_mapping_count();
  expect(descriptors_after <= descriptors, fmt::format("1000 cycles left {} descriptors open ({} before, {} after)",
                                                       descriptors_after - descriptors, descriptors, descriptors_after));
  expect(mappings_after <= mappings, fmt::format("1000 cycles left {} ({} before, {} after)",
                                                 counted(mappings_after - mappings, "mapping"), mappings, mappings_after));
  const MappingCacheStatistics cache = mapping_cache_statistics();
  expect(cache.window_count == 0, fmt::format("{} windows are left without a user", cache.window_count));
}

}  // namespace

void add_leaks(Table& table) {
  table.add("leaks", "1000 cycles leave no descriptor, no mapping and no window", leaks, "leakage_pin_pages_fork_cumemalloc");
  table.last().is_extended = true;
}

}  // namespace gigabar::tool
