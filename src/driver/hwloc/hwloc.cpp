// SPDX-License-Identifier: Apache-2.0
#include "driver/hwloc/hwloc.hpp"

#if GIGABAR_HAS_HWLOC
#include <hwloc.h>
#endif

#include <array>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::hwloc {
#if GIGABAR_HAS_HWLOC
namespace {

#define GIGABAR_SYMBOLS "driver/hwloc/symbols.def"
#include "driver/functions.inc"

const LibraryOf<Functions>& library() {
  static const auto instance = load_functions<Functions>(
      "libhwloc.so.15", "GIGABAR_HWLOC_LIBRARY", "install hwloc's library: apt install libhwloc15", "install hwloc 2.0 or newer");
  return instance;
}

struct Destroy {
  void operator()(hwloc_topology_t topology) const { library().hwloc_topology_destroy(topology); }
};
using Loaded = std::unique_ptr<struct hwloc_topology, Destroy>;

// Components that would open other libraries and devices (GPUs' drivers, X servers), or move this thread from CPU to CPU.
constexpr std::array<const char*, 9> kUnwanted{"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "x86", "xml", "synthetic"};

void choose_what_to_read(hwloc_topology_t topology) {
  const LibraryOf<Functions>& lib = library();
  lib.hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  lib.hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE}) {
    lib.hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  }
  if (lib.hwloc_topology_set_components == nullptr) return;
  // A name that this library does not know is refused, and there is nothing to be left out then.
  for (const char* name : kUnwanted) {
    lib.hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
  }
}

// Null when the library finds no machine.
Loaded load_machine() {
  hwloc_topology_t topology = nullptr;
  if (library().hwloc_topology_init(&topology) != 0) return {};
  Loaded loaded(topology);
  choose_what_to_read(topology);
  if (library().hwloc_topology_load(topology) != 0) loaded.reset();
  return loaded;
}

const char* info_of(const hwloc_obj& object, std::string_view name) {
  for (unsigned i = 0; i < object.infos_count; ++i) {
    if (name == object.infos[i].name) return object.infos[i].value;
  }
  return "";
}

// Those of one of the library's lists of devices.
void add_names(hwloc_topology_t topology, int list, std::vector<PciName>& names) {
  const bool is_of_bridges = list == HWLOC_TYPE_DEPTH_BRIDGE;
  for (unsigned i = 0; const hwloc_obj* const object = library().hwloc_get_obj_by_depth(topology, list, i); ++i) {
    if (object->attr == nullptr || (is_of_bridges && object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI)) continue;
    const auto& pci = is_of_bridges ? object->attr->bridge.upstream.pci : object->attr->pcidev;
    const std::string_view vendor = info_of(*object, "PCIVendor");
    names.push_back(
        {{pci.domain, pci.bus, pci.dev, pci.func}, text(vendor, vendor.empty() ? "" : " ", info_of(*object, "PCIDevice"))});
  }
}

}  // namespace

const Availability& availability() { return library().availability; }

std::vector<PciName> pci_names() {
  std::vector<PciName> names;
  if (!availability().is_ok()) return names;
  // One at a time: libpciaccess, which the library reads the names with, has one state for the whole process.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const Loaded loaded = load_machine();
  if (loaded == nullptr) return names;
  for (const int list : {HWLOC_TYPE_DEPTH_BRIDGE, HWLOC_TYPE_DEPTH_PCI_DEVICE}) add_names(loaded.get(), list, names);
  return names;
}

#else

const Availability& availability() {
  static const Availability instance{AvailabilityCode::not_built, "built without hwloc's header",
                                     "install libhwloc-dev and build Gigabar again"};
  return instance;
}

std::vector<PciName> pci_names() { return {}; }

#endif
}  // namespace gigabar::hwloc
