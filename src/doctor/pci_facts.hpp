// SPDX-License-Identifier: Apache-2.0
// What the checks of PCI, IOMMU and virtual machines share.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.hpp"
#include "platform/pci_config.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {

// A GPU, or a NIC that is a PCI device.
struct PciDevice {
  int pci = -1;    // index into Topology::pci, always valid
  int index = -1;  // into Topology::gpus or nics
  bool is_gpu = false;
  bool is_coherent = false;  // a GPU
  bool is_rdma = false;      // a NIC
  std::string subject;       // "GPU 0000:3b:00.0", "mlx5_0"
};
std::vector<PciDevice> pci_gpus(const Topology& topology);
std::vector<PciDevice> pci_nics(const Topology& topology);  // with and without RDMA
std::vector<PciDevice> rdma_nics(const Topology& topology);
// GPUs and RDMA NICs.
std::vector<PciDevice> pci_ends(const Topology& topology);

struct PciPair {
  PciDevice first, second;  // a GPU, and a NIC or another GPU
  std::string subject() const { return first.subject + " and " + second.subject; }
};
// Each GPU with each RDMA NIC and with each GPU after it.
std::vector<PciPair> pci_pairs(const Topology& topology);
Route route_of(const Topology& topology, const PciPair& pair);

// Why a check of pairs has nothing to do: "this machine has no GPU on PCI".
std::string why_no_pair(const Topology& topology);

const PciNode& node_of(const Topology& topology, int pci);

// A virtual function's link and most of its control registers are its physical function's: the device with `pci` of that one, when
// the tree has it; else as it is.
PciDevice with_registers(const Patient& patient, PciDevice device);

// The configuration space of the function with that address.
struct ConfigAnswer {
  std::string path;
  PciConfig config;     // every capability is hidden when there is none, or it reads all ones
  std::string trouble;  // why: "missing", "permission denied", "12 bytes are no configuration space"
};
ConfigAnswer config_of(const Patient& patient, const std::string& address);

// Configuration spaces of one check, each read once.
class ConfigReader {
 public:
  explicit ConfigReader(const Patient& patient) : patient_(patient) {}

  const ConfigAnswer& of(int pci);  // an index into Topology::pci

 private:
  const Patient& patient_;
  std::map<int, ConfigAnswer> answers_;
};
// Says `unknown` because the bytes end early or are not there.
void say_hidden(Findings& findings, const std::string& subject, const ConfigAnswer& answer, std::string_view what);

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

}  // namespace gigabar::doctor
