// SPDX-License-Identifier: Apache-2.0
// Every scenario, and which of GDRCopy's tests name the same behaviour.
#include "sanity/scenario.hpp"

namespace gigabar::tool {
namespace {

constexpr auto kVmm = DeviceAllocator::vmm;

// NOLINTNEXTLINE(readability-identifier-naming): a constant that holds functions cannot be constexpr
const Scenario kScenarios[] = {
    {"attributes", "attributes, versions and names are told, unknown ones refused", "attributes_sanity", attributes},
    {"pin_map_unmap", "pin, map, info, unmap, unpin, and all of it again", "basic_cumemalloc", pin_map_unmap},
    {"pin_map_unmap_vmm", "the same for cuMemCreate memory", "basic_vmmalloc", pin_map_unmap, kVmm},
    {"pin_map_v2", "the second versions work; a mapping type that is not there is refused", "basic_v2_cumemalloc", pin_map_v2},
    {"pin_map_v2_vmm", "the same for cuMemCreate memory", "basic_v2_vmmalloc", pin_map_v2, kVmm},
    {"force_pcie", "FORCE_PCIE works where the attribute says so and is refused elsewhere", "basic_v2_forcepci_cumemalloc",
     force_pcie},
    {"force_pcie_vmm", "the same for cuMemCreate memory", "basic_v2_forcepci_vmmalloc", force_pcie, kVmm},
    {"tokens_refused", "a token is refused, since mappings are persistent", "basic_with_tokens", tokens_refused},
    {"unaligned_addresses", "any address and length can be pinned and mapped", "basic_unaligned_mapping", unaligned_addresses},
    {"small_buffers_in_one_page", "buffers that share a GPU page do not disturb each other", "basic_small_buffers_mapping",
     small_buffers_in_one_page},
    {"thread_pins", "a buffer pinned by a child thread works in its parent", "basic_child_thread_pins_buffer_cumemalloc",
     thread_pins},
    {"thread_pins_vmm", "the same for cuMemCreate memory", "basic_child_thread_pins_buffer_vmmalloc", thread_pins, kVmm},
    {"many_threads", "eight threads pin, map, copy and unmap in one session", "", many_threads},
    {"wrong_calls_refused", "null, zero, overflow, out of range, twice, too late: each its documented error", "",
     wrong_calls_refused},
    {"wrong_memory_refused", "host memory, freed memory and ranges beyond the allocation are refused", "", wrong_memory_refused},
    {"more_than_4_gib", "a block of more than 4 GiB is mapped in one piece", "", more_than_4_gib},
    {"two_devices", "each device's mapping shows its own memory, never the other's", "", two_devices},
    {"data_small", "every size to 130 bytes at every alignment, guard bytes on both sides", "data_validation_cumemalloc",
     data_small},
    {"data_small_vmm", "the same for cuMemCreate memory", "data_validation_vmmalloc", data_small, kVmm},
    {"data_large", "327680 bytes at odd offsets of both sides", "data_validation_cumemalloc", data_large},
    {"data_large_vmm", "the same for cuMemCreate memory", "data_validation_vmmalloc", data_large, kVmm},
    {"data_v2", "data through a mapping of a required type", "data_validation_v2_cumemalloc", data_v2},
    {"data_force_pcie", "data through a FORCE_PCIE pin", "data_validation_v2_forcepci_cumemalloc", data_force_pcie},
    {"mixed_mappings", "mappings of two types used in turns", "data_validation_mix_mappings_cumemalloc", mixed_mappings},
    {"no_stale_reads", "a read returns what the GPU holds now, also right after an earlier read of the same lines", "",
     no_stale_reads},
    {"publish_data_then_flag", "publish and batch store what they say, and nothing when they refuse", "", publish_data_then_flag},
    {"access_after_free", "freed memory under a mapping stays, and is nobody else's", "invalidation_access_after_free_cumemalloc",
     access_after_free},
    {"access_after_free_vmm", "the same for cuMemCreate memory", "invalidation_access_after_free_vmmalloc", access_after_free,
     kVmm},
    {"access_after_close", "a closed session's mappings are gone", "invalidation_access_after_gdr_close_cumemalloc",
     access_after_close},
    {"access_after_close_vmm", "the same for cuMemCreate memory", "invalidation_access_after_gdr_close_vmmalloc",
     access_after_close, kVmm},
    {"two_mappings", "the end of one mapping of a block leaves the other alone", "invalidation_two_mappings_cumemalloc",
     two_mappings},
    {"two_mappings_vmm", "the same for cuMemCreate memory", "invalidation_two_mappings_vmmalloc", two_mappings, kVmm},
    {"freed_and_allocated_again", "new memory at an old address is never shown as the old one", "", freed_and_allocated_again},
    {"fork_child_touches_mapping", "a forked child cannot use the parent's mapping", "invalidation_fork_after_gdr_map_cumemalloc",
     fork_child_touches_mapping},
    {"fork_child_touches_mapping_vmm", "the same for cuMemCreate memory", "invalidation_fork_after_gdr_map_vmmalloc",
     fork_child_touches_mapping, kVmm},
    {"fork_access_after_free", "nor after the parent freed the memory", "invalidation_fork_access_after_free_cumemalloc",
     fork_access_after_free},
    {"fork_access_after_free_vmm", "the same for cuMemCreate memory", "invalidation_fork_access_after_free_vmmalloc",
     fork_access_after_free, kVmm},
    {"fork_child_maps_parents_pin", "nor map what the parent pinned", "invalidation_fork_child_gdr_map_parent_cumemalloc",
     fork_child_maps_parents_pin},
    {"fork_child_maps_parents_pin_vmm", "the same for cuMemCreate memory", "invalidation_fork_child_gdr_map_parent_vmmalloc",
     fork_child_maps_parents_pin, kVmm},
    {"fork_child_pins_parents_memory", "nor pin the parent's memory, with tokens or without",
     "invalidation_fork_child_gdr_pin_parent_with_tokens", fork_child_pins_parents_memory},
    {"fork_child_ends_parents_session", "nor end the parent's session; the parent goes on undisturbed",
     "invalidation_fork_map_and_free_cumemalloc", fork_child_ends_parents_session},
    {"fork_child_ends_parents_session_vmm", "the same for cuMemCreate memory", "invalidation_fork_map_and_free_vmmalloc",
     fork_child_ends_parents_session, kVmm},
    {"fork_inherits_when_asked", "a child reads a mapping that was made to be inherited", "", fork_inherits_when_asked},
    {"socket_peer_maps", "another process cannot map this one's memory with what it is told over a socket",
     "invalidation_unix_sock_shared_fd_gdr_map_cumemalloc", socket_peer_maps},
    {"socket_peer_maps_vmm", "the same for cuMemCreate memory", "invalidation_unix_sock_shared_fd_gdr_map_vmmalloc",
     socket_peer_maps, kVmm},
    {"socket_peer_pins", "nor pin it", "invalidation_unix_sock_shared_fd_gdr_pin_buffer_cumemalloc", socket_peer_pins},
    {"socket_peer_pins_vmm", "the same for cuMemCreate memory", "invalidation_unix_sock_shared_fd_gdr_pin_buffer_vmmalloc",
     socket_peer_pins, kVmm},
    {"leaks", "1000 cycles leave no descriptor, no mapping and no window", "leakage_pin_pages_fork_cumemalloc", leaks,
     DeviceAllocator::cuda_malloc, true},
};

}  // namespace

std::span<const Scenario> scenarios() { return kScenarios; }

}  // namespace gigabar::tool
