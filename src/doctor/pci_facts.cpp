// SPDX-License-Identifier: Apache-2.0
// Devices, pairs and configuration spaces, for the checks of PCI.
#include "doctor/pci_facts.hpp"

#include "base/counted.hpp"
#include "base/errors.hpp"

namespace gigabar::doctor {
namespace {

bool is_node(const Topology& topology, int pci) noexcept { return pci >= 0 && static_cast<std::size_t>(pci) < topology.pci.size(); }

}  // namespace

std::vector<PciDevice> pci_gpus(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (int i = 0; i < std::ssize(topology.gpus); ++i) {
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(i)];
    if (is_node(topology, gpu.pci)) devices.push_back({gpu.pci, i, true, gpu.is_coherent, false, subject_of(gpu)});
  }
  return devices;
}

std::vector<PciDevice> pci_nics(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (int i = 0; i < std::ssize(topology.nics); ++i) {
    const Nic& nic = topology.nics[static_cast<std::size_t>(i)];
    if (is_node(topology, nic.pci)) devices.push_back({nic.pci, i, false, false, !nic.rdma_device.empty(), nic.name});
  }
  return devices;
}

std::vector<PciDevice> rdma_nics(const Topology& topology) {
  std::vector<PciDevice> devices = pci_nics(topology);
  std::erase_if(devices, [](const PciDevice& nic) { return !nic.is_rdma; });
  return devices;
}

std::vector<PciDevice> pci_ends(const Topology& topology) {
  std::vector<PciDevice> devices = pci_gpus(topology);
  for (PciDevice& nic : rdma_nics(topology)) devices.push_back(std::move(nic));
  return devices;
}

std::vector<PciPair> pci_pairs(const Topology& topology) {
  const std::vector<PciDevice> gpus = pci_gpus(topology);
  const std::vector<PciDevice> nics = rdma_nics(topology);
  std::vector<PciPair> pairs;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (const PciDevice& nic : nics) pairs.push_back({gpus[i], nic});
    for (std::size_t other = i + 1; other < gpus.size(); ++other) pairs.push_back({gpus[i], gpus[other]});
  }
  return pairs;
}

Route route_of(const Topology& topology, const PciPair& pair) {
  const auto end = [](const PciDevice& device) {
    return Endpoint{device.is_gpu ? Endpoint::Kind::gpu : Endpoint::Kind::nic, device.index};
  };
  return route_between(topology, end(pair.first), end(pair.second));
}

std::string why_no_pair(const Topology& topology) {
  if (pci_gpus(topology).empty()) return "this machine has no GPU on PCI";
  return "this machine has one GPU and no RDMA NIC on PCI: no pair to look at";
}

const PciNode& node_of(const Topology& topology, int pci) { return topology.pci[static_cast<std::size_t>(pci)]; }

PciDevice with_registers(const Patient& patient, PciDevice device) {
  const PciAddress& address = node_of(patient.topology, device.pci).address;
  const auto owner = PciAddress::parse(patient.files.link_name(pci_folder(address) + "/physfn").value_or(""));
  const int pci = owner ? patient.topology.find_pci(*owner) : -1;
  if (pci >= 0) device.pci = pci;
  return device;
}

const ConfigReader::Answer& ConfigReader::of(int pci) {
  const auto [found, is_new] = answers_.try_emplace(pci);
  Answer& answer = found->second;
  if (!is_new) return answer;
  answer.path = pci_folder(node_of(patient_.topology, pci).address) + "/config";
  const FileText content = patient_.files.read(answer.path);
  if (!content.is_present()) {
    answer.trouble = value_of(content);
    return answer;
  }
  answer.config = PciConfig::parse(content.content);
  if (!answer.config) answer.trouble = text(counted(content.content.size(), "byte"), " are no configuration space");
  if (answer.config && answer.config->is_gone) {
    answer.config.reset();
    answer.is_gone = true;
    answer.trouble = "the device does not answer (every byte is 0xff)";
  }
  return answer;
}

void say_hidden(Findings& findings, const std::string& subject, const ConfigReader::Answer& answer, std::string_view what) {
  findings.reading(answer.path, answer.config ? counted(answer.config->bytes, "byte") : answer.trouble);
  if (answer.config) {
    findings.unknown(subject,
                     text(what, " cannot be read: the kernel gives only the first bytes of the configuration space to this user"),
                     "run as root; in a container with CAP_SYS_ADMIN of the host, or on the host itself");
  } else if (answer.is_gone) {
    findings.unknown(subject, text(what, " cannot be read: the device does not answer"),
                     "'gigabar explain pci.link' tells how a device is lost and what brings it back");
  } else {
    findings.unknown(subject, text(what, " cannot be read: no configuration space to read it from"),
                     "run as root and with the machine's own /sys; 'lspci -vv' shows the same registers");
  }
}

}  // namespace gigabar::doctor
