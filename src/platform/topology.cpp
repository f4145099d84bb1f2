// SPDX-License-Identifier: Apache-2.0
// discover_topology, and the questions that a Topology answers about itself.
#include "gigabar/topology.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"
#include "driver/hwloc/hwloc.hpp"
#include "platform/host_memory.hpp"
#include "platform/pci_link.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::topology_parts {
namespace {

constexpr std::size_t kMaxCpus = 8192;  // CONFIG_NR_CPUS of the kernel is at most that on every architecture
constexpr const char* kCpuFolder = "/sys/devices/system/cpu";
constexpr const char* kNodeFolder = "/sys/devices/system/node";

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
  return parse_number<int>(files.word(folder + "/numa_node").value_or(""), 0, 0xffff).value_or(-1);
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
    from.notes.push_back(text("a folder in ", kPciFolder, " has no name of a PCI device and is left out"));
    return {};
  }
  const std::string folder = text(kPciFolder, "/", name);
  Found found;
  PciNode& node = found.node;
  node.address = *address;
  found.path = from.files.real_path(folder).value_or(folder);
  const auto class_code = number_in(from.files.word(folder + "/class").value_or(""), 0xffffff);
  if (!class_code) from.notes.push_back(text(name, ": its class cannot be read, so it is not known what it is"));
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
std::vector<PciNode> joined(std::vector<Found> devices, std::vector<std::string>& notes) {
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
      notes.push_back(
          text(found.node.address.to_string(), ": its place in the PCI tree is not known, ", kPciFolder, " has no link to it"));
    }
    by_path.emplace(path, static_cast<int>(nodes.size()));
    nodes.push_back(std::move(found.node));
  }
  return nodes;
}

void add_names(std::vector<PciNode>& nodes) {
  const PciIndex index = index_of(nodes);
  for (hwloc::PciName& device : hwloc::pci_names()) {
    const int known = find_in(index, device.address);
    if (known >= 0) nodes[static_cast<std::size_t>(known)].name = std::move(device.name);
  }
}

// The PCI tree: /sys/bus/pci/devices says what there is, and the folders behind its links what is below what.
std::vector<PciNode> read_pci(const Sources& from) {
  std::vector<Found> devices;
  const std::vector<std::string> names = names_in(from, kPciFolder);
  if (names.size() >= kMaxNames) from.notes.push_back(text("only the first ", kMaxNames, " PCI devices are read"));
  for (const std::string& name : names) {
    if (auto found = read_device(from, name)) devices.push_back(std::move(*found));
  }
  std::vector<PciNode> nodes = joined(std::move(devices), from.notes);
  // hwloc 2.9 ends the process where the folder of NUMA nodes is there and empty.
  const auto is_node = [](const std::string& name) { return name.starts_with("node"); };
  const bool may_ask = !from.files.exists(kNodeFolder) || std::ranges::any_of(from.files.names(kNodeFolder), is_node);
  if (from.files.is_live() && may_ask) add_names(nodes);
  if (nodes.empty()) from.notes.push_back(text("no PCI devices: ", kPciFolder, " is empty, or cannot be read"));
  return nodes;
}

// ---- NUMA nodes, and the package that each belongs to

// A package's number, or one of these; a CPU whose package is no number counts as one of several.
constexpr int kSeveralPackages = -1, kNoPackage = -2;
constexpr std::size_t kMaxNumaNodes = 1024;  // as many as Linux can have

int either_package(int first, int second) {
  if (first == kNoPackage || first == second) return second;
  return second == kNoPackage ? first : kSeveralPackages;
}

class PackagesOfCpus {
 public:
  explicit PackagesOfCpus(const SystemFiles& files) : files_(files) {}

  int of(const std::vector<int>& cpus) {
    int package = kNoPackage;
    for (const int cpu : cpus) package = either_package(package, of(cpu));
    return package;
  }

