// SPDX-License-Identifier: Apache-2.0
// What several checks ask about the machine. Nothing here gives a verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.hpp"
#include "platform/pci_config.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {

// ---- device nodes: what one is, its number, who may open it, and what open() says

enum class NodeState : std::uint8_t {
  works,  // as far as was tried
  missing,
  not_a_device,   // a folder or a file in its place
  wrong_number,   // it leads to another driver's device, or to none
  no_permission,  // this user may not read and write it
  refused,        // it may be opened by its permission bits, and open() failed
};

struct NodeReport {
  std::string path;
  NodeState state = NodeState::missing;
  std::string value;   // for a reading: "character device 195:0, readable and writable, open() succeeds"
  std::string fault;   // a clause about the node, "is a folder, not a device"; empty: it works
  std::string remedy;  // empty: it works

  bool works() const noexcept { return state == NodeState::works; }
  // It is there and cannot do what it is there for, whoever opens it.
  bool is_broken() const noexcept {
    return state == NodeState::not_a_device || state == NodeState::wrong_number || state == NodeState::refused;
  }
  std::string statement() const { return path + " " + fault; }
  // Of something that needs the node; what cannot be said of every node alike: why it is missing, and how to get it or the right.
  Availability availability(std::string when_missing, std::string how_to_have_it, std::string how_to_be_allowed) const;
};

NodeReport look_at_node(const Patient& patient, const std::string& path);

// ---- PCI devices, their configuration spaces, the CPU, and whether the machine is a virtual one

// A GPU, or a NIC that is a PCI device.
struct PciDevice {
  int pci = -1;    // index into Topology::pci, always valid
  int index = -1;  // into Topology::gpus or nics
  int numa_node = -1;
  bool is_gpu = false;
  bool is_coherent = false;  // a GPU
  bool is_rdma = false;      // a NIC
  std::string subject;       // "GPU 0000:3b:00.0", "mlx5_0"
};
// GPUs, then NICs.
std::vector<PciDevice> pci_devices(const Topology& topology);
std::vector<PciDevice> pci_gpus(const Topology& topology);
std::vector<PciDevice> pci_ends(const Topology& topology);  // GPUs and RDMA NICs

struct PciPair {
  PciDevice first, second;  // a GPU, and a NIC or another GPU
  std::string subject() const { return first.subject + " and " + second.subject; }
};
// Each GPU with each RDMA NIC and with each GPU after it.
std::vector<PciPair> pci_pairs(const Topology& topology);
Route route_of(const Topology& topology, const PciPair& pair);

const PciNode& node_of(const Topology& topology, int pci);

// The configuration space of the function with that address.
struct ConfigAnswer {
  std::string path;
  PciConfig config;     // every capability is hidden when there is none, or it reads all ones
  std::string trouble;  // why: "missing", "permission denied", "12 bytes are no configuration space"
};
ConfigAnswer config_of(const Patient& patient, const std::string& address);
// Whether reading it gives ones only: the device is lost, or without power.
inline bool is_silent(const Patient& patient, const std::string& address) { return config_of(patient, address).config.is_gone; }

// Configuration spaces of one check, each read once.
class ConfigReader {
 public:
  explicit ConfigReader(const Patient& patient) : patient_(patient) {}

  const ConfigAnswer& of(int pci);  // an index into Topology::pci

 private:
  const Patient& patient_;
  std::map<int, ConfigAnswer> answers_;
};
// Unknown, because the bytes end early or are not there.
Ruling hidden(Findings& findings, const ConfigAnswer& answer, std::string_view what);

// From /proc/cpuinfo.
struct CpuFacts {
  std::string trouble;  // why nothing is known; empty: it is
  std::string vendor;   // "GenuineIntel", "AuthenticAMD"; empty: not x86
  std::string name;     // "model name"
  unsigned family = 0, model = 0;
  std::string implementer, part;  // of an Arm CPU: "0x41", "0xd4f"
  std::size_t packages = 0;       // distinct "physical id"; 0: not told
  bool has_hypervisor_flag = false;

  bool is_known() const noexcept { return trouble.empty(); }
  bool is_x86() const noexcept { return !vendor.empty(); }
  std::string text() const;  // one line; why it is not known
};
CpuFacts cpu_facts(const Patient& patient);
inline constexpr const char* kCpuInfoPath = "/proc/cpuinfo";

enum class Host : std::uint8_t { bare_metal, virtual_machine, unknown };
struct HostAnswer {
  Host host = Host::unknown;
  std::string statement;  // one sentence: what tells
  std::vector<Reading> readings;
};
// Whether this machine is a virtual one: flags of the CPU, DMI, Xen's folder.
HostAnswer host_of(const Patient& patient);
inline bool is_virtual_machine(const Patient& patient) { return host_of(patient).host == Host::virtual_machine; }

// ---- GPUs, the NVIDIA driver and the kernel

inline constexpr const char* kNoGpu = "this machine has no NVIDIA GPU";
inline constexpr const char* kNoRdma = "this machine has no RDMA device";
inline constexpr const char* kVersionFile = "/proc/driver/nvidia/version";
inline constexpr const char* kParamsFile = "/proc/driver/nvidia/params";
inline constexpr const char* kGpusFolder = "/proc/driver/nvidia/gpus";
inline constexpr const char* kControlNode = "/dev/nvidiactl";
inline constexpr const char* kGdrdrvVersionFile = "/sys/module/gdrdrv/version";
inline constexpr Version kGdrdrvThatKeeps{2, 5};  // the first that keeps a mapping valid after its memory was freed

