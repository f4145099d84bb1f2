// SPDX-License-Identifier: Apache-2.0
// Machines that the checks of PCI look at: a GPU and a NIC below one switch, or below two root ports.
#pragma once

#include <string>
#include <vector>

#include "unit/doctor/patient.hpp"
#include "unit/platform/config_space.hpp"

namespace gigabar::test {

inline const std::string kRoot = "0000:3a:01.0", kUpper = "0000:3b:00.0";
inline const std::string kGpuPort = "0000:3c:00.0", kNicPort = "0000:3c:01.0";
inline const std::string kGpu = "0000:3d:00.0", kNic = "0000:3e:00.0";
inline const std::string kFarRoot = "0000:5a:01.0";

inline std::string cpu_of(const std::string& vendor, const std::string& name, const std::string& flags = "fpu vme sse2",
                          unsigned sockets = 1) {
  std::string text;
  for (unsigned socket = 0; socket < sockets; ++socket) {
    text += "processor\t: " + std::to_string(socket) + "\nvendor_id\t: " + vendor +
            "\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: " + name + "\nphysical id\t: " + std::to_string(socket) +
            "\nflags\t\t: " + flags + "\n\n";
  }
  return text;
}
inline const std::string kXeon = cpu_of("GenuineIntel", "Intel(R) Xeon(R) Platinum 8480C");
inline const std::string kTwoXeons = cpu_of("GenuineIntel", "Intel(R) Xeon(R) Platinum 8480C", "fpu vme", 2);
inline const std::string kEpyc = cpu_of("AuthenticAMD", "AMD EPYC 9654 96-Core Processor");
inline const std::string kCore = cpu_of("GenuineIntel", "13th Gen Intel(R) Core(TM) i9-13900K");
inline const std::string kVirtualXeon = cpu_of("GenuineIntel", "Intel(R) Xeon(R) Processor", "fpu vme hypervisor sse2");
inline const std::string kArm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n";

inline PciNode& node(TestPatient& patient, const std::string& address) {
  return patient.topology.pci.at(static_cast<std::size_t>(patient.topology.find_pci(PciAddress::parse(address).value())));
}

inline const std::vector<std::string>& every_address() {
  static const std::vector<std::string> all{kRoot, kUpper, kGpuPort, kNicPort, kGpu, kNic};
  return all;
}

// A link as /sys tells of it and as the topology has it.
inline void give_link(TestPatient& patient, const std::string& address, unsigned width = 16, unsigned most_width = 16,
                      const std::string& speed = "32.0", const std::string& most_speed = "32.0") {
  patient.pci_file(address, "current_link_width", std::to_string(width) + "\n");
  patient.pci_file(address, "max_link_width", std::to_string(most_width) + "\n");
  patient.pci_file(address, "current_link_speed", speed + " GT/s PCIe\n");
  patient.pci_file(address, "max_link_speed", most_speed + " GT/s PCIe\n");
  node(patient, address).link = {std::stod(speed), width, std::stod(most_speed), most_width};
}

inline void give_config(TestPatient& patient, const std::string& address, const ConfigSpace& space, std::size_t bytes = 4096) {
  patient.pci_file(address, "config", space.bytes(bytes));
}

inline void give_port(TestPatient& patient, const std::string& nic, double gbit_per_s, const std::string& state = "ACTIVE") {
  RdmaPort port;
  port.state = state;
  port.link_layer = "InfiniBand";
  port.rate_gbit_per_s = gbit_per_s;
  patient.topology.nics.at(static_cast<std::size_t>(patient.topology.find_nic(nic))).ports = {port};
}

// mlx5_0 at 400 Gb/s and a GPU below one switch of a bare-metal Xeon; every link is PCIe 5.0 x16.
inline TestPatient one_switch(const std::string& cpu = kXeon) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", cpu);
  patient.gpu(kGpu, {kRoot, kUpper, kGpuPort});
  patient.nic("mlx5_0", kNic, {kRoot, kUpper, kNicPort});
  for (const std::string& address : every_address()) give_link(patient, address);
  give_port(patient, "mlx5_0", 400);
  return patient;
}

// The same below a root port each, of host bridges of their own.
inline TestPatient two_roots(const std::string& cpu = kXeon, int nic_node = 0) {
  TestPatient patient;
  patient.file("/proc/cpuinfo", cpu);
  patient.gpu(kGpu, {kRoot}, 0);
  patient.nic("mlx5_0", kNic, {kFarRoot}, nic_node);
  for (const std::string& address : {kRoot, kFarRoot, kGpu, kNic}) give_link(patient, address);
  give_port(patient, "mlx5_0", 400);
  return patient;
}

// How many findings have a verdict.
inline std::size_t count(const std::vector<Finding>& findings, Verdict verdict) {
  std::size_t number = 0;
  for (const Finding& finding : findings) number += finding.verdict == verdict ? 1 : 0;
  return number;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace gigabar::test
