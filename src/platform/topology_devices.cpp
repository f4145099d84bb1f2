// SPDX-License-Identifier: Apache-2.0
// GPUs: the PCI tree's display controllers of NVIDIA, joined by address with what the drivers say; and the NVLinks between them.
// Network adapters: PCI functions with what /sys/class/net and /sys/class/infiniband have below them, and RDMA devices of software.
#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::topology_parts {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;        // base class; the audio function beside it has 0x04
constexpr std::uint32_t kOtherBridge = 0x0680;  // NVSwitch

bool is_gpu(const PciNode& node) { return node.vendor == kNvidia && node.class_code >> 16 == kDisplay; }
bool is_nvswitch(const PciNode& node) { return node.vendor == kNvidia && node.class_code >> 8 == kOtherBridge; }

void add_answers(const GpuAnswers& answers, Gpu& gpu) {
  gpu.cuda_index = answers.cuda_index;
  gpu.uuid = answers.uuid;
  if (!answers.name.empty()) gpu.name = answers.name;
  gpu.is_coherent = answers.c2c_links.value_or(0) > 0;
  if (!answers.nvlinks) return;
  gpu.nvlinks_total = static_cast<unsigned>(answers.nvlinks->size());
  gpu.nvlinks_active = static_cast<unsigned>(std::ranges::count_if(*answers.nvlinks, &nvml::NvLink::is_active));
}

using AnswersByAddress = std::map<std::uint64_t, const GpuAnswers*>;

AnswersByAddress by_address(const DriverAnswers& answers) {
  AnswersByAddress found;
  for (const GpuAnswers& gpu : answers.gpus) {
    if (const auto address = PciAddress::parse(gpu.pci)) found.emplace(key_of(*address), &gpu);
  }
  return found;
}

void note_missing_answers(const Sources& from, const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return;
  const DriverAnswers& answers = from.answers;
  // An archive may hold facts without the library's own answer.
  const auto is_missing = [&answers](const Availability& library, auto fact) {
    const auto has_fact = [fact](const GpuAnswers& gpu) { return (gpu.*fact).has_value(); };
    return !library.is_ok() && !(is_not_asked(library) && std::any_of(answers.gpus.begin(), answers.gpus.end(), has_fact));
  };
  if (is_missing(answers.cuda, &GpuAnswers::cuda_index))
    from.notes.push_back(text("CUDA's numbers of the GPUs are not known: ", answers.cuda.reason));
  if (is_missing(answers.nvml, &GpuAnswers::nvlinks)) from.notes.push_back(text("NVLinks are not known: ", answers.nvml.reason));
}

// Active links from one GPU to another one, or to switches.
struct Bundle {
  unsigned count = 0;
  double gb_per_s = 0;
  bool is_rate_known = true;

  void add(unsigned mb_per_s) {
    ++count;
    gb_per_s += mb_per_s / 1000.0;
    is_rate_known = is_rate_known && mb_per_s != 0;
  }
};
constexpr int kSwitches = -1;                           // at the other end, instead of a GPU
using Bundles = std::map<std::pair<int, int>, Bundle>;  // by the index of the GPU that tells of them, and of the other one

// Both ends tell of the same direct links; where only one does, it is believed. Of those to switches all links of the one that has
// fewer reach the other.
NvLinkBond bond_between(const Bundles& bundles, int first, int second) {
  const auto told = [&bundles](int from, int to) {
    const auto found = bundles.find({from, to});
    return found == bundles.end() ? Bundle{} : found->second;
  };
  const Bundle direct = std::ranges::max(told(first, second), told(second, first), {}, &Bundle::count);
  const bool is_switched = direct.count == 0;
  const Bundle used = is_switched ? std::ranges::min(told(first, kSwitches), told(second, kSwitches), {}, &Bundle::count) : direct;
  return {first, second, used.count, used.is_rate_known ? used.gb_per_s : 0, is_switched};
}

// ---- network adapters

constexpr const char* kNetClass = "/sys/class/net";
constexpr std::uint32_t kNetwork = 0x02;  // base class of PCI functions
constexpr double kMaxGbitPerS = 1e6;
constexpr std::size_t kMaxGids = 1024;  // of a port; they are few, in a table of up to some thousands
constexpr int kMaxPorts = 255;
constexpr std::size_t kMaxRdmaDevices = 4096;

