// SPDX-License-Identifier: Apache-2.0
// Device nodes; devices, pairs and configuration spaces of PCI; the CPU, and whether this is a virtual machine; RDMA devices.
#include "doctor/facts.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/device_nodes.hpp"

namespace gigabar::doctor {
namespace {

std::string number_text(std::uint32_t major, std::uint32_t minor) { return text(major, ":", minor); }

std::string kind_text(NodeKind kind) {
  switch (kind) {
    case NodeKind::missing: return "missing";
    case NodeKind::file: return "a regular file";
    case NodeKind::folder: return "a folder";
    case NodeKind::character_device: return "a character device";
    case NodeKind::other: return "no character device";
  }
  return "missing";
}

std::string rights_text(const NodeFacts& facts) {
  if (facts.can_read && facts.can_write) return "readable and writable";
  if (facts.can_read) return "read only";
  return facts.can_write ? "write only" : "permission denied";
}

std::string open_text(const std::optional<int>& error) {
  if (!error) return "";
  return *error == 0 ? ", open() succeeds" : text(", open() fails with ", errno_code(*error).name);
}

// How to have the right node again, where its driver's number is known.
std::string make_command(const std::string& path, const std::optional<NodeDriver>& driver) {
  if (driver && driver->is_told && !driver->majors.empty() && driver->minor) {
    return text("sudo mknod -m 666 ", path, " c ", driver->majors.front(), " ", *driver->minor);
  }
  if (driver && driver->is_told && driver->majors.empty()) {
    return text("load the driver that has the device (its name in /proc/devices or /proc/misc is ", driver->name,
                "), and make the node with the number that is listed there: sudo mknod -m 666 ", path, " c MAJOR MINOR");
  }
  return text("make the node with its driver's number in /proc/devices: sudo mknod -m 666 ", path, " c MAJOR MINOR");
}

std::string pass_on(const std::string& path) { return text("--device ", path, " (NVIDIA's nodes: --gpus all)"); }

NodeReport judge_kind(const Patient& patient, const std::string& path, NodeKind kind, const std::optional<NodeDriver>& driver) {
  const std::string fault = text("is ", kind_text(kind), kind == NodeKind::other ? "" : ", not a device");
  const std::string remove =
      kind == NodeKind::folder ? text("sudo umount ", path, " if it is a mount, then sudo rmdir ", path) : text("sudo rm ", path);
  const std::string remedy = container(patient).empty()
                                 ? text(remove, "; then ", make_command(path, driver))
                                 : text("remove the mount of ", path,
                                        " from the container's options (a bind mount of what the host does not have makes such a "
                                        "thing), load the driver on the host, and start the container with ",
                                        pass_on(path));
  return {path, NodeState::not_a_device, kind_text(kind), fault, remedy};
}

NodeReport judge_number(const Patient& patient, const std::string& path, const NodeFacts& facts, const NodeDriver& driver) {
  const std::string owner = printable(owner_of_major(patient.files, facts.device_major), 40);
  const std::string wanted = driver.majors.empty() ? text("the kernel lists no device of ", driver.name)
                             : driver.minor
                                 ? text("that of ", driver.name, " is ", number_text(driver.majors.front(), *driver.minor))
                                 : text("the major number of ", driver.name, " is ", driver.majors.front());
  const bool is_own = !driver.majors.empty() && driver.majors.front() == facts.device_major;
  const std::string fault = text("is stale: it has the number ", number_text(facts.device_major, facts.device_minor), ", but ",
                                 wanted, ", so that opening it reaches ",
                                 is_own          ? "another device of that driver or none"
                                 : owner.empty() ? "no device"
                                                 : text("a device of ", owner));
  const std::string remedy =
      container(patient).empty()
          ? text("sudo rm ", path, "; then ", make_command(path, driver))
          : text("numbers have changed on the host since the container got its nodes: start it again with ", pass_on(path));
  return {path, NodeState::wrong_number, {}, fault, remedy};
}

NodeReport judge_refusal(const Patient& patient, const std::string& path, int error) {
  const std::string code = errno_code(error).name;
  if (error != EPERM && error != EACCES)
    return {path,
            NodeState::refused,
            {},
            text("cannot be opened: ", std::strerror(error), " (", code, ")"),
            error == ENXIO || error == ENODEV
                ? "no driver stands behind it: load the driver's module; 'sudo dmesg | tail' says why it gave the device up"
                : "'sudo dmesg | tail' says why its driver refused"};
  return {path,
          NodeState::refused,
          {},
          text("cannot be opened (", code, ") though its permissions allow it: a device cgroup or a security module refuses it"),
          container(patient).empty()
              ? text("allow it where this process was started: DeviceAllow=", path,
                     " rw in a systemd unit, --device for a container, the batch system's list of devices for a job")
              : text("start the container with ", pass_on(path), "; a bind mount alone gives no right to open it")};
}

NodeReport judge_device(const Patient& patient, const std::string& path, const NodeFacts& facts,
                        const std::optional<NodeDriver>& driver, const std::optional<int>& error) {
  if (driver && !is_number_of(*driver, facts)) return judge_number(patient, path, facts, *driver);
  if (!facts.can_read || !facts.can_write)
    return {path,
            NodeState::no_permission,
            {},
            "may not be read and written by this user",
            text("sudo chmod a+rw ", path, " (until the next boot)")};
  if (error && *error != 0) return judge_refusal(patient, path, *error);
  return {path, NodeState::works, {}, {}, {}};
}

bool is_node(const Topology& topology, int pci) noexcept { return pci >= 0 && static_cast<std::size_t>(pci) < topology.pci.size(); }

// A thousand logical CPUs at two kilobytes each.
constexpr std::size_t kMaxCpuInfoBytes = std::size_t{8} << 20;

unsigned number_in(std::string_view text) { return static_cast<unsigned>(parse_number(text, 0, UINT32_MAX).value_or(0)); }

void take_field(CpuFacts& cpu, std::set<std::string, std::less<>>& packages, std::string_view key, std::string_view value) {
  if (key == "physical id") packages.emplace(value);
  if (key == "vendor_id" && cpu.vendor.empty()) cpu.vendor = printable(value, 32);
  if (key == "model name" && cpu.name.empty()) cpu.name = printable(value, 80);
  if (key == "CPU implementer" && cpu.implementer.empty()) cpu.implementer = printable(value, 32);
  if (key == "CPU part" && cpu.part.empty()) cpu.part = printable(value, 32);
  if (key == "cpu family" && cpu.family == 0) cpu.family = number_in(value);
  if (key == "model" && cpu.model == 0) cpu.model = number_in(value);
  if (key == "flags" && text(' ', value, ' ').find(" hypervisor ") != std::string::npos) cpu.has_hypervisor_flag = true;
}

// What hypervisors and clouds write where a maker writes its name. Source: DMI of QEMU, VMware, VirtualBox, Hyper-V, Xen,
// Parallels, bhyve and of the clouds named, as systemd-detect-virt(1) lists them.
constexpr std::array<std::string_view, 13> kVirtualNames{
    "QEMU",      "KVM",   "VMware",    "VirtualBox", "innotek",           "Virtual Machine",      "Xen",
    "Parallels", "BHYVE", "OpenStack", "Bochs",      "Alibaba Cloud ECS", "Google Compute Engine"};

// Instances of Amazon are virtual unless their name ends in ".metal" or has "metal-" in it ("c7g.metal-48xl").
bool names_virtual_machine(std::string_view maker, std::string_view product) {
  if (maker == "Amazon EC2") return product.find("metal") == std::string_view::npos;
  return std::ranges::any_of(kVirtualNames, [&](std::string_view name) {
    return maker.find(name) != std::string_view::npos || product.find(name) != std::string_view::npos;
  });
}

// A name becomes part of a path; one that leads elsewhere comes from a capture made by hand.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos && name.size() <= 64;
}

// Adapters that one provider of libibverbs serves.
struct Family {
  std::string_view provider;  // its file below /etc/libibverbs.d, without ".driver"
  // Of names that the kernel gives; udev may have renamed devices of PCI, which have a link to their driver instead.
  std::array<std::string_view, 2> prefixes;
  std::array<std::string_view, 4> drivers;  // of the kernel
};
constexpr std::array<Family, 16> kFamilies{{{"mlx5", {"mlx5"}, {"mlx5_core", "mlx5_ib"}},
                                            {"mlx4", {"mlx4"}, {"mlx4_core", "mlx4_ib"}},
                                            {"bnxt_re", {"bnxt_re"}, {"bnxt_en", "bnxt_re"}},
                                            {"efa", {"rdmap", "efa"}, {"efa"}},
                                            {"irdma", {"irdma"}, {"irdma", "ice", "i40e", "idpf"}},
                                            {"hns", {"hns"}, {"hns3", "hns_roce_hw_v2"}},
                                            {"cxgb4", {"cxgb4"}, {"cxgb4"}},
                                            {"qedr", {"qedr"}, {"qede", "qedr"}},
                                            {"erdma", {"erdma"}, {"erdma"}},
                                            {"mana", {"mana"}, {"mana"}},
                                            {"ionic", {"ionic"}, {"ionic"}},
                                            {"hfi1verbs", {}, {"hfi1"}},
                                            {"ocrdma", {}, {"ocrdma", "be2net"}},
                                            {"vmw_pvrdma", {}, {"vmw_pvrdma"}},
                                            {"rxe", {"rxe"}, {"rxe", "rdma_rxe"}},
                                            {"siw", {"siw"}, {"siw"}}}};

}  // namespace

