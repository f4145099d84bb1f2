// SPDX-License-Identifier: Apache-2.0
// Devices, pairs, configuration spaces and merged findings, for the checks of PCI.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/checks_pci.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxSubjects = 8;   // named in one finding
constexpr std::size_t kMaxReadings = 16;  // of one finding

// FAIL, WARN, UNKNOWN, PASS, SKIP.
int gravity(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::fail: return 0;
    case Verdict::warn: return 1;
    case Verdict::unknown: return 2;
    case Verdict::pass: return 3;
    case Verdict::skip: return 4;
  }
  return 2;
}

bool is_node(const Topology& topology, int pci) noexcept { return pci >= 0 && static_cast<std::size_t>(pci) < topology.pci.size(); }

std::string value_of(const FileText& text) {
  if (text.is_present()) return printable(text.content);
  if (text.state == FileState::missing) return "missing";
  return text.reason.empty() ? "not readable" : text.reason;
}

}  // namespace

FileText Note::read(const Patient& patient, const std::string& path) {
  FileText content = patient.files.read(path);
  readings.push_back({path, value_of(content)});
  return content;
}

void Note::say(Verdict its_verdict, std::string its_statement, std::string its_remedy, bool after_reboot) {
  verdict = its_verdict;
  statement = std::move(its_statement);
  remedy = std::move(its_remedy);
  needs_reboot = after_reboot;
}

struct Notes::Group {
  const Note* first = nullptr;
  std::vector<std::string> subjects;
  std::vector<Reading> readings;

  bool is_same(const Note& note) const {
    return first->verdict == note.verdict && first->statement == note.statement && first->remedy == note.remedy &&
           first->needs_reboot == note.needs_reboot;
  }
  void add(const Note& note) {
    if (std::find(subjects.begin(), subjects.end(), note.subject) == subjects.end()) subjects.push_back(note.subject);
    for (const Reading& reading : note.readings) {
      const bool is_there = std::any_of(readings.begin(), readings.end(), [&](const Reading& known) {
        return known.source == reading.source && known.value == reading.value;
      });
      if (!is_there && readings.size() < kMaxReadings) readings.push_back(reading);
    }
  }
  std::string subject() const {
    std::string list;
    for (std::size_t i = 0; i < std::min(subjects.size(), kMaxSubjects); ++i) list += (i == 0 ? "" : ", ") + subjects[i];
    if (subjects.size() > kMaxSubjects) list += text(" and ", subjects.size() - kMaxSubjects, " more");
    return list;
  }
};

std::vector<Notes::Group> Notes::merged() const {
  std::vector<Group> groups;
  for (const Note& note : notes_) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) { return known.is_same(note); });
    if (group == groups.end()) group = groups.insert(group, Group{&note, {}, {}});
    group->add(note);
  }
  // First notes lie in one vector: their addresses tell which was said first.
  std::sort(groups.begin(), groups.end(), [](const Group& left, const Group& right) {
    return std::pair(gravity(left.first->verdict), left.first) < std::pair(gravity(right.first->verdict), right.first);
  });
  return groups;
}

void Notes::give(Findings& findings, const std::string& otherwise) const {
  if (notes_.empty()) return findings.skip(otherwise);
  const auto say = [&](const Note& note, std::string subject) {
    switch (note.verdict) {
      case Verdict::pass: return findings.pass(std::move(subject), note.statement);
      case Verdict::warn: return findings.warn(std::move(subject), note.statement, note.remedy, note.needs_reboot);
      case Verdict::fail: return findings.fail(std::move(subject), note.statement, note.remedy, note.needs_reboot);
      case Verdict::unknown: return findings.unknown(std::move(subject), note.statement, note.remedy);
      case Verdict::skip: return findings.skip(subject.empty() ? note.statement : subject + ": " + note.statement);
    }
  };
  const std::vector<Group> groups = merged();
  const std::size_t shown = groups.size() > kMaxPciFindings ? kMaxPciFindings - 1 : groups.size();
  for (std::size_t i = 0; i < shown; ++i) {
    for (const Reading& reading : groups[i].readings) findings.reading(reading.source, reading.value);
    say(*groups[i].first, groups[i].subject());
  }
  if (shown == groups.size()) return;
  // The groups are sorted, so that the first one left out is the gravest of them.
  Note rest;
  rest.say(groups[shown].first->verdict, text(groups.size() - shown, " more findings of this check are not listed"),
           "mend what is listed and run the check again");
  say(rest, {});
}