// The PCI function that a device of a class is on or below ("device" of a virtio network is virtio0, below the function); -1: none.
int pci_below(const SystemFiles& files, const std::string& device, const PciIndex& index) {
  const std::string path = files.real_path(device + "/device").value_or("");
  // An adapter on USB is no function of its own: the PCI function above it is the whole bus's.
  if (path.empty() || path.starts_with("/sys/devices/virtual/") || path.find("/usb") != std::string::npos) return -1;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::size_t slash = rest.rfind('/');
    if (slash == std::string_view::npos) return -1;
    if (const auto address = PciAddress::parse(rest.substr(slash + 1))) {
      if (const int found = find_in(index, *address); found >= 0) return found;
    }
    rest = rest.substr(0, slash);
  }
  return -1;
}

bool is_zero_gid(std::string_view gid) { return gid.find_first_not_of("0:") == std::string_view::npos; }

// Source: kernel, Documentation/ABI/stable/sysfs-class-infiniband.
std::vector<GidEntry> read_gids(const SystemFiles& files, const std::string& port) {
  std::vector<GidEntry> gids;
  for (const std::string& name : files.names(port + "/gids")) {
    const auto index = parse_number<int>(name, 0, 65535);
    const std::string gid = files.word(text(port, "/gids/", name)).value_or("");
    if (!index || gid.empty() || is_zero_gid(gid)) continue;
    gids.push_back({*index, gid, files.word(text(port, "/gid_attrs/types/", name)).value_or(""),
                    files.word(text(port, "/gid_attrs/ndevs/", name)).value_or("")});
    if (gids.size() >= kMaxGids) break;
  }
  std::sort(gids.begin(), gids.end(), [](const GidEntry& a, const GidEntry& b) { return a.index < b.index; });
  return gids;
}

// "4: ACTIVE" without its number.
std::string state_in(std::string_view text) {
  const std::size_t colon = text.find(": ");
  return std::string(colon == std::string_view::npos ? text : text.substr(colon + 2));
}

RdmaPort read_port(const SystemFiles& files, const std::string& folder, int number) {
  RdmaPort port;
  port.number = number;
  port.state = state_in(files.word(folder + "/state").value_or(""));
  port.link_layer = files.word(folder + "/link_layer").value_or("");
  port.rate_gbit_per_s = leading_number(files.word(folder + "/rate").value_or(""), kMaxGbitPerS);
  port.gids = read_gids(files, folder);
  return port;
}

void add_active_mtu(const DriverAnswers& answers, const std::string& device, std::vector<RdmaPort>& ports) {
  const auto told = std::ranges::find(answers.rdma_devices, device, &RdmaDeviceAnswers::name);
  if (told == answers.rdma_devices.end()) return;
  for (RdmaPort& port : ports) {
    const auto place = static_cast<std::size_t>(port.number - 1);
    if (place < told->active_mtu.size() && told->active_mtu[place] != 0) port.active_mtu = told->active_mtu[place];
  }
}

std::vector<RdmaPort> read_ports(const Sources& from, const std::string& device) {
  std::vector<RdmaPort> ports;
  const std::string folder = text(kInfinibandFolder, "/", device, "/ports");
  for (const std::string& name : from.files.names(folder)) {
    const auto number = parse_number<int>(name, 1, kMaxPorts);
    if (number) ports.push_back(read_port(from.files, text(folder, "/", name), *number));
  }
  std::sort(ports.begin(), ports.end(), [](const RdmaPort& a, const RdmaPort& b) { return a.number < b.number; });
  if (ports.empty()) from.notes.push_back(text(device, ": its ports cannot be read in ", folder));
  add_active_mtu(from.answers, device, ports);
  return ports;
}

// The kernel gives -1, an error, or (older ones) 2^32 - 1 where a device does not know its speed.
std::optional<double> read_speed(const SystemFiles& files, const std::string& folder) {
  const auto mbit = parse_number(files.word(folder + "/speed").value_or(""), 1, static_cast<std::uint64_t>(kMaxGbitPerS) * 1000);
  if (!mbit) return {};
  return static_cast<double>(*mbit) / 1000;
}

