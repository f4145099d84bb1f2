// SPDX-License-Identifier: Apache-2.0
// Findings: what one check says, and the names of things in it.
#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/check.hpp"
#include "doctor/members.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxFindings = 64;  // joined ones of a check; the last one counts the others
constexpr std::size_t kMaxSubjects = 8;   // named in a joined one
constexpr std::size_t kMaxReadings = 16;  // of a joined one

bool say_the_same(const Finding& a, const Finding& b) {
  return a.verdict == b.verdict && a.statement == b.statement && a.remedy == b.remedy && a.needs_reboot == b.needs_reboot;
}

bool is_same(const Reading& a, const Reading& b) { return a.source == b.source && a.value == b.value; }

// A finding and the subjects of those that say the same.
struct Group {
  Finding finding;
  std::vector<std::string> subjects;

  void add(const Finding& other) {
    if (std::ranges::find(subjects, other.subject) == subjects.end()) subjects.push_back(other.subject);
    auto& readings = finding.readings;
    for (const Reading& reading : other.readings) {
      const bool is_there = std::ranges::any_of(readings, [&](const Reading& known) { return is_same(known, reading); });
      if (!is_there && readings.size() < kMaxReadings) readings.push_back(reading);
    }
  }

  Finding joined_finding() && {
    const std::size_t more = subjects.size() - std::min(subjects.size(), kMaxSubjects);
    subjects.resize(subjects.size() - more);
    finding.subject = joined(subjects) + (more > 0 ? text(" and ", more, " more") : "");
    return std::move(finding);
  }
};

}  // namespace

FileText Findings::read(const Patient& patient, const std::string& path) {
  FileText content = patient.files.read(path);
  reading(path, value_of(content));
  return content;
}

void Findings::reading(std::string_view source, std::string_view value) {
  // A source may hold names that came from the machine.
  readings_.push_back({printable(source), printable(value)});
}

void Findings::readings(const std::vector<Reading>& all) {
  for (const Reading& one : all) reading(one.source, one.value);
}

void Findings::say(std::string subject, MaybeRuling ruling) {
  if (!ruling) return;
  findings_.push_back({check_, std::move(subject), ruling->verdict, std::move(ruling->statement), std::exchange(readings_, {}),
                       std::move(ruling->remedy), ruling->needs_reboot});
}

Ruling Findings::no_device(const Patient& patient, std::string_view statement, const char* folder) {
  const std::optional<Reading> hidden = what_hides(patient, folder);
  if (!hidden) return skip(statement);
  reading(hidden->source, hidden->value);
  return unknown(statement_of_hidden(*hidden), kShowHidden);
}

Ruling Findings::no_end(const Patient& patient, std::string_view statement) {
  return no_device(patient, statement, what_hides(patient, kPciFolder) ? kPciFolder : kInfinibandFolder);
}

MaybeRuling Findings::join_alike(const Patient& patient, std::string_view otherwise) {
  if (findings_.empty()) return no_end(patient, otherwise);
  return join_alike(otherwise);
}

MaybeRuling Findings::join_alike(std::string_view otherwise) {
  if (findings_.empty()) return skip(otherwise);
  std::vector<Group> groups;
  for (Finding& finding : findings_) {
    auto group = std::ranges::find_if(groups, [&](const Group& known) { return say_the_same(known.finding, finding); });
    if (group == groups.end()) {
      group = groups.insert(group, {finding, {}});
      group->finding.readings.clear();
    }
    group->add(finding);
  }
  findings_.clear();
  for (const Verdict verdict : kByGravity) {
    for (Group& group : groups) {
      if (group.finding.verdict == verdict) findings_.push_back(std::move(group).joined_finding());
    }
  }
  if (findings_.size() <= kMaxFindings) return {};
  // They are sorted, so that the first one left out is the gravest of them.
  const std::size_t more = findings_.size() - kMaxFindings + 1;
  const Verdict gravest = findings_[kMaxFindings - 1].verdict;
  findings_.resize(kMaxFindings - 1);
  return Ruling{gravest, text(more, " more findings of this check are not listed"),
                gravest == Verdict::pass ? "" : "follow the remedies listed and run the check again"};
}

void Findings::join_gpus() {
  const auto first = std::ranges::find_if(findings_, [](const Finding& finding) { return !finding.subject.empty(); });
  const auto count = findings_.end() - first;
  if (count < 2 || !std::all_of(first + 1, findings_.end(), [&](const Finding& other) { return say_the_same(*first, other); }))
    return;
  first->subject = text("all ", counted(static_cast<std::size_t>(count), "GPU"));
  for (auto other = first + 1; other != findings_.end(); ++other)
    first->readings.insert(first->readings.end(), other->readings.begin(), other->readings.end());
  findings_.erase(first + 1, findings_.end());
}

std::vector<Finding> Findings::take() {
  if (findings_.empty())
    say({}, unknown("the check came to no verdict", "report this, with the output of 'gigabar doctor --json'"));
  return std::move(findings_);
}

std::optional<Reading> what_hides(const Patient& patient, const char* folder) {
  if (std::string reason = patient.files.list(folder).reason; !reason.empty()) return Reading{folder, std::move(reason)};
  if (std::string_view(folder) != kPciFolder) return {};
  for (const PciNode& node : patient.topology.pci) {
    if (node.class_code != 0) continue;
    const std::string path = pci_folder(node.address) + "/class";
    const FileText file = patient.files.read(path);
    if (file.state == FileState::unreadable) return Reading{path, value_of(file)};
  }
  return {};
}

std::string statement_of_hidden(const Reading& hidden) {
  return text(hidden.source, " cannot be read (", printable(hidden.value), "), so which devices are here is not known");
}

std::string pci_folder(std::string_view address) { return text(kPciFolder, "/", address); }

std::string subject_of(const Gpu& gpu) { return "GPU " + gpu.address.to_string(); }

}  // namespace gigabar::doctor
