// SPDX-License-Identifier: Apache-2.0
#include "preflight/requirement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/old_check_ids.hpp"
#include "doctor/check.hpp"
#include "doctor/words.hpp"
#include "gigabar/doctor.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::preflight {
namespace {

using gigabar::doctor::trimmed;
using std::string_view_literals::operator""sv;

constexpr std::array kAvailable = {"mapping.dmabuf"sv, "mapping.gdrdrv"sv, "mapping.rm"sv, "gdr.dmabuf"sv, "gdr.peermem"sv, "p2p"sv,
                                   "nvlink"sv,         "rdma"sv,           "gin"sv};
constexpr std::array kCounts = {"gpus"sv, "nics"sv, "nvlink"sv};
constexpr std::array kRates = {"host->gpu"sv, "gpu->host"sv, "gpu->gpu"sv};
constexpr double kMaxNumber = 1e6;
constexpr std::string_view kUnit = "GB/s";

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_available_name(std::string_view name) {
  return std::any_of(kAvailable.begin(), kAvailable.end(), [name](std::string_view each) { return is_of(each, name); });
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const std::string_view name : kRates) names.emplace_back(name);
  for (const std::string_view name : kCounts) names.emplace_back(name);
  for (const std::string_view name : kAvailable) names.emplace_back(name);
  for (const CheckInfo& check : checks()) names.emplace_back(check.id);
  return names;
}

// What is wrong with a term: what was seen, and what to write.
struct Fault {
  std::string cause, remedy;
};

std::optional<Fault> read_least(std::string_view typed, Requirement& requirement) {
  std::string_view number = typed;
  if (requirement.kind == Requirement::Kind::rate && number.ends_with(kUnit)) {
    requirement.is_gb_per_s = true;
    number = trimmed(number.substr(0, number.size() - kUnit.size()));
  }
  const bool is_told = read_number(std::string(number), requirement.least) && std::isfinite(requirement.least);
  if (!is_told || requirement.least <= 0 || requirement.least > kMaxNumber) {
    return Fault{fmt::format("'{}' is no number above 0 and at most {:.0f}", plain(typed, 40), kMaxNumber),
                 "write, for example, nvlink>=18 or host->gpu>=0.8"};
  }
  if (requirement.kind == Requirement::Kind::rate && !requirement.is_gb_per_s && requirement.least > 1) {
    return Fault{fmt::format("'{}' is more than the whole rate of the link", plain(typed, 40)),
                 fmt::format("a share is at most 1; write {}{} for a rate", plain(number, 40), kUnit)};
  }
  if (requirement.kind == Requirement::Kind::count && requirement.least != std::floor(requirement.least))
    return Fault{fmt::format("'{}' is no whole number", plain(typed, 40)), "write, for example, nvlink>=18"};
  return {};
}

std::optional<Fault> read_bound(std::string_view name, std::string_view typed, Requirement& requirement) {
  if (has(kRates, name)) {
    requirement.kind = Requirement::Kind::rate;
  } else if (has(kCounts, name)) {
    requirement.kind = Requirement::Kind::count;
  } else {
    return Fault{fmt::format("'{}' has no number", plain(name, 40)),
                 fmt::format("numbers have {}, {}", fmt::join(kCounts, ", "), fmt::join(kRates, ", "))};
  }
  return read_least(typed, requirement);
}

std::optional<Fault> read_word(std::string_view name, Requirement& requirement) {
  if (has(kRates, name) || (has(kCounts, name) && !is_available_name(name)))
    return Fault{fmt::format("'{}' needs a number", name),
                 fmt::format("write, for example, {}>={}", name, has(kRates, name) ? "0.8" : "8")};
  requirement.name = current_check_id(name);
  if (is_available_name(name)) {
    requirement.kind = Requirement::Kind::available;
  } else if (!gigabar::doctor::require_checks({requirement.name})) {
    const std::string near = nearest(name, all_names());
    return Fault{fmt::format("nothing is called '{}'", plain(name, 40)),
                 near.empty() ? "'gigabar doctor --list' names the checks" : fmt::format("did you mean '{}'?", near)};
  }
  return {};
}

std::optional<Fault> read_term(std::string_view term, Requirement& requirement) {
  requirement.text = std::string(term);
  // The arrow of a path ends with the sign that begins the bound.
  const auto bound = term.find(">=");
  const std::string_view name = trimmed(term.substr(0, bound));
  requirement.name = std::string(name);
  if (name.empty()) return Fault{"a term is empty", "separate terms by one comma"};
  return bound == std::string_view::npos ? read_word(name, requirement)
                                         : read_bound(name, trimmed(term.substr(bound + 2)), requirement);
}

}  // namespace

std::span<const std::string_view> available_names() { return kAvailable; }

Result<std::vector<Requirement>> parse_requirements(std::string_view text) {
  std::vector<Requirement> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (const auto fault = read_term(trimmed(text.substr(begin, end - begin)), all.emplace_back())) {
      ErrorRecord record;
      record.status = Status::invalid_argument;
      record.operation = "preflight";
      record.object = fmt::format("--require:{}", begin + 1);
      record.cause = fault->cause;
      record.remedy = fault->remedy;
      return Error(std::move(record));
    }
    begin = end + 1;
  }
  return all;
}

}  // namespace gigabar::tool::preflight