 private:
  int of(int cpu) {
    std::optional<int>& package = known_[static_cast<std::size_t>(cpu)];
    if (!package) {
      // One that goes offline meanwhile has none.
      const auto word = files_.word(text(kCpuFolder, "/cpu", cpu, "/topology/physical_package_id"));
      package = word ? parse_number<int>(*word, 0, INT_MAX).value_or(kSeveralPackages) : kNoPackage;
    }
    return *package;
  }

  const SystemFiles& files_;
  std::vector<std::optional<int>> known_ =
      std::vector<std::optional<int>>(kMaxCpus);  // each file is read once, however many nodes have the CPU
};

// What the nodes' files say of each other. Each file and folder is read once: on a real machine no two nodes share one, and in a
// hostile tree all may.
class Neighbours {
 public:
  Neighbours(const SystemFiles& files, const std::vector<NumaNode>& nodes) : files_(files), nodes_(nodes) {
    for (const NumaNode& node : nodes) places_.emplace(text("node", node.index), places_.size());
  }

  // Places of the nodes whose CPUs reach this one's memory best. Initiators of class 0 may be devices, where there are others.
  std::vector<std::size_t> initiators(std::size_t place) {
    std::string folder = text(folder_of(place), "/access1/initiators");
    if (!files_.exists(folder)) folder = text(folder_of(place), "/access0/initiators");
    std::vector<std::size_t> found;
    if (!is_new(folder)) return found;
    for (const std::string& name : files_.names(folder)) {
      if (const auto node = places_.find(name); node != places_.end()) found.push_back(node->second);
    }
    return found;
  }

  // Those that are nearest; none where all are equally near, or that is not told.
  std::vector<std::size_t> nearest(std::size_t place) {
    const std::string file = text(folder_of(place), "/distance");
    const std::string row = is_new(file) ? files_.word(file).value_or("") : "";
    std::vector<unsigned> distances;  // of each node, in their order
    for (const std::string_view word : words_of(row))
      distances.push_back(parse_number<unsigned>(word, 0, UINT_MAX).value_or(UINT_MAX));
    if (distances.size() != nodes_.size()) return {};
    const unsigned own = std::exchange(distances[place], UINT_MAX);
    const unsigned least = std::ranges::min(distances);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < distances.size(); ++i) {
      if (distances[i] == least) found.push_back(i);
    }
    return least > own && found.size() + 1 < nodes_.size() ? found : std::vector<std::size_t>();
  }

 private:
  std::string folder_of(std::size_t place) const { return text(kNodeFolder, "/node", nodes_[place].index); }
  bool is_new(const std::string& path) {
    const auto real = files_.real_path(path);
    return real && seen_.insert(*real).second;
  }

  const SystemFiles& files_;
  const std::vector<NumaNode>& nodes_;
  std::map<std::string, std::size_t> places_;
  std::set<std::string> seen_;
};

// That of the node's CPUs and of those that reach its memory best. One with memory alone belongs to that of the nearest nodes,
// where some are nearer than others, else to the machine's.
void add_packages(const SystemFiles& files, std::vector<NumaNode>& nodes) {
  PackagesOfCpus packages(files);
  Neighbours neighbours(files, nodes);
  int of_machine = kNoPackage;
  std::vector<int> own;  // of each node's CPUs, then of its initiators, too
  for (const NumaNode& node : nodes) {
    own.push_back(packages.of(node.cpus));
    of_machine = either_package(of_machine, own.back());
  }
  const auto joined_to = [&](std::size_t place, const std::vector<std::size_t>& others) {
    int package = own[place];
    for (const std::size_t other : others) package = either_package(package, own[other]);
    return package;
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].package = joined_to(i, neighbours.initiators(i));
  for (std::size_t i = 0; i < nodes.size(); ++i) own[i] = nodes[i].package;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    int& package = nodes[i].package;
    if (package == kNoPackage) package = joined_to(i, neighbours.nearest(i));
    if (package == kNoPackage) package = of_machine;
    package = std::max(package, -1);
  }
}

NumaNode read_numa_node(const SystemFiles& files, int index, const std::string& cpus, const std::string& memory) {
  return {index, -1, parse_number_list(files.word(cpus).value_or(""), kMaxCpus).numbers,
          number_behind(files.read(memory).content, "MemTotal").value_or(0)};
}