std::vector<PciDevice> pci_gpus(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const Gpu& gpu = topology.gpus[i];
    if (!is_node(topology, gpu.pci)) continue;
    devices.push_back({gpu.pci, static_cast<int>(i), true, gpu.is_coherent, false, subject_of(gpu)});
  }
  return devices;
}

std::vector<PciDevice> pci_nics(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (std::size_t i = 0; i < topology.nics.size(); ++i) {
    const Nic& nic = topology.nics[i];
    if (!is_node(topology, nic.pci)) continue;
    devices.push_back({nic.pci, static_cast<int>(i), false, false, !nic.rdma_device.empty(), nic.name});
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

std::vector<int> way_up(const Topology& topology, int pci) {
  std::vector<int> way;
  // Parents come before children, so that a way up always ends.
  while (is_node(topology, pci)) {
    way.push_back(pci);
    const int above = topology.pci[static_cast<std::size_t>(pci)].parent;
    if (above >= pci) break;
    pci = above;
  }
  return way;
}

int common_bridge(const Topology& topology, int first, int second) {
  const std::vector<int> ways[2] = {way_up(topology, first), way_up(topology, second)};
  for (std::size_t i = 1; i < ways[0].size(); ++i) {
    if (std::find(ways[1].begin() + std::min<std::ptrdiff_t>(1, std::ssize(ways[1])), ways[1].end(), ways[0][i]) != ways[1].end()) {
      return ways[0][i];
    }
  }
  return -1;
}

PciDevice with_registers(const Patient& patient, PciDevice device) {
  const PciAddress& address = patient.topology.pci[static_cast<std::size_t>(device.pci)].address;
  const auto owner = PciAddress::parse(patient.files.link_name(pci_folder(address) + "/physfn").value_or(""));
  const int pci = owner ? patient.topology.find_pci(*owner) : -1;
  if (pci >= 0) device.pci = pci;
  return device;
}

const ConfigReader::Answer& ConfigReader::of(const PciAddress& address) {
  const auto [found, is_new] = answers_.try_emplace(address.to_string());
  Answer& answer = found->second;
  if (!is_new) return answer;
  answer.path = pci_folder(address) + "/config";
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

void say_hidden(Note& note, const ConfigReader::Answer& answer, std::string_view what) {
  if (answer.config) {
    note.readings.push_back({answer.path, counted(answer.config->bytes, "byte")});
    note.say(Verdict::unknown,
             text(what, " cannot be read: the kernel gives only the first bytes of the configuration space to this user"),
             "run as root; in a container with CAP_SYS_ADMIN of the host, or on the host itself");
    return;
  }
  note.readings.push_back({answer.path, answer.trouble});
  if (answer.is_gone) {
    return note.say(Verdict::unknown, text(what, " cannot be read: the device does not answer"),
                    "'gigabar explain pci.link' tells how a device is lost and what brings it back");
  }
  note.say(Verdict::unknown, text(what, " cannot be read: no configuration space to read it from"),
           "run as root and with the machine's own /sys; 'lspci -vv' shows the same registers");
}

std::string one_digit(double value) {
  std::array<char, 64> line{};
  std::snprintf(line.data(), line.size(), "%.1f", std::isfinite(value) ? value : 0.0);
  return line.data();
}

}  // namespace gigabar::doctor