Availability NodeReport::availability(std::string when_missing, std::string how_to_have_it, std::string how_to_be_allowed) const {
  switch (state) {
    case NodeState::works: return {AvailabilityCode::ok, {}, {}};
    case NodeState::missing: return {AvailabilityCode::no_device, std::move(when_missing), std::move(how_to_have_it)};
    case NodeState::no_permission:
      return {AvailabilityCode::no_permission, text("this user may not read and write ", path), std::move(how_to_be_allowed)};
    case NodeState::refused: return {AvailabilityCode::no_permission, statement(), remedy};
    case NodeState::not_a_device:
    case NodeState::wrong_number: break;
  }
  return {AvailabilityCode::no_device, statement(), remedy};
}

NodeReport look_at_node(const Patient& patient, const std::string& path) {
  const NodeFacts facts = patient.files.facts(path);
  const auto driver = driver_of_node(patient.files, path);
  if (facts.kind == NodeKind::missing) {
    const std::string in = container(patient);
    return {path, NodeState::missing, "missing", text("is missing", in.empty() ? "" : " in ", in),
            in.empty() ? make_command(path, driver) : text("start the container with ", pass_on(path))};
  }
  if (facts.kind != NodeKind::character_device) return judge_kind(patient, path, facts.kind, driver);
  const auto error = patient.files.open_errno(path);
  NodeReport report = judge_device(patient, path, facts, driver, error);
  report.value =
      text("character device ", number_text(facts.device_major, facts.device_minor), ", ", rights_text(facts), open_text(error));
  return report;
}

