// SPDX-License-Identifier: Apache-2.0
// Which checks there are, and how they are run.
#include <cxxabi.h>

#include <algorithm>
#include <exception>
#include <new>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/old_check_ids.hpp"
#include "base/uncancelled.hpp"
#include "doctor/check.hpp"
#include "doctor/pages.hpp"

namespace gigabar::doctor {
namespace {

std::string_view group_of(std::string_view id) { return id.substr(0, id.find('.')); }

bool is_chosen(const CheckInfo& check, const std::vector<std::string>& only) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& wanted) {
           return check.id == wanted || group_of(check.id) == wanted || check.id.starts_with(wanted + ".");
         });
}

// Ids that share the first part with `wanted`, else all groups.
std::string near_ids(std::string_view wanted) {
  std::string ids, groups;
  for (const Check& check : all_checks()) {
    const std::string_view group = group_of(check.info.id);
    if (group == group_of(wanted)) ids += text(ids.empty() ? "" : ", ", check.info.id);
    if (groups.find(group) == std::string::npos) groups += text(groups.empty() ? "" : ", ", group);
  }
  return ids.empty() ? "the groups are " + groups : "near ones are " + ids;
}

void run(const Check& check, const Patient& patient, const ExamineOptions& options, Findings& findings) {
  if (options.on_begin) options.on_begin(check.info);
  try {
    check.run(patient, findings);
  } catch (const std::bad_alloc&) {
    throw;  // the examination's, not the check's
  } catch (const std::exception& failure) {
    findings.unknown({}, text("the check itself failed: ", failure.what()), "report this, with the machine's capture");
  }
}

}  // namespace

std::span<const Check> all_checks() {
  static const auto* const all = new std::vector<Check>{
#define GIGABAR_CHECK(id, function) {info_of(id), function},
#include "doctor/checks.def"
#undef GIGABAR_CHECK
  };
  return *all;
}

Result<void> require_checks(const std::vector<std::string>& chosen) {
  for (const std::string& wanted : chosen) {
    if (std::ranges::any_of(all_checks(), [&](const Check& check) { return is_chosen(check.info, {wanted}); })) continue;
    return make_error(Status::invalid_argument, "examine", text("check '", printable(wanted), "'"), "there is no such check",
                      near_ids(wanted));
  }
  return {};
}

}  // namespace gigabar::doctor

namespace gigabar::inline v0 {

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::pass: return "PASS";
    case Verdict::warn: return "WARN";
    case Verdict::fail: return "FAIL";
    case Verdict::unknown: return "UNKNOWN";
    case Verdict::skip: return "SKIP";
  }
  return "?";
}

std::span<const CheckInfo> checks() try {
  static const auto* const infos = [] {
    std::vector<CheckInfo> list;
    for (const doctor::Check& check : doctor::all_checks()) list.push_back(check.info);
    return new std::vector<CheckInfo>(std::move(list));
  }();
  return *infos;
} catch (...) {
  return {};
}

const CheckInfo* find_check(std::string_view id) try {
  const auto all = checks();
  const std::string wanted = current_check_id(id);
  const auto found = std::find_if(all.begin(), all.end(), [&](const CheckInfo& check) { return check.id == wanted; });
  return found == all.end() ? nullptr : &*found;
} catch (...) {
  return nullptr;
}

std::size_t Examination::count(Verdict verdict) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(findings, verdict, &Finding::verdict));
}

Result<Examination> examine(const Machine& machine, const ExamineOptions& options) try {
  const Uncancelled uncancelled;
  std::vector<std::string> only;
  for (const std::string& wanted : options.only) only.push_back(current_check_id(wanted));
  if (Result<void> known = doctor::require_checks(only); !known) return std::move(known).error();
  // A day is as good as no deadline, and stays far from the end of what counts nanoseconds.
  const auto patience = std::min<std::chrono::milliseconds>(options.deadline, std::chrono::hours(24));
  const std::int64_t end_ns = now_ns() + std::chrono::nanoseconds(std::max(patience, std::chrono::milliseconds(0))).count();
  Result<Topology> topology = discover_topology(machine);
  Examination examination;
  if (topology) {
    examination.topology = std::move(*topology);
  } else if (topology.status() == Status::out_of_memory) {
    return std::move(topology).error();
  } else {
    // Checks that need no topology can still say something.
    examination.has_topology = false;
    examination.topology.notes.push_back(topology.error().message());
  }
  const doctor::Patient patient{machine.files(), machine.answers(), examination.topology, machine.is_live(), end_ns};
  for (const doctor::Check& check : doctor::all_checks()) {
    const bool is_left_out = check.info.is_probe && !options.with_probes;
    if (!doctor::is_chosen(check.info, only) || (is_left_out && only.empty())) continue;
    doctor::Findings findings(check.info.id);
    if (is_left_out) {
      findings.skip("probes were not asked for");  // who named the check is told why it says nothing
    } else if (now_ns() >= end_ns) {
      findings.unknown({}, std::string(doctor::kNotBegun), "give it more time, or choose checks with --only");
    } else {
      doctor::run(check, patient, options, findings);
    }
    std::ranges::move(findings.take(), std::back_inserter(examination.findings));
  }
  return examination;
} catch (const abi::__forced_unwind&) {
  throw;  // the callback has ended this thread
} catch (...) {
  return error_of_exception("examine");
}

}  // namespace gigabar::inline v0