// Of captured machines nothing is known about CPUs whose topology was not captured. CPU 0 may be offline.
bool tells_of_cpus(const SystemFiles& files) {
  const auto online = parse_number_list(files.word(text(kCpuFolder, "/online")).value_or(""), kMaxCpus).numbers;
  return files.is_live() || files.exists(text(kCpuFolder, "/cpu", online.empty() ? 0 : online.front(), "/topology"));
}

// Of a live machine without /sys, as in some containers.
std::vector<int> all_cpus() {
  std::vector<int> cpus(static_cast<std::size_t>(std::clamp<long>(sysconf(_SC_NPROCESSORS_ONLN), 0, kMaxCpus)));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

std::vector<NumaNode> read_numa_nodes(const Sources& from) {
  std::set<int> indexes;
  for (const std::string& name : names_in(from, kNodeFolder)) {
    const auto index = name.starts_with("node") ? parse_number<int>(std::string_view(name).substr(4), 0, 0xffff) : std::nullopt;
    if (index) indexes.insert(*index);
  }
  std::vector<NumaNode> nodes;
  if (indexes.size() > kMaxNumaNodes) from.notes.push_back(text("only the first ", kMaxNumaNodes, " NUMA nodes are read"));
  for (const int index : indexes) {
    if (nodes.size() == kMaxNumaNodes) break;
    const std::string folder = text(kNodeFolder, "/node", index);
    nodes.push_back(read_numa_node(from.files, index, folder + "/cpulist", folder + "/meminfo"));
  }
  if (nodes.empty() && tells_of_cpus(from.files)) {  // a kernel without NUMA
    nodes.push_back(read_numa_node(from.files, 0, text(kCpuFolder, "/online"), "/proc/meminfo"));
    if (nodes[0].cpus.empty() && from.files.is_live()) nodes[0].cpus = all_cpus();
  }
  add_packages(from.files, nodes);
  if (nodes.empty()) from.notes.emplace_back("the machine's files tell of no NUMA node");
  return nodes;
}

}  // namespace

std::vector<std::string> names_in(const Sources& from, const std::string& folder) {
  FolderNames listed = from.files.list(folder);
  if (!listed.reason.empty())
    from.notes.push_back(text(folder, " cannot be listed (", listed.reason, "): what is in it is not known"));
  return std::move(listed.names);
}

int find_in(const PciIndex& index, const PciAddress& address) {
  const auto found = index.find(key_of(address));
  return found == index.end() ? -1 : found->second;
}

double leading_number(std::string_view text, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const bool is_whole_word = end == text.data() + text.size() || *end == ' ';
  return error == std::errc{} && is_whole_word && number >= 0 && number <= most ? number : 0;
}

}  // namespace gigabar::topology_parts

namespace gigabar::inline v0 {
namespace {

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
constexpr std::size_t kMaxNotes = 32;

template <class Device>
void keep_first(std::vector<Device>& devices, std::size_t most, const char* what, std::vector<std::string>& notes) {
  if (devices.size() <= most) return;
  notes.push_back(text("of ", devices.size(), " ", what, " only the first ", most, " are looked at"));
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
  if (const Availability& library = hwloc::availability(); !library.is_ok()) {
    return make_error(Status::not_supported, "topology", machine.origin(), text("hwloc cannot be used: ", library.reason),
                      library.remedy, library.native);
  }
  std::vector<std::string> notes;
  if (!topology_parts::tells_of_cpus(machine.files())) {
    notes.emplace_back("no topology of CPUs is there: packages are not known, everything else is read from its files");
  }
  const topology_parts::Sources from{machine.files(), machine.answers(), notes};
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
  if (notes.size() > kMaxNotes) {
    const std::size_t more = notes.size() - kMaxNotes;
    notes.resize(kMaxNotes);
    notes.push_back(text("and ", more, " more of this kind"));
  }
  found.notes = std::move(notes);
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
