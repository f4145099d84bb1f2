// SPDX-License-Identifier: Apache-2.0
#include "softhca/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "support/failure.hpp"
#include "support/sizes.hpp"

namespace gigabar::tool::softhca {
namespace {

struct Rule {
  FaultKind kind;
  const char* name;
  const char* number;  // what N counts; empty: the kind has no N
  std::uint64_t usual;
  std::uint64_t least;
  std::uint64_t most;
};

// Of doorbells: each that is lost costs a wait until its deadline, and a place of memory. Of polls: about a second.
constexpr std::uint64_t kMaxLost = 1000;
constexpr std::uint64_t kMaxPolls = 1'000'000;

constexpr std::array kRules = {Rule{FaultKind::late_record, "late-record", "POLLS", 20, 1, kMaxPolls},
                               Rule{FaultKind::lost_record, "lost-record", "COUNT", 1, 1, kMaxLost},
                               Rule{FaultKind::lost_doorbell, "lost-doorbell", "COUNT", 1, 1, kMaxLost},
                               Rule{FaultKind::reorder, "reorder", "PERCENT", 80, 1, 95},
                               Rule{FaultKind::error, "error", "REQUEST", 3, 1, std::uint64_t{1} << 32},
                               Rule{FaultKind::wrap, "wrap", "REQUESTS", 8, 1, 65536},
                               Rule{FaultKind::full_ring, "full-ring", "", 0, 0, 0},
                               Rule{FaultKind::late_read, "late-read", "POLLS", 1000, 1, kMaxPolls},
                               Rule{FaultKind::stalled_hca, "stalled-hca", "", 0, 0, 0},
                               Rule{FaultKind::stalled_consumer, "stalled-consumer", "MS", 20, 1, 60000}};

bool has_number(const Rule& rule) { return *rule.number != '\0'; }

Fault parse_fault(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& each) { return name == each.name; });
  if (rule == kRules.end())
    refuse_usage(fmt::format("--fault {}: this fault is unknown; choose of {}, or all", text, fault_names()));
  if (colon == text.size()) return {rule->kind, rule->usual};
  if (!has_number(*rule)) refuse_usage(fmt::format("--fault {}: {} has no number; leave '{}' out", text, name, text.substr(colon)));
  const std::string digits = text.substr(colon + 1);
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  const auto value = is_number ? parse_size(digits) : std::nullopt;
  if (!value || *value < rule->least || *value > rule->most) {
    refuse_usage(fmt::format("--fault {}: {} is a whole number in {}..{}; write {}:{}", text, rule->number, rule->least, rule->most,
                             name, rule->usual));
  }
  return {rule->kind, *value};
}

}  // namespace

std::string_view name_of(FaultKind kind) noexcept {
  const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& each) { return kind == each.kind; });
  return rule == kRules.end() ? "none" : rule->name;
}

std::string name_of(const Fault& fault) {
  const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& each) { return fault.kind == each.kind; });
  if (rule == kRules.end() || !has_number(*rule)) return std::string(name_of(fault.kind));
  return fmt::format("{}:{}", rule->name, fault.value);
}

std::string fault_names() {
  std::string names;
  for (const Rule& rule : kRules) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rule.name);
    if (has_number(rule)) names += fmt::format("[:{}]", rule.number);
  }
  return names;
}

std::vector<Fault> parse_faults(const std::vector<std::string>& texts) {
  std::vector<Fault> faults;
  for (const std::string& text : texts) {
    if (text != "all") {
      faults.push_back(parse_fault(text));
      continue;
    }
    for (const Rule& rule : kRules) faults.push_back({rule.kind, rule.usual});
  }
  return faults;
}

std::string_view expectation_of(FaultKind kind, bool confirms_reads) noexcept {
  switch (kind) {
    case FaultKind::none: return "every operation ends ok";
    case FaultKind::late_record: return "the HCA waits for the record, and every operation ends ok";
    case FaultKind::lost_record:
    case FaultKind::lost_doorbell: return "waits behind a lost one end timed_out; the next doorbell brings everything";
    case FaultKind::reorder: return "operations of one queue overtake those of another, and every one ends ok";
    case FaultKind::error: return "those before the request end ok; it and those behind fail at once and change nothing";
    case FaultKind::wrap: return "indexes wrap, and every operation ends ok";
    case FaultKind::full_ring:
      return "the ring takes what it has slots for, the next post ends timed_out; all that was posted is done later";
    case FaultKind::late_read:
      return confirms_reads ? "a read that is confirmed has its data when it ends ok"
                            : "reads may end ok before their data are there; behind a fenced NOP they are";
    case FaultKind::stalled_hca: return "waits end timed_out; everything is done once the HCA goes on";
    case FaultKind::stalled_consumer: return "the HCA completes a whole ring that nobody looks at, and no completion is lost";
  }
  return "";
}

soft_hca::Faults hca_faults(const Fault& fault, Syndrome syndrome, std::uint64_t requests_before) {
  soft_hca::Faults faults;
  const auto number = static_cast<std::uint32_t>(fault.value);
  switch (fault.kind) {
    case FaultKind::late_record: faults.late_record_polls = number; break;
    case FaultKind::lost_record: faults.lost_records = number; break;
    case FaultKind::lost_doorbell: faults.lost_doorbells = number; break;
    case FaultKind::reorder: faults.sit_out_percent = number; break;
    case FaultKind::late_read: faults.late_read_polls = number; break;
    case FaultKind::error:
      faults.error_at_wqe = requests_before + fault.value;
      faults.error_syndrome = syndrome;
      break;
    case FaultKind::full_ring:
    case FaultKind::stalled_hca: faults.is_stalled = true; break;
    case FaultKind::none:
    case FaultKind::wrap:
    case FaultKind::stalled_consumer: break;
  }
  return faults;
}

std::uint64_t effect_of(FaultKind kind, const soft_hca::FaultCounts& counts) noexcept {
  switch (kind) {
    case FaultKind::late_record: return counts.late_records;
    case FaultKind::lost_record: return counts.lost_records;
    case FaultKind::lost_doorbell: return counts.lost_doorbells;
    case FaultKind::reorder: return counts.polls_sat_out;
    case FaultKind::error: return counts.errors;
    case FaultKind::late_read: return counts.late_reads;
    case FaultKind::full_ring:
    case FaultKind::stalled_hca: return counts.polls_stalled;
    case FaultKind::none:
    case FaultKind::wrap:
    case FaultKind::stalled_consumer: return 0;
  }
  return 0;
}

std::string effect_text(FaultKind kind, std::uint64_t count) {
  switch (kind) {
    case FaultKind::late_record: return counted(count, "record late", "records late");
    case FaultKind::lost_record: return counted(count, "record lost", "records lost");
    case FaultKind::lost_doorbell: return counted(count, "doorbell lost", "doorbells lost");
    case FaultKind::reorder: return counted(count, "poll sat out", "polls sat out");
    case FaultKind::error: return counted(count, "request failed", "requests failed");
    case FaultKind::late_read: return counted(count, "read late", "reads late");
    case FaultKind::full_ring:
    case FaultKind::stalled_hca: return counted(count, "poll stalled", "polls stalled");
    case FaultKind::none:
    case FaultKind::wrap:
    case FaultKind::stalled_consumer: return "";
  }
  return "";
}

}  // namespace gigabar::tool::softhca