enum class Answer : std::uint8_t { no, yes, unknown };

// --- the machine

// Addresses of NVIDIA display devices on the PCI bus.
std::vector<std::string> gpus_on_pci(const Patient& patient);
// A GPU on the bus, named by a driver, or at least the driver's files.
bool has_nvidia(const Patient& patient);
// "a Docker container"; empty: none that shows.
std::string container(const Patient& patient);

// --- the NVIDIA driver

inline constexpr unsigned kFirstOpenBranch = 515;  // the first driver that has open kernel modules
struct DriverModule {
  bool is_loaded = false;                // /proc or /sys has it
  FileState state = FileState::missing;  // of kVersionFile
  std::string version;                   // "580.159.04"; empty: not told
  unsigned branch = 0;                   // 580; 0: not told
  Answer is_open = Answer::unknown;      // the open kernel modules
};
DriverModule driver_module(const Patient& patient);

// Of /proc/driver/nvidia/params, quotes removed; nothing when it cannot be read.
std::optional<std::map<std::string, std::string>> driver_params(const Patient& patient);

// The value of a parameter, or kNotNamed.
inline constexpr std::string_view kNotNamed = "not named";
std::string shown(const std::map<std::string, std::string>& params, const std::string& name);

// Names of /dev/nvidia0, ... in order.
std::vector<std::string> gpu_nodes(const Patient& patient);
// Whether the driver's control and GPU nodes are there for this user.
Availability resource_manager_nodes(const Patient& patient);

// What the libraries said of the GPU; where they said nothing, none of it is told.
const GpuAnswers& answers_of(const Patient& patient, const Gpu& gpu);
std::optional<int> cuda_attribute(const GpuAnswers& answers, const std::string& name);

struct NvLinkFacts {
  std::size_t active = 0, total = 0;
  bool is_told = false;
  bool has_switch = false;
  std::string fabric;  // NVML's state of the fabric; empty: not told

  bool is_waiting() const { return fabric == "not_started" || fabric == "in_progress"; }  // for the fabric
};
NvLinkFacts nvlinks_of(const Patient& patient, const Gpu& gpu);

// Lines of the kernel's log with every one of `words`, letters' case ignored; empty as well when there is no log.
std::vector<std::string> log_lines(const Patient& patient, std::initializer_list<std::string_view> words);
// 79, of "NVRM: Xid (PCI:0000:3b:00): 79, pid=...".
std::optional<std::uint64_t> xid_in(const std::string& line);

// --- the parts of RDMA on GPU memory: a pass says what is there, a fail what is missing

Ruling dmabuf_of_kernel(const Patient& patient, Findings& findings);  // imports
Ruling dmabuf_of_verbs(const Patient& patient, Findings& findings);   // libibverbs passes on
// Both, and whether the GPUs export: a fail of one is a fail, an unknown of one is unknown.
Ruling dmabuf(const Patient& patient, Findings& findings);
Ruling peermem(const Patient& patient, Findings& findings);
// What GPU-initiated networking needs of the driver.
Ruling gin_of_driver(const Patient& patient, Findings& findings);

// ---- RDMA devices and ports

enum class RdmaTransport {
  infiniband,
  roce,
  iwarp,    // RDMA over TCP: neither GIDs of version 2 nor an InfiniBand MTU matter
  other,    // EFA, usNIC, ...
  unknown,  // the link layer is not told
};

// Names below /sys/class/infiniband, and those of the topology.
std::vector<std::string> rdma_devices(const Patient& patient);
// Of the kernel, "mlx5_core", else by the device's name; empty: not told.
std::string rdma_driver(const Patient& patient, const std::string& device);
// The file that a provider of libibverbs for that driver brings, without ".driver"; empty: not known.
std::string_view provider_of(std::string_view driver);
// An adapter whose doorbells a GPU can ring.
bool has_mlx5(const Patient& patient);

// A port with its device; both live as long as the topology.
struct RdmaPortView {
  const Nic* nic = nullptr;
  const RdmaPort* port = nullptr;

  std::string subject() const;  // "mlx5_0 port 1"
  std::string folder() const;   // "/sys/class/infiniband/mlx5_0/ports/1"
};

// All ports of the topology. A device that has none there gets an `unknown`, and a machine without any device one `skip`.
std::vector<RdmaPortView> rdma_ports(const Patient& patient, Findings& findings);

// The adapter with that RDMA device; null: the topology does not have it.
const Nic* nic_of(const Patient& patient, const std::string& rdma_device);
// What libibverbs said of the device; null: it did not list it.
const RdmaDeviceAnswers* answers_of(const Patient& patient, const std::string& rdma_device);

// "/dev/infiniband/uverbs0" of "mlx5_0"; empty when the kernel does not say.
std::string uverbs_node(const Patient& patient, const std::string& device);

// Those below /dev/infiniband.
std::vector<std::string> uverbs_nodes(const Patient& patient);

RdmaTransport transport_of(const Patient& patient, const RdmaPortView& view);

// A driver that makes an RDMA device of an ordinary network device: it has no hardware counters, no ECN settings, no cable.
bool is_software(const Nic& nic);

// Network devices behind a port: those of its GIDs, else the adapter's when the adapter has one port only.
std::vector<std::string> net_devices_of(const RdmaPortView& view);

}  // namespace gigabar::doctor
