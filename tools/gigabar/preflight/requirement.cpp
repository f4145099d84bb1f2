// SPDX-License-Identifier: Apache-2.0
// What `--require` asks for.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/old_check_ids.hpp"
#include "doctor/check.hpp"
#include "doctor/words.hpp"
#include "gigabar/doctor.hpp"
#include "preflight/preflight.hpp"
#include "support/options.hpp"
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

bool has(std::span<const std::string_view> list, std::string_view name) { return std::ranges::find(list, name) != list.end(); }

bool is_available_name(std::string_view name) {
  return std::any_of(kAvailable.begin(), kAvailable.end(), [name](std::string_view each) { return is_of(each, name); });
}

std::vector<std::string> all_names() {
  std::vector<std::string> names(kRates.begin(), kRates.end());
  names.insert(names.end(), kCounts.begin(), kCounts.end());
  names.insert(names.end(), kAvailable.begin(), kAvailable.end());
  for (const CheckInfo& check : checks()) names.emplace_back(check.id);
  return names;
}

// What is wrong with a term: what was seen, and what to write. Thrown.
struct Fault {
  std::string cause, remedy;
};

void read_least(std::string_view typed, Requirement& requirement) {
  std::string_view number = typed;
  if (requirement.kind == Requirement::Kind::rate && number.ends_with(kUnit)) {
    requirement.is_gb_per_s = true;
    number = trimmed(number.substr(0, number.size() - kUnit.size()));
  }
  requirement.least = read_number(number).value_or(0);
  if (!(requirement.least > 0 && requirement.least <= kMaxNumber)) {
    throw Fault{fmt::format("'{}' is no number above 0 and at most {:.0f}", plain(typed, 40), kMaxNumber),
                "write, for example, nvlink>=18 or host->gpu>=0.8"};
  }
  if (requirement.kind == Requirement::Kind::rate && !requirement.is_gb_per_s && requirement.least > 1) {
    throw Fault{fmt::format("'{}' is more than the whole rate of the link", plain(typed, 40)),
                fmt::format("a share is at most 1; write {}{} for a rate", plain(number, 40), kUnit)};
  }
  if (requirement.kind == Requirement::Kind::count && requirement.least != std::floor(requirement.least))
    throw Fault{fmt::format("'{}' is no whole number", plain(typed, 40)), "write, for example, nvlink>=18"};
}

void read_word(std::string_view name, Requirement& requirement) {
  if (has(kRates, name) || (has(kCounts, name) && !is_available_name(name))) {
    throw Fault{fmt::format("'{}' needs a number", name),
                fmt::format("write, for example, {}>={}", name, has(kRates, name) ? "0.8" : "8")};
  }
  requirement.name = current_check_id(name);
  if (is_available_name(name)) {
    requirement.kind = Requirement::Kind::available;
  } else if (!gigabar::doctor::require_checks({requirement.name})) {
    const std::string near = nearest(name, all_names());
    throw Fault{fmt::format("nothing is called '{}'", plain(name, 40)),
                near.empty() ? "'gigabar doctor --list' names the checks" : fmt::format("did you mean '{}'?", near)};
  }
}

Requirement read_term(std::string_view term) {
  // The arrow of a path ends with the sign that begins the bound.
  const auto bound = term.find(">=");
  const std::string_view name = trimmed(term.substr(0, bound));
  Requirement requirement{.text = std::string(term), .name = std::string(name)};
  if (name.empty()) throw Fault{"a term is empty", "separate terms by one comma"};
  if (bound == std::string_view::npos) {
    read_word(name, requirement);
  } else if (has(kRates, name) || has(kCounts, name)) {
    requirement.kind = has(kRates, name) ? Requirement::Kind::rate : Requirement::Kind::count;
    read_least(trimmed(term.substr(bound + 2)), requirement);
  } else {
    throw Fault{fmt::format("'{}' has no number", plain(name, 40)),
                fmt::format("numbers have {}, {}", fmt::join(kCounts, ", "), fmt::join(kRates, ", "))};
  }
  return requirement;
}

}  // namespace

std::span<const std::string_view> available_names() { return kAvailable; }

Result<std::vector<Requirement>> parse_requirements(std::string_view text) {
  std::vector<Requirement> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    try {
      all.push_back(read_term(trimmed(text.substr(begin, end - begin))));
    } catch (const Fault& fault) {
      const std::string place = fmt::format("--require:{}", begin + 1);
      return Error(ErrorRecord{Status::invalid_argument, "preflight", place, {}, fault.cause, fault.remedy, {}});
    }
    begin = end + 1;
  }
  return all;
}

}  // namespace gigabar::tool::preflight
