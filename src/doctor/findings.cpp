// SPDX-License-Identifier: Apache-2.0
// Findings: what one check says, and the names of things in it.
#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "doctor/check.hpp"

namespace gigabar::doctor {
namespace {

std::string value_of(const FileText& text) {
  switch (text.state) {
    case FileState::present: return printable(text.content);
    case FileState::missing: return "missing";
    case FileState::unreadable:
    case FileState::refused: return text.reason.empty() ? "not readable" : text.reason;
  }
  return "missing";
}

}  // namespace

FileText Findings::read(const Patient& patient, const std::string& path) {
  FileText content = patient.files.read(path);
  reading(path, value_of(content));
  return content;
}

void Findings::reading(std::string source, std::string value) {
  // A source may hold names that came from the machine.
  source = printable(source);
  value = printable(value);
  readings_.push_back({std::move(source), std::move(value)});
}

void Findings::pass(std::string subject, std::string statement) {
  add(std::move(subject), Verdict::pass, std::move(statement), {}, false);
}

void Findings::warn(std::string subject, std::string statement, std::string remedy, bool needs_reboot) {
  add(std::move(subject), Verdict::warn, std::move(statement), std::move(remedy), needs_reboot);
}

void Findings::fail(std::string subject, std::string statement, std::string remedy, bool needs_reboot) {
  add(std::move(subject), Verdict::fail, std::move(statement), std::move(remedy), needs_reboot);
}

void Findings::unknown(std::string subject, std::string statement, std::string remedy) {
  add(std::move(subject), Verdict::unknown, std::move(statement), std::move(remedy), false);
}

void Findings::skip(std::string statement) { add({}, Verdict::skip, std::move(statement), {}, false); }

std::vector<Finding> Findings::take() {
  if (findings_.empty()) unknown({}, "the check came to no verdict", "report this, with the output of 'gigabar doctor --json'");
  return std::move(findings_);
}

void Findings::add(std::string subject, Verdict verdict, std::string statement, std::string remedy, bool needs_reboot) {
  Finding finding;
  finding.check = check_;
  finding.subject = std::move(subject);
  finding.verdict = verdict;
  finding.statement = std::move(statement);
  finding.readings = std::exchange(readings_, {});
  finding.remedy = std::move(remedy);
  finding.needs_reboot = needs_reboot;
  findings_.push_back(std::move(finding));
}

std::string pci_folder(const PciAddress& address) { return "/sys/bus/pci/devices/" + address.to_string(); }

std::string subject_of(const Gpu& gpu) { return "GPU " + gpu.address.to_string(); }

std::string subject_of(const Gpu& gpu, const Nic& nic) { return subject_of(gpu) + " and " + nic.name; }

std::string printable(std::string_view text, std::size_t most) {
  constexpr std::string_view kBlank(" \t\r\n\v\f\0", 7);
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
  const bool is_cut = text.size() > most;
  std::string line(text.substr(0, most));
  std::replace_if(
      line.begin(), line.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }, ' ');
  // A binary file's bytes are no characters of any encoding that the reader has.
  std::replace_if(line.begin(), line.end(), [](char letter) { return static_cast<unsigned char>(letter) >= 0x80; }, '?');
  if (is_cut) line += "...";
  return line;
}

}  // namespace gigabar::doctor