std::vector<PciDevice> pci_devices(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (int i = 0; i < std::ssize(topology.gpus); ++i) {
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(i)];
    if (is_node(topology, gpu.pci)) devices.push_back({gpu.pci, i, gpu.numa_node, true, gpu.is_coherent, false, subject_of(gpu)});
  }
  for (int i = 0; i < std::ssize(topology.nics); ++i) {
    const Nic& nic = topology.nics[static_cast<std::size_t>(i)];
    if (is_node(topology, nic.pci))
      devices.push_back({nic.pci, i, nic.numa_node, false, false, !nic.rdma_device.empty(), nic.name});
  }
  return devices;
}

std::vector<PciDevice> pci_gpus(const Topology& topology) {
  std::vector<PciDevice> devices = pci_devices(topology);
  std::erase_if(devices, [](const PciDevice& device) { return !device.is_gpu; });
  return devices;
}

std::vector<PciDevice> pci_ends(const Topology& topology) {
  std::vector<PciDevice> devices = pci_devices(topology);
  std::erase_if(devices, [](const PciDevice& device) { return !device.is_gpu && !device.is_rdma; });
  return devices;
}

std::vector<PciPair> pci_pairs(const Topology& topology) {
  const std::vector<PciDevice> ends = pci_ends(topology);
  std::vector<PciPair> pairs;
  for (auto gpu = ends.begin(); gpu != ends.end() && gpu->is_gpu; ++gpu) {
    for (const PciDevice& nic : ends) {
      if (!nic.is_gpu) pairs.push_back({*gpu, nic});
    }
    for (auto other = gpu + 1; other != ends.end() && other->is_gpu; ++other) pairs.push_back({*gpu, *other});
  }
  return pairs;
}

Route route_of(const Topology& topology, const PciPair& pair) {
  const auto end = [](const PciDevice& device) {
    return Endpoint{device.is_gpu ? Endpoint::Kind::gpu : Endpoint::Kind::nic, device.index};
  };
  return route_between(topology, end(pair.first), end(pair.second));
}

const PciNode& node_of(const Topology& topology, int pci) { return topology.pci[static_cast<std::size_t>(pci)]; }

ConfigAnswer config_of(const Patient& patient, const std::string& address) {
  ConfigAnswer answer;
  answer.path = pci_folder(address) + "/config";
  const FileText content = patient.files.read(answer.path);
  const auto config = PciConfig::parse(content.content);
  if (!content.is_present()) {
    answer.trouble = value_of(content);
  } else if (!config) {
    answer.trouble = text(counted(content.content.size(), "byte"), " are no configuration space");
  } else {
    answer.config = *config;
    if (config->is_gone) answer.trouble = "the device does not answer (every byte is 0xff)";
  }
  return answer;
}

