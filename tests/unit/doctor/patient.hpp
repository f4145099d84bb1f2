// SPDX-License-Identifier: Apache-2.0
// A machine for one check: files as a test wants them, answers of drivers, a topology.
#pragma once

#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.hpp"

namespace gigabar::test {

class TestPatient {
 public:
  DriverAnswers answers;
  Topology topology;
  bool is_live = false;
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();

  // Paths as on the machine: "/sys/module/nvidia/version".
  TestPatient& file(const std::string& path, std::string content);
  TestPatient& unreadable(const std::string& path, std::string reason = "permission denied");
  TestPatient& link(const std::string& path, std::string target);
  TestPatient& folder(const std::string& path);
  TestPatient& device(const std::string& path, bool can_read = true, bool can_write = true, std::uint32_t major = 195,
                      std::uint32_t minor = 0);
  // What open() of a device said that is there already.
  TestPatient& opened(const std::string& path, int error);
  TestPatient& remove(const std::string& path);

  // A PCI device in `topology` and as a folder and link in the files: `parents` are the bridges above, the topmost first, each
  // "0000:3a:01.0"; they are added when they are not there yet. Returns the index into topology.pci.
  int pci(const std::string& address, const std::vector<std::string>& parents = {}, std::uint32_t class_code = 0x020000,
          int numa_node = 0, std::uint16_t vendor = 0x15b3);
  // A file of a PCI device, "current_link_speed".
  TestPatient& pci_file(const std::string& address, const std::string& name, std::string content);
  // A GPU (0x10de, class 0x030200) and its answers; a NIC with the RDMA device `name`. Both call pci(). Return indexes.
  int gpu(const std::string& address, const std::vector<std::string>& parents = {}, int numa_node = 0);
  int nic(const std::string& name, const std::string& address, const std::vector<std::string>& parents = {}, int numa_node = 0);

  // Runs one check by id. Throws when there is none.
  std::vector<Finding> run(std::string_view check) const;
  // The verdict of the only finding; `unknown` with a failure of the test when there is another number of findings.
  Verdict verdict(std::string_view check) const;

 private:
  std::string pci_path(const std::string& address, const std::vector<std::string>& parents) const;
  std::map<std::string, std::string> files_, unreadable_, links_;
  std::map<std::string, NodeFacts> devices_;
  std::set<std::string> folders_;
};

// The descriptions of the checks whose ids begin with one of these words, in their order.
std::vector<CheckInfo> checks_of(std::initializer_list<std::string_view> groups);

// "FAIL pci.acs GPU 0000:3b:00.0 and mlx5_0: statement | remedy", a line for each: for messages of failed tests.
std::string to_text(const std::vector<Finding>& findings);

// The check's only finding has this verdict, and its statement and remedy hold these words.
void expect(const TestPatient& machine, std::string_view check, Verdict verdict, const std::string& statement,
            const std::string& remedy = "");
// The finding of this subject; a failure of the test and an empty one when there is none.
Finding of_subject(const std::vector<Finding>& findings, std::string_view subject);
// What was read there; "(no such reading)" when nothing was.
std::string value_of(const Finding& finding, std::string_view source);

}  // namespace gigabar::test
