// SPDX-License-Identifier: Apache-2.0
// discover_topology, and the questions that a Topology answers about itself.
#include "gigabar/topology.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"
#include "platform/host_memory.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::topology_parts {
namespace {

constexpr std::size_t kMaxNotes = 32;
constexpr std::uint64_t kMaxCpus = 8192;  // CONFIG_NR_CPUS of the kernel is at most that on every architecture

// What /sys says of a node replaces what hwloc does: there a node of memory alone has the CPUs near it.
void read_node_files(const SystemFiles& files, NumaNode& node) {
  const std::string folder = text("/sys/devices/system/node/node", node.index);
  if (const auto list = files.word(folder + "/cpulist")) node.cpus = parse_number_list(*list, kMaxCpus).numbers;
  if (node.memory_bytes == 0) node.memory_bytes = number_behind(files.read(folder + "/meminfo").content, "MemTotal").value_or(0);
}

}  // namespace

void Notes::add(std::string note) {
  if (notes_.size() < kMaxNotes) {
    notes_.push_back(std::move(note));
  } else {
    ++left_out_;
  }
}

std::vector<std::string> Notes::take() && {
  if (left_out_ != 0) notes_.push_back(text("and ", left_out_, " more of this kind"));
  return std::move(notes_);
}

std::vector<std::string> names_in(const Sources& from, const std::string& folder) {
  FolderNames listed = from.files.list(folder);
  if (!listed.reason.empty()) from.notes.add(text(folder, " cannot be listed (", listed.reason, "): what is in it is not known"));
  return std::move(listed.names);
}

PciIndex::PciIndex(const std::vector<PciNode>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) by_address_.emplace(key_of(nodes[i].address), static_cast<int>(i));
}

int PciIndex::find(const PciAddress& address) const {
  const auto found = by_address_.find(key_of(address));
  return found == by_address_.end() ? -1 : found->second;
}

double leading_number(std::string_view text, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const bool is_whole_word = end == text.data() + text.size() || *end == ' ';
  return error == std::errc{} && is_whole_word && number >= 0 && number <= most ? number : 0;
}

std::vector<NumaNode> read_numa_nodes(const Sources& from) {
  std::map<int, NumaNode> nodes;
  for (const hwloc::NumaObject& object : from.objects.numa_nodes) {
    if (object.os_index > 0xffff) continue;
    const int index = static_cast<int>(object.os_index);
    nodes.emplace(index, NumaNode{index, object.package, object.cpus, object.memory_bytes});
  }
  for (const std::string& name : names_in(from, "/sys/devices/system/node")) {
    const auto index = name.starts_with("node") ? parse_number(std::string_view(name).substr(4), 0, 0xffff) : std::nullopt;
    if (index) nodes.emplace(static_cast<int>(*index), NumaNode{static_cast<int>(*index), -1, {}, 0});
  }
  std::vector<NumaNode> listed;
  for (auto& [index, node] : nodes) {
    read_node_files(from.files, node);
    listed.push_back(std::move(node));
  }
  if (listed.empty()) from.notes.add("the machine's files tell of no NUMA node");
  return listed;
}

}  // namespace gigabar::topology_parts