const ConfigAnswer& ConfigReader::of(int pci) {
  const auto [found, is_new] = answers_.try_emplace(pci);
  if (is_new) found->second = config_of(patient_, node_of(patient_.topology, pci).address.to_string());
  return found->second;
}

Ruling hidden(Findings& findings, const ConfigAnswer& answer, std::string_view what) {
  findings.reading(answer.path, answer.trouble.empty() ? counted(answer.config.bytes, "byte") : answer.trouble);
  if (answer.trouble.empty())
    return unknown(text(what, " cannot be read: the kernel gives only the first bytes of the configuration space to this user"),
                   "run as root; in a container with CAP_SYS_ADMIN of the host, or on the host itself");
  if (answer.config.is_gone)
    return unknown(text(what, " cannot be read: the device does not answer"),
                   "'gigabar explain pci.link' tells how a device is lost and what brings it back");
  return unknown(text(what, " cannot be read: no configuration space to read it from"),
                 "run as root and with the machine's own /sys; 'lspci -vv' shows the same registers");
}

std::string CpuFacts::text() const {
  if (!is_known()) return trouble;
  std::string line = name.empty() ? (vendor.empty() ? "not an x86 CPU" : vendor) : name;
  if (is_x86()) line += gigabar::text(", ", vendor, " family ", family, " model ", model);
  if (packages != 0) line += gigabar::text(", ", counted(packages, "socket"));
  return line;
}

CpuFacts cpu_facts(const Patient& patient) {
  CpuFacts cpu;
  const FileText file = patient.files.read(kCpuInfoPath, kMaxCpuInfoBytes);
  std::set<std::string, std::less<>> packages;
  bool has_fields = false;
  for (const std::string_view line : words_of(file.content, "\n")) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    take_field(cpu, packages, trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
    has_fields = true;
  }
  cpu.packages = packages.size();
  if (!has_fields) cpu.trouble = file.is_present() ? "empty" : value_of(file);
  return cpu;
}

HostAnswer host_of(const Patient& patient) {
  HostAnswer answer;
  const CpuFacts cpu = cpu_facts(patient);
  const char* const flag = !cpu.is_x86() ? "" : cpu.has_hypervisor_flag ? ", flag hypervisor" : ", no flag hypervisor";
  answer.readings.push_back({kCpuInfoPath, cpu.text() + flag});
  std::array<std::string, 2> words;
  constexpr std::array<const char*, 2> kPaths{"/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"};
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    const FileText file = patient.files.read(kPaths[i]);
    words[i] = printable(file.content, 80);
    answer.readings.push_back({kPaths[i], file.is_present() ? words[i] : value_of(file)});
  }
  const bool has_dmi = !words[0].empty() || !words[1].empty();
  const std::string named =
      has_dmi ? gigabar::text(" (", words[0], words[0].empty() || words[1].empty() ? "" : " ", words[1], ")") : std::string();
  if (cpu.has_hypervisor_flag || (has_dmi && names_virtual_machine(words[0], words[1]))) {
    answer.host = Host::virtual_machine;
    answer.statement = "this is a virtual machine" + named;
  } else if (cpu.is_x86() || has_dmi) {
    answer.host = Host::bare_metal;
    answer.statement = "this is bare metal, not a virtual machine" + named;
  } else {
    answer.statement = "neither the CPU's flags nor DMI tell whether this is a virtual machine";
  }
  return answer;
}

std::vector<std::string> rdma_devices(const Patient& patient) {
  const std::vector<std::string> names = patient.files.names(kInfinibandFolder);
  std::set<std::string> devices(names.begin(), names.end());
  for (const Nic& nic : patient.topology.nics) {
    if (!nic.rdma_device.empty()) devices.insert(nic.rdma_device);
  }
  return {devices.begin(), devices.end()};
}

std::string rdma_driver(const Patient& patient, const std::string& device) {
  if (auto driver = patient.files.link_name("/sys/class/infiniband/" + device + "/device/driver")) return *driver;
  if (const Nic* nic = nic_of(patient, device); nic != nullptr && !nic->driver.empty()) return nic->driver;
  for (const Family& family : kFamilies) {
    for (const std::string_view prefix : family.prefixes) {
      if (!prefix.empty() && device.starts_with(prefix)) return std::string(family.drivers[0]);
    }
  }
  return {};
}

std::string_view provider_of(std::string_view driver) {
  const auto has = [driver](const Family& family) { return std::ranges::find(family.drivers, driver) != family.drivers.end(); };
  const auto found = std::ranges::find_if(kFamilies, has);
  return driver.empty() || found == kFamilies.end() ? std::string_view() : found->provider;
}

