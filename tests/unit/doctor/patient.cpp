// SPDX-License-Identifier: Apache-2.0
#include "unit/doctor/patient.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gigabar::test {

TestPatient& TestPatient::file(const std::string& path, std::string content) {
  files_[path] = std::move(content);
  return *this;
}

TestPatient& TestPatient::unreadable(const std::string& path, std::string reason) {
  files_.erase(path);
  unreadable_[path] = std::move(reason);
  return *this;
}

TestPatient& TestPatient::link(const std::string& path, std::string target) {
  links_[path] = std::move(target);
  return *this;
}

TestPatient& TestPatient::folder(const std::string& path) {
  folders_.insert(path);
  return *this;
}

TestPatient& TestPatient::device(const std::string& path, bool can_read, bool can_write, std::uint32_t major, std::uint32_t minor) {
  devices_[path] = {NodeKind::character_device, 0666, major, minor, can_read, can_write, {}};
  return *this;
}

TestPatient& TestPatient::opened(const std::string& path, int error) {
  devices_.at(path).open_errno = error;
  return *this;
}

TestPatient& TestPatient::remove(const std::string& path) {
  files_.erase(path);
  unreadable_.erase(path);
  links_.erase(path);
  devices_.erase(path);
  folders_.erase(path);
  return *this;
}

std::string TestPatient::pci_path(const std::string& address, const std::vector<std::string>& parents) const {
  const std::string& top = parents.empty() ? address : parents.front();
  std::string path = "/sys/devices/pci" + top.substr(0, 7);
  for (const std::string& parent : parents) path += "/" + parent;
  return path + "/" + address;
}

int TestPatient::pci(const std::string& address, const std::vector<std::string>& parents, std::uint32_t class_code, int numa_node,
                     std::uint16_t vendor) {
  if (const int there = topology.find_pci(PciAddress::parse(address).value()); there >= 0) return there;
  int above = -1;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    above = pci(parents[i], {parents.begin(), parents.begin() + static_cast<std::ptrdiff_t>(i)}, 0x060400, numa_node, 0x1000);
  }
  PciNode node;
  node.address = PciAddress::parse(address).value();
  node.vendor = vendor;
  node.class_code = class_code;
  node.is_bridge = class_code >> 8 == 0x0604;
  node.parent = above;
  node.root_complex = "pci" + (parents.empty() ? address : parents.front()).substr(0, 7);
  node.numa_node = numa_node;
  topology.pci.push_back(node);
  const std::string path = pci_path(address, parents);
  folder(path);
  link("/sys/bus/pci/devices/" + address, "../../.." + path.substr(4));
  file(path + "/numa_node", std::to_string(numa_node) + "\n");
  return static_cast<int>(topology.pci.size()) - 1;
}

TestPatient& TestPatient::pci_file(const std::string& address, const std::string& name, std::string content) {
  const std::string& target = links_.at("/sys/bus/pci/devices/" + address);
  return file("/sys" + target.substr(8) + "/" + name, std::move(content));
}

int TestPatient::gpu(const std::string& address, const std::vector<std::string>& parents, int numa_node) {
  Gpu gpu;
  gpu.pci = pci(address, parents, 0x030200, numa_node, 0x10de);
  gpu.address = PciAddress::parse(address).value();
  gpu.cuda_index = static_cast<int>(topology.gpus.size());
  gpu.name = "NVIDIA test GPU";
  gpu.uuid = "GPU-" + address;
  gpu.numa_node = numa_node;
  topology.gpus.push_back(gpu);
  GpuAnswers answer;
  answer.pci = address;
  answer.uuid = gpu.uuid;
  answer.name = gpu.name;
  answer.cuda_index = gpu.cuda_index;
  answers.gpus.push_back(answer);
  return static_cast<int>(topology.gpus.size()) - 1;
}

int TestPatient::nic(const std::string& name, const std::string& address, const std::vector<std::string>& parents, int numa_node) {
  Nic nic;
  nic.pci = pci(address, parents, 0x020700, numa_node);
  nic.name = name;
  nic.rdma_device = name;
  nic.driver = "mlx5_core";
  nic.numa_node = numa_node;
  topology.nics.push_back(nic);
  link("/sys/class/infiniband/" + name + "/device", "/sys/bus/pci/devices/" + address);
  return static_cast<int>(topology.nics.size()) - 1;
}

