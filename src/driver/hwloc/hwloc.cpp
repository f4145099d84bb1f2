// SPDX-License-Identifier: Apache-2.0
#include "driver/hwloc/hwloc.hpp"

#if GIGABAR_HAS_HWLOC
#include <hwloc.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.hpp"
#include "base/json.hpp"
#include "base/output_file.hpp"
#include "driver/hwloc/child.hpp"
#include "driver/loader.hpp"

namespace gigabar::inline v0 {
#if GIGABAR_HAS_HWLOC
// What the child tells: {"pci": [[domain, bus, ...], ...], "numa": [[index, cpus, ...], ...]}, or {"errno": 22}.
template <>
struct json::Columns<hwloc::PciObject> {
  static void each(const auto& column, auto& object) {
    column(object.address.domain);
    column(object.address.bus);
    column(object.address.device);
    column(object.address.function);
    column(object.vendor);
    column(object.device);
    column(object.class_code);
    column(object.is_bridge);
    column(object.name);
  }
};
template <>
struct json::Columns<hwloc::NumaObject> {
  static void each(const auto& column, auto& node) {
    column(node.os_index);
    column(node.cpus);
    column(node.memory_bytes);
    column(node.package);
  }
};
template <>
struct json::Fields<hwloc::Discovery> {
  static void each(auto& field, auto& found) {
    field.needed("pci", found.pci);
    field.needed("numa", found.numa_nodes);
  }
};
#endif

}  // namespace gigabar::inline v0

namespace gigabar::hwloc {
#if GIGABAR_HAS_HWLOC
namespace {

constexpr const char* kOperation = "topology";
constexpr std::size_t kMaxObjects = 400'000;  // of a machine
constexpr int kMaxCpus = 65536;
constexpr json::Limits kLimits{.whole = "its answer",
                               .is_exact = false,
                               .depth = 4,
                               .values = std::size_t{1} << 24,
                               .entries = kMaxObjects,
                               .text_bytes = 4096};

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
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PCI_DEVICE}) {
    lib.hwloc_topology_set_type_filter(topology, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  }
  if (lib.hwloc_topology_set_components == nullptr) return;
  // A name that this library does not know is refused, and there is nothing to be left out then.
  for (const char* name : kUnwanted) {
    lib.hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
  }
}

// Null with errno when the library finds no machine.
Loaded load_machine() {
  hwloc_topology_t topology = nullptr;
  if (library().hwloc_topology_init(&topology) != 0) return {};
  Loaded loaded(topology);
  choose_what_to_read(topology);
  if (library().hwloc_topology_load(topology) == 0) return loaded;
  const int code = errno;
  loaded.reset();
  errno = code;
  return {};
}

const char* info_of(const hwloc_obj& object, std::string_view name) {
  for (unsigned i = 0; i < object.infos_count; ++i) {
    if (name == object.infos[i].name) return object.infos[i].value;
  }
  return "";
}

PciObject pci_object(const hwloc_obj& object, const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
  PciObject found;
  found.address = {pci.domain, pci.bus, pci.dev, pci.func};
  found.vendor = pci.vendor_id;
  found.device = pci.device_id;
  found.class_code = pci.class_id;
  found.is_bridge = object.type == HWLOC_OBJ_BRIDGE;
  const std::string_view vendor = info_of(object, "PCIVendor");
  found.name = text(vendor, vendor.empty() ? "" : " ", info_of(object, "PCIDevice"));
  return found;
}