bool has_mlx5(const Patient& patient) {
  return std::ranges::any_of(rdma_devices(patient),
                             [&](const std::string& device) { return rdma_driver(patient, device).starts_with("mlx5"); });
}

const Nic* nic_of(const Patient& patient, const std::string& rdma_device) {
  const auto found = std::ranges::find(patient.topology.nics, rdma_device, &Nic::rdma_device);
  return found == patient.topology.nics.end() ? nullptr : &*found;
}

const RdmaDeviceAnswers* answers_of(const Patient& patient, const std::string& rdma_device) {
  const auto found = std::ranges::find(patient.answers.rdma_devices, rdma_device, &RdmaDeviceAnswers::name);
  return found == patient.answers.rdma_devices.end() ? nullptr : &*found;
}

std::string RdmaPortView::subject() const { return text(printable(nic->rdma_device, 64), " port ", port->number); }

std::string RdmaPortView::folder() const { return text(kInfinibandFolder, "/", nic->rdma_device, "/ports/", port->number); }

std::vector<RdmaPortView> rdma_ports(const Patient& patient, Findings& findings) {
  std::vector<RdmaPortView> ports;
  const std::vector<std::string> names = rdma_devices(patient);
  if (names.empty()) findings.say({}, findings.no_device(patient, kNoRdma, kInfinibandFolder));
  for (const std::string& name : names) {
    const Nic* nic = nic_of(patient, name);
    if (nic == nullptr || nic->ports.empty()) {
      findings.say(printable(name, 64), unknown("the ports of this RDMA device are not known",
                                                "look at the notes below 'gigabar topology', and at 'rdma link show'"));
      continue;
    }
    for (const RdmaPort& port : nic->ports) ports.push_back({nic, &port});
  }
  return ports;
}

std::string uverbs_node(const Patient& patient, const std::string& device) {
  const std::string folder = "/sys/class/infiniband_verbs";
  for (const std::string& name : patient.files.names(folder)) {
    if (name.starts_with("uverbs") && patient.files.word(text(folder, "/", name, "/ibdev")) == device)
      return "/dev/infiniband/" + name;
  }
  return {};
}

std::vector<std::string> uverbs_nodes(const Patient& patient) {
  std::vector<std::string> nodes;
  for (const std::string& name : patient.files.names("/dev/infiniband")) {
    if (name.starts_with("uverbs")) nodes.push_back("/dev/infiniband/" + name);
  }
  return nodes;
}

RdmaTransport transport_of(const Patient& patient, const RdmaPortView& view) {
  const std::string& layer = view.port->link_layer;
  const auto node_type = patient.files.word(text(kInfinibandFolder, "/", view.nic->rdma_device, "/node_type"));
  // Source: kernel, Documentation/ABI/stable/sysfs-class-infiniband, and include/rdma/ib_verbs.h (rdma_node_type): 1 to 3 are
  // InfiniBand's, "4: RNIC" speaks iWARP, 5 and 6 are usNIC, "7: unspecified" is EFA and others with queue pairs of their own.
  const bool is_foreign =
      node_type && (node_type->find("usNIC") != std::string::npos || node_type->find("unspecified") != std::string::npos);
  if (is_foreign || view.nic->driver == "efa") return RdmaTransport::other;
  if (layer.empty()) return RdmaTransport::unknown;
  if (layer == "InfiniBand") return RdmaTransport::infiniband;
  if (layer != "Ethernet") return RdmaTransport::other;
  if (node_type && node_type->find("RNIC") != std::string::npos) return RdmaTransport::iwarp;
  if (!node_type && (view.nic->driver == "siw" || view.nic->driver == "cxgb4")) return RdmaTransport::iwarp;
  return RdmaTransport::roce;
}

bool is_software(const Nic& nic) {
  constexpr std::array<std::string_view, 4> kDrivers{"rxe", "rdma_rxe", "siw", "siw_tcp"};
  if (std::ranges::find(kDrivers, nic.driver) != kDrivers.end()) return true;
  return nic.pci < 0 && (nic.rdma_device.starts_with("rxe") || nic.rdma_device.starts_with("siw"));
}

std::vector<std::string> net_devices_of(const RdmaPortView& view) {
  std::set<std::string> names;
  for (const GidEntry& entry : view.port->gids) {
    if (is_plain_name(entry.netdev)) names.insert(entry.netdev);
  }
  if (names.empty() && view.nic->ports.size() == 1) {
    for (const NetDevice& device : view.nic->net_devices) {
      if (is_plain_name(device.name)) names.insert(device.name);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace gigabar::doctor