namespace {

std::string to_base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 0x3f];
  }
  return text;
}

// Binary content, such as a configuration space, is no JSON text.
nlohmann::json json_of(const std::map<std::string, std::string>& files) {
  nlohmann::json section = nlohmann::json::object();
  for (const auto& [path, content] : files) {
    const bool is_text = std::all_of(content.begin(), content.end(),
                                     [](char letter) { return letter != '\0' && static_cast<unsigned char>(letter) < 0x80; });
    section[path] = is_text ? nlohmann::json(content) : nlohmann::json{{"base64", to_base64(content)}};
  }
  return section;
}

}  // namespace

std::vector<Finding> TestPatient::run(std::string_view check) const {
  nlohmann::json archive = {{"format", "gigabar-machine"},        {"version", 1},    {"files", json_of(files_)},
                            {"unreadable", unreadable_},          {"links", links_}, {"folders", folders_},
                            {"devices", nlohmann::json::object()}};
  for (const auto& [path, facts] : devices_) {
    archive["devices"][path] = {{"mode", facts.mode},
                                {"major", facts.device_major},
                                {"minor", facts.device_minor},
                                {"can_read", facts.can_read},
                                {"can_write", facts.can_write}};
    if (facts.open_errno) archive["devices"][path]["open_errno"] = *facts.open_errno;
  }
  const Result<SystemFiles> files = SystemFiles::of_archive(archive.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!files) throw std::runtime_error(files.error().message());
  const doctor::Patient patient{*files, answers, topology, is_live, end_ns};
  for (const doctor::Check& candidate : doctor::all_checks()) {
    if (candidate.info.id != check) continue;
    doctor::Findings findings(check);
    candidate.run(patient, findings);
    return findings.take();
  }
  throw std::runtime_error("no check is called " + std::string(check));
}

Verdict TestPatient::verdict(std::string_view check) const {
  const std::vector<Finding> findings = run(check);
  EXPECT_EQ(findings.size(), 1u) << to_text(findings);
  return findings.size() == 1 ? findings.front().verdict : Verdict::unknown;
}

std::vector<CheckInfo> checks_of(std::initializer_list<std::string_view> groups) {
  std::vector<CheckInfo> all;
  for (const CheckInfo& check : checks()) {
    const std::string_view group = check.id.substr(0, check.id.find('.'));
    if (std::find(groups.begin(), groups.end(), group) != groups.end()) all.push_back(check);
  }
  return all;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += std::string(name_of(finding.verdict)) + " " + finding.check + " " + finding.subject + ": " + finding.statement + " | " +
            finding.remedy + "\n";
  }
  return text;
}

void expect(const TestPatient& machine, std::string_view check, Verdict verdict, const std::string& statement,
            const std::string& remedy) {
  const std::vector<Finding> findings = machine.run(check);
  ASSERT_EQ(findings.size(), 1u) << to_text(findings);
  EXPECT_EQ(name_of(findings[0].verdict), name_of(verdict)) << to_text(findings);
  EXPECT_NE(findings[0].statement.find(statement), std::string::npos) << to_text(findings);
  EXPECT_NE(findings[0].remedy.find(remedy), std::string::npos) << to_text(findings);
  const bool wants_remedy = verdict != Verdict::pass && verdict != Verdict::skip;
  EXPECT_EQ(findings[0].remedy.empty(), !wants_remedy) << to_text(findings);
}

Finding of_subject(const std::vector<Finding>& findings, std::string_view subject) {
  for (const Finding& finding : findings) {
    if (finding.subject == subject) return finding;
  }
  ADD_FAILURE() << "no finding of '" << subject << "' in\n" << to_text(findings);
  return {};
}

std::string value_of(const Finding& finding, std::string_view source) {
  for (const Reading& reading : finding.readings) {
    if (reading.source == source) return reading.value;
  }
  return "(no such reading)";
}

}  // namespace gigabar::test
