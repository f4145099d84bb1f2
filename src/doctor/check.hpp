// SPDX-License-Identifier: Apache-2.0
// A check, what it is given to look at, and what it says.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "doctor/words.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/status.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_files.hpp"

namespace gigabar::doctor {

// The machine as every check sees it.
struct Patient {
  const SystemFiles& files;
  const DriverAnswers& answers;
  const Topology& topology;
  bool is_live = false;
  std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();  // of the examination: a check that takes long ends by then
};

// What is unknown for want of time only.
inline constexpr std::string_view kNotBegun = "the time for the examination was over before this check";
inline constexpr std::string_view kPairLeftOut = "the time for all transfers had passed";

// What a check says of a subject, or of the machine.
struct Ruling {
  Verdict verdict = Verdict::unknown;
  std::string statement;
  std::string remedy;  // of an unknown: how to find out ("run as root"); a pass and a skip have none
  bool needs_reboot = false;
};
using MaybeRuling = std::optional<Ruling>;  // nothing: there is nothing to say, or all was said

template <class... Parts>
Ruling pass(const Parts&... statement) {
  return {Verdict::pass, text(statement...), {}};
}
template <class... Parts>
Ruling skip(const Parts&... statement) {
  return {Verdict::skip, text(statement...), {}};
}
inline Ruling warn(std::string statement, std::string remedy, bool needs_reboot = false) {
  return {Verdict::warn, std::move(statement), std::move(remedy), needs_reboot};
}
inline Ruling fail(std::string statement, std::string remedy, bool needs_reboot = false) {
  return {Verdict::fail, std::move(statement), std::move(remedy), needs_reboot};
}
inline Ruling unknown(std::string statement, std::string remedy) {
  return {Verdict::unknown, std::move(statement), std::move(remedy)};
}

// Collects what a check says. Readings go to the next finding.
class Findings {
 public:
  explicit Findings(std::string_view check) : check_(check) {}

  // Reads a file and remembers path and value (or why there is none) for the next finding.
  FileText read(const Patient& patient, const std::string& path);
  // Remembers what was learned in another way.
  void reading(std::string_view source, std::string_view value);
  void readings(const std::vector<Reading>& all);

  void say(std::string subject, MaybeRuling ruling);
  // What `judge` returns, or the ruling that it throws: a step that cannot be done ends a probe so.
  template <class Judge>
  void say_what(std::string subject, const Judge& judge) {
    MaybeRuling ruling;
    try {
      ruling = judge();
    } catch (Ruling& end) {
      ruling = std::move(end);
    }
    say(std::move(subject), std::move(ruling));
  }

  // A skip for want of devices; `unknown` where something hides those that the folder may list.
  Ruling no_device(const Patient& patient, std::string_view statement, const char* folder = kPciFolder);
  // Of GPUs and RDMA NICs: which NICs are such is told by another folder than the bus.
  Ruling no_end(const Patient& patient, std::string_view statement);

  std::size_t count() const noexcept { return findings_.size(); }

  // Findings that say the same become one about all their subjects, and the gravest come first. Without any: a skip that says
  // `otherwise`; with a patient, it is as no_end().
  MaybeRuling join_alike(std::string_view otherwise);
  MaybeRuling join_alike(const Patient& patient, std::string_view otherwise);
  // When all findings with a subject say the same, they become one, about "all 4 GPUs".
  void join_gpus();

  std::vector<Finding> take();  // a check that said nothing gives `unknown`

 private:
  std::string check_;
  std::vector<Reading> readings_;
  std::vector<Finding> findings_;
};

// Returns what it says of the machine as a whole, or throws it.
using CheckFunction = MaybeRuling(const Patient& patient, Findings& findings);

struct Check {
  CheckInfo info;
  CheckFunction* function;

  void run(const Patient& patient, Findings& findings) const {
    findings.say_what({}, [&] { return function(patient, findings); });
  }
};

std::span<const Check> all_checks();

// Errors: invalid_argument (an element is neither the id of a check nor a group; the record lists similar ones).
Result<void> require_checks(const std::vector<std::string>& chosen);

#define GIGABAR_CHECK(id, function) CheckFunction function;
#include "doctor/checks.def"
#undef GIGABAR_CHECK

// availability() of a machine whose parts are already known.
std::vector<PathReport> availability_of(const Patient& patient);

// What hides devices that one of those folders may have, and why: it cannot be listed, or a PCI device does not say what it is.
std::optional<Reading> what_hides(const Patient& patient, const char* folder);
// "/sys/bus/pci/devices cannot be read (permission denied), so which devices are here is not known"
std::string statement_of_hidden(const Reading& hidden);
inline constexpr const char* kShowHidden =
    "run as root, or as a user who may read it; where too many files are open, raise 'ulimit -n'; a capture has to be made anew";

// "/sys/bus/pci/devices/0000:3b:00.0"
std::string pci_folder(std::string_view address);
inline std::string pci_folder(const PciAddress& address) { return pci_folder(address.to_string()); }
// "GPU 0000:3b:00.0"
std::string subject_of(const Gpu& gpu);

}  // namespace gigabar::doctor
