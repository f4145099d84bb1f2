// SPDX-License-Identifier: Apache-2.0
// The PCI tree: /sys/bus/pci/devices says what there is, and the folders behind its links what is below what.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/options.hpp"
#include "platform/pci_link.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::topology_parts {
namespace {

constexpr const char* kDevices = "/sys/bus/pci/devices";

// "0x10de"; nothing for other text.
std::optional<std::uint32_t> number_in(std::string_view text, std::uint32_t most) {
  return text.starts_with("0x") ? hexadecimal(text.substr(2), most) : std::nullopt;
}

// Source: kernel, Documentation/ABI/testing/sysfs-bus-pci: current_link_speed, current_link_width, max_link_speed, max_link_width.
PciLinkFacts read_link(const SystemFiles& files, const std::string& folder) {
  const auto word = [&](const char* name) { return files.word(folder + name).value_or(""); };
  PciLinkFacts link;
  link.gt_per_s = link_speed_in(word("/current_link_speed"));
  link.width = link_lanes_in(word("/current_link_width"));
  link.most_gt_per_s = link_speed_in(word("/max_link_speed"));
  link.most_width = link_lanes_in(word("/max_link_width"));
  return link;
}

int read_numa_node(const SystemFiles& files, const std::string& folder) {
  const auto node = parse_number(files.word(folder + "/numa_node").value_or(""), 0, 0xffff);
  return node ? static_cast<int>(*node) : -1;
}

bool is_bridge_class(std::uint32_t class_code) { return class_code >> 8 == 0x0604 || class_code >> 8 == 0x0609; }

// A device and the folder it really is, "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0".
struct Found {
  PciNode node;
  std::string path;
};

std::optional<Found> read_device(const Sources& from, const std::string& name) {
  const auto address = PciAddress::parse(name);
  // Other spellings of the same address ("0:3b:0.0") would be the device twice.
  if (!address || address->to_string() != name) {
    from.notes.add(text("a folder in ", kDevices, " has no name of a PCI device and is left out"));
    return {};
  }
  const std::string folder = text(kDevices, "/", name);
  Found found;
  PciNode& node = found.node;
  node.address = *address;
  found.path = from.files.real_path(folder).value_or(folder);
  const auto class_code = number_in(from.files.word(folder + "/class").value_or(""), 0xffffff);
  if (!class_code) from.notes.add(text(name, ": its class cannot be read, so it is not known what it is"));
  node.class_code = class_code.value_or(0);
  node.vendor = static_cast<std::uint16_t>(number_in(from.files.word(folder + "/vendor").value_or(""), 0xffff).value_or(0));
  node.device = static_cast<std::uint16_t>(number_in(from.files.word(folder + "/device").value_or(""), 0xffff).value_or(0));
  node.is_bridge = is_bridge_class(node.class_code);
  node.numa_node = read_numa_node(from.files, folder);
  node.link = read_link(from.files, folder);
  node.driver = from.files.link_name(folder + "/driver").value_or("");
  return found;
}

// "pci0000:3a": the last folder of that form above the device. A bus behind a device of another kind (Intel VMD, Hyper-V) begins
// anew there.
std::string root_complex_of(const std::filesystem::path& path) {
  std::string root;
  for (const std::filesystem::path& part : path) {
    const std::string& name = part.native();
    if (name.starts_with("pci") && name.find(':') != std::string::npos) root = name;
  }
  return root;
}

// Sorted by folder, a device comes after the one that it is below, whatever links say: its folder is longer.
std::vector<PciNode> joined(std::vector<Found> devices, Notes& notes) {
  const auto order = [](const Found& found) { return std::make_tuple(std::string_view(found.path), key_of(found.node.address)); };
  std::sort(devices.begin(), devices.end(), [&](const Found& a, const Found& b) { return order(a) < order(b); });
  std::map<std::string_view, int> by_path;
  std::vector<PciNode> nodes;
  for (Found& found : devices) {
    const std::string_view path = found.path;
    const std::size_t slash = std::min(path.rfind('/'), path.size());
    const auto above = by_path.find(path.substr(0, slash));
    if (above != by_path.end()) found.node.parent = above->second;
    found.node.root_complex = root_complex_of(path.substr(0, slash));
    if (found.node.root_complex.empty()) {
      notes.add(text(found.node.address.to_string(), ": its place in the PCI tree is not known, ", kDevices, " has no link to it"));
    }
    by_path.emplace(path, static_cast<int>(nodes.size()));
    nodes.push_back(std::move(found.node));
  }
  return nodes;
}

// Names, and devices that only hwloc sees.
void add_objects(const std::vector<hwloc::PciObject>& objects, std::vector<PciNode>& nodes) {
  const PciIndex index(nodes);
  for (const hwloc::PciObject& object : objects) {
    const int known = index.find(object.address);
    if (known >= 0) {
      nodes[static_cast<std::size_t>(known)].name = object.name;
      continue;
    }
    PciNode node;
    node.address = object.address;
    node.vendor = object.vendor;
    node.device = object.device;
    node.class_code = std::uint32_t{object.class_code} << 8;
    node.is_bridge = object.is_bridge;
    node.name = object.name;
    nodes.push_back(std::move(node));
  }
}

}  // namespace

std::vector<PciNode> read_pci(const Sources& from) {
  std::vector<Found> devices;
  const std::vector<std::string> names = names_in(from, kDevices);
  if (names.size() >= kMaxNames) from.notes.add(text("only the first ", kMaxNames, " PCI devices are read"));
  for (const std::string& name : names) {
    if (auto found = read_device(from, name)) devices.push_back(std::move(*found));
  }
  std::vector<PciNode> nodes = joined(std::move(devices), from.notes);
  add_objects(from.objects.pci, nodes);
  if (nodes.empty()) from.notes.add(text("no PCI devices: ", kDevices, " is empty, or cannot be read"));
  return nodes;
}

}  // namespace gigabar::topology_parts