std::vector<int> cpus_in(hwloc_const_bitmap_t set) {
  std::vector<int> cpus;
  if (set == nullptr) return cpus;
  for (int cpu = library().hwloc_bitmap_next(set, -1); cpu >= 0 && cpu < kMaxCpus; cpu = library().hwloc_bitmap_next(set, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

void add_object(const hwloc_obj& object, Discovery& found) {
  if (object.type == HWLOC_OBJ_NUMANODE) {
    found.numa_nodes.push_back(
        {object.os_index, cpus_in(object.cpuset), object.attr != nullptr ? object.attr->numanode.local_memory : 0, -1});
  } else if (object.type == HWLOC_OBJ_PCI_DEVICE && object.attr != nullptr) {
    found.pci.push_back(pci_object(object, object.attr->pcidev));
  } else if (object.type == HWLOC_OBJ_BRIDGE && object.attr != nullptr &&
             object.attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
    found.pci.push_back(pci_object(object, object.attr->bridge.upstream.pci));
  }
}

struct Package {
  int number;
  std::vector<int> cpus;
};

// The only package that has CPUs of the node; -1 when several do.
int package_of(const NumaObject& node, const std::vector<Package>& packages) {
  int owner = -1;
  for (const Package& package : packages) {
    const bool is_shared = std::any_of(node.cpus.begin(), node.cpus.end(),
                                       [&](int cpu) { return std::binary_search(package.cpus.begin(), package.cpus.end(), cpu); });
    if (!is_shared) continue;
    if (owner >= 0) return -1;
    owner = package.number;
  }
  return owner;
}

// Every object once, with a list of what is still to do instead of recursion: how deep bridges are nested is up to the machine.
Discovery objects_of(hwloc_topology_t topology) {
  Discovery found;
  std::vector<Package> packages;
  std::vector<hwloc_obj_t> waiting{library().hwloc_get_obj_by_depth(topology, 0, 0)};
  for (std::size_t count = 0; !waiting.empty() && count < kMaxObjects; ++count) {
    hwloc_obj_t object = waiting.back();
    waiting.pop_back();
    if (object == nullptr) continue;
    add_object(*object, found);
    if (object->type == HWLOC_OBJ_PACKAGE) packages.push_back({static_cast<int>(object->os_index), cpus_in(object->cpuset)});
    // Each list's first child, and the next one of this object's own list.
    for (hwloc_obj_t next : {object->next_sibling, object->io_first_child, object->memory_first_child, object->first_child}) {
      if (next != nullptr) waiting.push_back(next);
    }
  }
  for (NumaObject& node : found.numa_nodes) node.package = package_of(node, packages);
  return found;
}

Error no_machine(const std::string& name, int code) {
  return make_error(Status::not_supported, kOperation, name, "hwloc finds no machine there", {}, errno_code(code));
}

Result<Discovery> discover_here(const std::string& name) {
  const Loaded loaded = load_machine();
  if (loaded == nullptr) return no_machine(name, errno);
  return objects_of(loaded.get());
}

// Runs in the child. Only the Linux component reads files below a root, and plug-ins that need other libraries are not looked for.
void tell_of(const std::string& root, int descriptor) {
  ::setenv("HWLOC_FSROOT", root.c_str(), 1);
  ::setenv("HWLOC_THISSYSTEM", "0", 1);
  ::setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  ::setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1);
  ::setenv("HWLOC_DUMPED_HWDATA_DIR", "/nonexistent", 1);
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
  const Loaded loaded = load_machine();
  // A reader that has gone needs no answer.
  (void)write_all(descriptor,
                  loaded != nullptr ? json::to_text(objects_of(loaded.get()), kLimits) : text("{\"errno\": ", errno, "}"));
}

Result<Discovery> discover_elsewhere(const std::string& root, const std::string& name) {
  auto output = output_of_child([&](int descriptor) { tell_of(root, descriptor); }, name, {});
  if (!output) return std::move(output).error();
  return parse_output(*output, name);
}

}  // namespace

Result<Discovery> parse_output(std::string_view output, const std::string& name) {
  try {
    Discovery found;
    std::optional<int> code;
    json::parse(output, kLimits, [&](const json::Value& document) {
      if (const auto told = document.member("errno")) json::read(*told, code.emplace());
      if (!code) json::read(document, found);
    });
    if (code) return no_machine(name, *code);
    return found;
  } catch (const json::Problem& problem) {
    return make_error(Status::bad_file, kOperation, name, "the process that read it told nonsense: " + problem.text());
  }
}

const Availability& availability() { return library().availability; }

Result<Discovery> discover(const std::string& root, const std::string& name) {
  // Opened before a child is forked: see output_of_child.
  if (!availability().is_ok()) {
    return make_error(Status::not_supported, kOperation, name, text("hwloc cannot be used: ", availability().reason),
                      availability().remedy, availability().native);
  }
  // One at a time: a child forked while another thread is inside hwloc would find its locks taken for ever.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  return root == "/" ? discover_here(name) : discover_elsewhere(root, name);
}

#else

const Availability& availability() {
  static const Availability instance{
      AvailabilityCode::not_built, "built without hwloc's header", "install libhwloc-dev and build Gigabar again", {}};
  return instance;
}

Result<Discovery> discover(const std::string&, const std::string& name) {
  return make_error(Status::not_supported, "topology", name, text("hwloc cannot be used: ", availability().reason),
                    availability().remedy);
}

#endif
}  // namespace gigabar::hwloc