NetDevice read_net_device(const SystemFiles& files, const std::string& name) {
  const std::string folder = text(kNetClass, "/", name);
  NetDevice device;
  device.name = name;
  device.state = files.word(folder + "/operstate").value_or("");
  device.mtu = parse_number<unsigned>(files.word(folder + "/mtu").value_or(""), 1, UINT32_MAX);
  device.gbit_per_s = read_speed(files, folder);
  return device;
}

// The adapters, while they are put together.
class Adapters {
 public:
  Adapters(const Sources& from, const std::vector<PciNode>& pci) : from_(from), pci_(pci), index_(index_of(pci)) {}

  void add_rdma_device(const std::string& name) {
    const std::string folder = text(kInfinibandFolder, "/", name);
    // Only soft-RoCE has this file; it names the network device. Older kernels give it that one's "device", too.
    const auto soft_roce_on = from_.files.word(folder + "/parent");
    const int pci = soft_roce_on ? -1 : pci_below(from_.files, folder, index_);
    Nic& nic = added(pci);
    nic.name = nic.rdma_device = name;
    nic.ports = read_ports(from_, name);
    nic.driver = soft_roce_on ? "rdma_rxe" : from_.files.link_name(folder + "/device/driver").value_or("");
    for (const std::string& on : netdevs_of(nic, soft_roce_on.value_or(""))) by_netdev_.emplace(on, nics_.size() - 1);
  }

  // With the RDMA device whose GIDs name it, when that is on the same function, else the function's first; and with every
  // RDMA device of software on it.
  void add_net_device(const std::string& name) {
    const int pci = pci_below(from_.files, text(kNetClass, "/", name), index_);
    const auto [begin, end] = by_netdev_.equal_range(name);
    if (pci < 0 && begin == end) return;  // loopback, a container's, ...
    const NetDevice device = read_net_device(from_.files, name);
    bool is_placed = pci < 0;
    for (auto on = begin; on != end; ++on) {
      Nic& nic = nics_[on->second];
      if (nic.pci != -1 && nic.pci != pci) continue;
      nic.net_devices.push_back(device);
      is_placed = is_placed || nic.pci == pci;
    }
    if (is_placed) return;
    const auto first = first_on_.find(pci);
    Nic& nic = first != first_on_.end() ? nics_[first->second] : added(pci);
    nic.net_devices.push_back(device);
    if (nic.name.empty()) nic.name = name;
    if (nic.driver.empty()) nic.driver = from_.files.link_name(text(kNetClass, "/", name, "/device/driver")).value_or("");
  }

  // Functions without a driver, or given to a virtual machine.
  void add_rest() {
    for (std::size_t i = 0; i < pci_.size(); ++i) {
      if (pci_[i].class_code >> 16 == kNetwork && first_on_.count(static_cast<int>(i)) == 0) added(static_cast<int>(i));
    }
  }

  std::vector<Nic> take() && {
    for (Nic& nic : nics_) {
      if (nic.pci < 0) continue;
      const PciNode& node = pci_[static_cast<std::size_t>(nic.pci)];
      nic.numa_node = node.numa_node;
      if (nic.name.empty()) nic.name = node.address.to_string();
      if (nic.driver.empty()) nic.driver = node.driver;
    }
    return std::move(nics_);
  }

 private:
  Nic& added(int pci) {
    if (pci >= 0) first_on_.emplace(pci, nics_.size());
    nics_.emplace_back();
    nics_.back().pci = pci;
    return nics_.back();
  }

  static std::set<std::string> netdevs_of(const Nic& nic, const std::string& parent) {
    std::set<std::string> names;
    if (!parent.empty()) names.insert(parent);
    for (const RdmaPort& port : nic.ports) {
      for (const GidEntry& gid : port.gids) {
        if (!gid.netdev.empty()) names.insert(gid.netdev);
      }
    }
    return names;
  }

  const Sources& from_;
  const std::vector<PciNode>& pci_;
  PciIndex index_;
  std::vector<Nic> nics_;
  std::map<int, std::size_t> first_on_;                // index of a function's first adapter
  std::multimap<std::string, std::size_t> by_netdev_;  // adapters whose GIDs or parent name a network device
};

}  // namespace

