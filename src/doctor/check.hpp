// SPDX-License-Identifier: Apache-2.0
// A check, as its file in checks_*.cpp defines it, and what it is given to look at.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/doctor.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_files.hpp"

namespace gigabar::doctor {

// The machine as every check sees it.
struct Patient {
  const SystemFiles& files;
  const DriverAnswers& answers;
  const Topology& topology;
  bool is_live = false;
};

// Collects what a check says. Readings go to the next finding.
class Findings {
 public:
  explicit Findings(std::string_view check) : check_(check) {}

  // Reads a file and remembers path and value (or why there is none) for the next finding.
  FileText read(const Patient& patient, const std::string& path);
  // Remembers what was learned in another way.
  void reading(std::string source, std::string value);

  void pass(std::string subject, std::string statement);
  void warn(std::string subject, std::string statement, std::string remedy, bool needs_reboot = false);
  void fail(std::string subject, std::string statement, std::string remedy, bool needs_reboot = false);
  // `remedy` says how to find out ("run as root").
  void unknown(std::string subject, std::string statement, std::string remedy);
  void skip(std::string statement);  // of the whole check

  std::vector<Finding> take();  // a check that said nothing gives `unknown`

 private:
  void add(std::string subject, Verdict verdict, std::string statement, std::string remedy, bool needs_reboot);
  std::string check_;
  std::vector<Reading> readings_;
  std::vector<Finding> findings_;
};

struct Check {
  CheckInfo info;
  void (*run)(const Patient& patient, Findings& findings);
};

// Each checks_<group>.cpp has one table; all_checks() is their order.
std::span<const Check> driver_checks();  // drv.*, kern.*, mod.*, libs, gin, imex
std::span<const Check> gpu_checks();     // gpu.*, nvlink, bar1.*
std::span<const Check> rdma_checks();    // rdma.*
std::span<const Check> pci_checks();     // pci.*, iommu.*, vm.detect
std::span<const Check> host_checks();    // lim.*, numa.*, cpu.*, huge
std::span<const Check> probe_checks();   // probe.*
std::span<const Check> all_checks();

// "/sys/bus/pci/devices/0000:3b:00.0"
std::string pci_folder(const PciAddress& address);
// "GPU 0000:3b:00.0", "mlx5_0", "GPU 0000:3b:00.0 and mlx5_0".
std::string subject_of(const Gpu& gpu);
std::string subject_of(const Gpu& gpu, const Nic& nic);
// One line, at most 200 characters, control characters replaced: for values and statements made of what was read.
std::string printable(std::string_view text, std::size_t most = 200);

}  // namespace gigabar::doctor