namespace gigabar::inline v0 {
namespace {

// A tree that hwloc makes nothing of is still read from its files; one that it crashes on is not.
Result<hwloc::Discovery> objects_of(const Machine& machine, topology_parts::Notes& notes) {
  const Availability& hwloc_is = hwloc::availability();
  if (!hwloc_is.is_ok()) {
    return make_error(Status::not_supported, "topology", machine.origin(), text("hwloc cannot be used: ", hwloc_is.reason),
                      hwloc_is.remedy, hwloc_is.native);
  }
  // A signal that ends the program waits until the copy is gone.
  const BlockedSignals blocked;
  const auto root = machine.files().folder_on_disk();
  if (!root) return root.error();
  auto objects = hwloc::discover(root->path(), machine.origin());
  if (objects || objects.status() != Status::not_supported) return objects;
  notes.add(text(objects.error().record().cause, ": packages are not known, everything else is read from its files"));
  return hwloc::Discovery{};
}

// By PCI address, those without one last, then by name.
void put_in_order(std::vector<Nic>& nics, const std::vector<PciNode>& pci) {
  std::ranges::sort(nics, {}, [&](const Nic& nic) {
    const auto address = nic.pci < 0 ? UINT64_MAX : topology_parts::key_of(pci[static_cast<std::size_t>(nic.pci)].address);
    return std::pair(address, std::string_view(nic.name));
  });
}

// More than any machine has, virtual functions left aside. Checks look at every pair, and a hostile tree must not make them
// endless.
constexpr std::size_t kMaxGpus = 64;
constexpr std::size_t kMaxNics = 256;

template <class Device>
void keep_first(std::vector<Device>& devices, std::size_t most, const char* what, topology_parts::Notes& notes) {
  if (devices.size() <= most) return;
  notes.add(text("of ", devices.size(), " ", what, " only the first ", most, " are looked at"));
  devices.resize(most);
}

// A device whose node the machine does not tell (the kernel says -1, in virtual machines most of all) is on the only one there is.
void place_on_the_only_node(Topology& found) {
  const NumaNode* only = nullptr;
  for (const NumaNode& node : found.numa_nodes) {
    if (node.cpus.empty()) continue;
    if (only != nullptr) return;
    only = &node;
  }
  if (only == nullptr) return;
  for (PciNode& device : found.pci) {
    if (device.numa_node < 0) device.numa_node = only->index;
  }
}

}  // namespace

Result<Topology> discover_topology(const Machine& machine) try {
  const Uncancelled uncancelled;
  topology_parts::Notes notes;
  const auto objects = objects_of(machine, notes);
  if (!objects) return objects.error();
  const topology_parts::Sources from{machine.files(), *objects, machine.answers(), notes};
  Topology found;
  found.pci = topology_parts::read_pci(from);
  found.numa_nodes = topology_parts::read_numa_nodes(from);
  place_on_the_only_node(found);
  found.gpus = topology_parts::read_gpus(from, found.pci);
  keep_first(found.gpus, kMaxGpus, "GPUs", notes);
  found.nics = topology_parts::read_nics(from, found.pci);
  put_in_order(found.nics, found.pci);
  keep_first(found.nics, kMaxNics, "NICs", notes);
  found.nvlinks = topology_parts::read_nvlinks(from, found.pci, found.gpus);
  found.notes = std::move(notes).take();
  return found;
} catch (...) {
  return error_of_exception("discover_topology");
}

int Topology::find_pci(const PciAddress& address) const noexcept {
  const auto place = std::ranges::find(pci, address, &PciNode::address);
  return place == pci.end() ? -1 : static_cast<int>(place - pci.begin());
}

int Topology::find_nic(std::string_view name) const noexcept {
  const auto first = [this](const auto& is_it) {
    const auto place = std::find_if(nics.begin(), nics.end(), is_it);
    return place == nics.end() ? -1 : static_cast<int>(place - nics.begin());
  };
  if (name.empty()) return -1;
  if (const int found = first([&](const Nic& nic) { return nic.name == name || nic.rdma_device == name; }); found >= 0)
    return found;
  return first([&](const Nic& nic) { return std::ranges::find(nic.net_devices, name, &NetDevice::name) != nic.net_devices.end(); });
}

int Topology::find_numa_node(int number) const noexcept {
  const auto place = std::ranges::find(numa_nodes, number, &NumaNode::index);
  return place == numa_nodes.end() ? -1 : static_cast<int>(place - numa_nodes.begin());
}

double Nic::rate_gbit_per_s() const noexcept {
  double rate = 0;
  for (const RdmaPort& port : ports) {
    if (port.state == "ACTIVE") rate += port.rate_gbit_per_s;
  }
  if (!ports.empty()) return rate;
  for (const NetDevice& device : net_devices) {
    if (device.state == "up") rate += device.gbit_per_s.value_or(0);
  }
  return rate;
}

}  // namespace gigabar::inline v0