// Those of the PCI tree, and those that it does not have, or has without saying that they are GPUs.
std::vector<Gpu> read_gpus(const Sources& from, const std::vector<PciNode>& pci) {
  const PciIndex index = index_of(pci);
  std::map<std::uint64_t, Gpu> found;
  const auto add = [&](const PciAddress& address) -> Gpu& {
    Gpu& gpu = found[key_of(address)];
    gpu.address = address;
    gpu.pci = find_in(index, address);
    if (gpu.pci >= 0) gpu.numa_node = pci[static_cast<std::size_t>(gpu.pci)].numa_node;
    return gpu;
  };
  for (const PciNode& node : pci) {
    if (is_gpu(node)) add(node.address).name = node.name;
  }
  for (const GpuAnswers& told : from.answers.gpus) {
    const auto address = PciAddress::parse(told.pci);
    if (!address) {
      from.notes.emplace_back("the driver names a GPU without a PCI address; it is left out");
    } else if (const bool is_known = found.contains(key_of(*address)); add(*address).pci < 0 && !is_known) {
      from.notes.push_back(text("the driver names the GPU ", address->to_string(), ", which the PCI tree does not have"));
    }
  }
  const AnswersByAddress answers = by_address(from.answers);
  std::vector<Gpu> gpus;
  for (auto& [address, gpu] : found) {
    if (const auto told = answers.find(address); told != answers.end()) add_answers(*told->second, gpu);
    gpus.push_back(std::move(gpu));
  }
  const auto place = [](const Gpu& gpu) { return std::pair(gpu.cuda_index.value_or(INT_MAX), key_of(gpu.address)); };
  std::ranges::sort(gpus, {}, place);
  note_missing_answers(from, gpus);
  return gpus;
}

std::vector<NvLinkBond> read_nvlinks(const Sources& from, const std::vector<PciNode>& pci, const std::vector<Gpu>& gpus) {
  const AnswersByAddress answers = by_address(from.answers);
  const PciIndex index = index_of(pci), gpu_at = index_of(gpus);
  Bundles bundles;
  for (const auto& [address, gpu] : gpu_at) {
    const auto told = answers.find(address);
    if (told == answers.end() || !told->second->nvlinks) continue;
    unsigned hidden_count = 0;
    for (const nvml::NvLink& link : *told->second->nvlinks) {
      if (!link.is_active) continue;
      const auto remote = PciAddress::parse(link.remote_pci);
      const int peer = remote ? find_in(gpu_at, *remote) : -1;
      const int node = remote ? find_in(index, *remote) : -1;
      if (!link.is_switch && peer >= 0) {
        bundles[{gpu, peer}].add(link.mb_per_s);
      } else if (link.is_switch || (node >= 0 && is_nvswitch(pci[static_cast<std::size_t>(node)]))) {
        bundles[{gpu, kSwitches}].add(link.mb_per_s);
      } else {
        ++hidden_count;
      }
    }
    if (hidden_count != 0) {
      from.notes.push_back(text("GPU ", told->second->pci, ": NVML does not say where ", hidden_count, " active NVLinks lead"));
    }
  }
  std::vector<NvLinkBond> bonds;
  for (int first = 0; first < std::ssize(gpus); ++first) {
    for (int second = first + 1; second < std::ssize(gpus); ++second) {
      const NvLinkBond bond = bond_between(bundles, first, second);
      if (bond.count != 0) bonds.push_back(bond);
    }
  }
  return bonds;
}

std::vector<Nic> read_nics(const Sources& from, const std::vector<PciNode>& pci) {
  Adapters adapters(from, pci);
  std::vector<std::string> rdma_devices = names_in(from, kInfinibandFolder);
  if (rdma_devices.size() > kMaxRdmaDevices) {
    from.notes.push_back(text("only the first ", kMaxRdmaDevices, " of ", rdma_devices.size(), " RDMA devices are read"));
    rdma_devices.resize(kMaxRdmaDevices);
  }
  for (const std::string& name : rdma_devices) adapters.add_rdma_device(name);
  for (const std::string& name : names_in(from, kNetClass)) adapters.add_net_device(name);
  adapters.add_rest();
  return std::move(adapters).take();
}

}  // namespace gigabar::topology_parts
