// SPDX-License-Identifier: Apache-2.0
#include "scenarios/soft_hca/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/counted.hpp"
#include "support/failure.hpp"
#include "support/options.hpp"

namespace gigabar::tool::softhca {
namespace {

using soft_hca::Faults;

struct Rule {
  FaultKind kind;
  const char* name;
  const char* number;  // what N counts; empty: the kind has no N
  std::uint64_t usual;
  std::uint64_t least;
  std::uint64_t most;
  std::uint32_t Faults::* setting;     // what N is to the HCA
  std::uint64_t FaultCounts::* count;  // how often it took effect; null: the HCA knows nothing of it
  const char* effect_one;
  const char* effect_many;
  const char* expectation;
};

// Of doorbells: each that is lost costs a wait until its deadline, and a place of memory. Of polls: about a second.
constexpr std::uint64_t kMaxLost = 1000;
constexpr std::uint64_t kMaxPolls = 1'000'000;
constexpr const char* kLostEnd = "waits behind a lost one end timed_out; the next doorbell brings everything";

// In the order of FaultKind.
constexpr std::array kRules = {
    Rule{FaultKind::none, "none", "", 0, 0, 0, nullptr, nullptr, "", "", "every operation ends ok"},
    Rule{FaultKind::late_record, "late-record", "POLLS", 20, 1, kMaxPolls, &Faults::late_record_polls, &FaultCounts::late_records,
         "record late", "records late", "the HCA waits for the record, and every operation ends ok"},
    Rule{FaultKind::lost_record, "lost-record", "COUNT", 1, 1, kMaxLost, &Faults::lost_records, &FaultCounts::lost_records,
         "record lost", "records lost", kLostEnd},
    Rule{FaultKind::lost_doorbell, "lost-doorbell", "COUNT", 1, 1, kMaxLost, &Faults::lost_doorbells, &FaultCounts::lost_doorbells,
         "doorbell lost", "doorbells lost", kLostEnd},
    Rule{FaultKind::reorder, "reorder", "PERCENT", 80, 1, 95, &Faults::sit_out_percent, &FaultCounts::polls_sat_out, "poll sat out",
         "polls sat out", "operations of one queue overtake those of another, and every one ends ok"},
    Rule{FaultKind::error, "error", "REQUEST", 3, 1, std::uint64_t{1} << 32, nullptr, &FaultCounts::errors, "request failed",
         "requests failed", "those before the request end ok; it and those behind fail at once and change nothing"},
    Rule{FaultKind::wrap, "wrap", "REQUESTS", 8, 1, 65536, nullptr, nullptr, "", "", "indexes wrap, and every operation ends ok"},
    Rule{FaultKind::full_ring, "full-ring", "", 0, 0, 0, nullptr, &FaultCounts::polls_stalled, "poll stalled", "polls stalled",
         "the ring takes what it has slots for, the next post ends timed_out; all that was posted is done later"},
    Rule{FaultKind::late_read, "late-read", "POLLS", 1000, 1, kMaxPolls, &Faults::late_read_polls, &FaultCounts::late_reads,
         "read late", "reads late", "reads may end ok before their data are there; behind a fenced NOP they are"},
    Rule{FaultKind::stalled_hca, "stalled-hca", "", 0, 0, 0, nullptr, &FaultCounts::polls_stalled, "poll stalled", "polls stalled",
         "waits end timed_out; everything is done once the HCA goes on"},
    Rule{FaultKind::stalled_consumer, "stalled-consumer", "MS", 20, 1, 60000, nullptr, nullptr, "", "",
         "the HCA completes a whole ring that nobody looks at, and no completion is lost"}};

static_assert([] {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i].kind != static_cast<FaultKind>(i)) return false;
  }
  return true;
}());

const Rule& rule_of(FaultKind kind) noexcept { return kRules[static_cast<std::size_t>(kind)]; }

// Those that can be asked for.
std::span<const Rule> faults() noexcept { return std::span(kRules).subspan(1); }

bool has_number(const Rule& rule) { return *rule.number != '\0'; }

Fault parse_fault(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  const auto rule = std::find_if(faults().begin(), faults().end(), [&](const Rule& each) { return name == each.name; });
  if (rule == faults().end())
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

std::string_view name_of(FaultKind kind) noexcept { return rule_of(kind).name; }

std::string name_of(const Fault& fault) {
  const Rule& rule = rule_of(fault.kind);
  return has_number(rule) ? fmt::format("{}:{}", rule.name, fault.value) : rule.name;
}

std::string fault_names() {
  std::string names;
  for (const Rule& rule : faults()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rule.name);
    if (has_number(rule)) names += fmt::format("[:{}]", rule.number);
  }
  return names;
}

std::vector<Fault> parse_faults(const std::vector<std::string>& texts) {
  std::vector<Fault> found;
  for (const std::string& text : texts) {
    if (text != "all") {
      found.push_back(parse_fault(text));
      continue;
    }
    for (const Rule& rule : faults()) found.push_back({rule.kind, rule.usual});
  }
  return found;
}

std::string_view expectation_of(FaultKind kind, bool confirms_reads) noexcept {
  if (kind == FaultKind::late_read && confirms_reads) return "a read that is confirmed has its data when it ends ok";
  return rule_of(kind).expectation;
}

Faults hca_faults(const Fault& fault, Syndrome syndrome, std::uint64_t requests_before) {
  Faults faults;
  faults.is_stalled = stalls_hca(fault.kind);
  if (fault.kind == FaultKind::error) {
    faults.error_at_wqe = requests_before + fault.value;
    faults.error_syndrome = syndrome;
  }
  if (const auto setting = rule_of(fault.kind).setting) faults.*setting = static_cast<std::uint32_t>(fault.value);
  return faults;
}

bool is_of_hca(FaultKind kind) noexcept { return rule_of(kind).count != nullptr; }

std::uint64_t effect_of(FaultKind kind, const FaultCounts& counts) noexcept {
  return is_of_hca(kind) ? counts.*rule_of(kind).count : 0;
}

std::string effect_text(FaultKind kind, const FaultCounts& counts) {
  const Rule& rule = rule_of(kind);
  return is_of_hca(kind) ? counted(effect_of(kind, counts), rule.effect_one, rule.effect_many) : "";
}

}  // namespace gigabar::tool::softhca
