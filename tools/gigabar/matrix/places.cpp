// SPDX-License-Identifier: Apache-2.0
#include "matrix/places.hpp"

#include <fmt/format.h>

#include <ranges>
#include <sstream>

#include "support/failure.hpp"
#include "support/files.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::matrix {
namespace {

// Numbers of texts, in the order of their first appearance.
using Numbers = std::map<std::string, int>;

// An empty text has none. `names`: of all numbers.
int number_of(Numbers& numbers, std::vector<std::string>& names, const std::string& key, const std::string& name) {
  if (key.empty()) return -1;
  const auto [known, is_new] = numbers.emplace(key, static_cast<int>(numbers.size()));
  if (is_new) names.push_back(name);
  return known->second;
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(text, '.')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// Of a host by its whole name, or by what stands before the first dot.
std::string switch_of(const std::string& host, const Switches& switches) {
  for (const std::string& name : {host, short_name(host)}) {
    if (const auto found = switches.find(name); found != switches.end()) return found->second;
  }
  return {};
}

}  // namespace

Switches parse_switches(std::string_view text, const std::string& path) {
  Switches switches;
  std::istringstream lines{std::string(text)};
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    std::size_t count = 0;
    for (std::string host; words >> host; ++count) {
      const auto [known, is_new] = switches.emplace(host, name);
      if (!is_new && known->second != name) {
        refuse_usage(fmt::format("--switches {}: line {}: host {} is behind {} and {}; name it once", plain(path), number,
                                 plain(host), plain(known->second), plain(name)));
      }
    }
    if (count == 0) {
      refuse_usage(
          fmt::format("--switches {}: line {}: no host behind {}; write its hosts behind it", plain(path), number, plain(name)));
    }
  }
  return switches;
}

Switches read_switches(const std::string& path) {
  constexpr std::string_view kRemedy = "name a text file of switches";
  return parse_switches(read_file("--switches", path, {std::size_t{16} << 20, kRemedy, kRemedy}), path);
}

std::string switch_of_slurm(const char* address, const char* pattern) {
  if (address == nullptr || pattern == nullptr) return {};
  const std::vector<std::string_view> names = parts_of(address);
  const std::vector<std::string_view> levels = parts_of(pattern);
  // A switch may stand for several ("s[1-2]"): the ones next to the node, then.
  if (levels.size() < 2 || names.size() < levels.size() || levels[levels.size() - 2] != "switch") return {};
  return std::string(names[levels.size() - 2]);
}

std::string Places::name_of(Part part, int number) const {
  const auto index = static_cast<std::size_t>(number);  // of none: beyond all
  if (part == Part::rank)
    return index < ranks.size() && ranks[index].host >= 0 ? "on " + name_of(Part::host, ranks[index].host) : "";
  const std::vector<std::string>& names = part == Part::rail ? rails : part == Part::group ? groups : hosts;
  return index < names.size() ? names[index] : std::string();
}

std::string_view label_of(Part part) noexcept { return part == Part::group ? "switch" : name_of(part); }

std::string Places::text(const Slow& slow) const {
  std::string text = slow.text(label_of(slow.part), [&](int number) {
    if (slow.part == Part::pair) return std::to_string(number);
    const std::string name = name_of(slow.part, number);
    return slow.part == Part::rank ? fmt::format("{} {}", number, name) : name;
  });
  if (slow.part == Part::pair) text += fmt::format(" ({}, {})", name_of(Part::rank, slow.first), name_of(Part::rank, slow.second));
  return text;
}

Places places_of(std::span<const Whereabouts> ranks, const Switches& switches) {
  Places places;
  Numbers hosts, rails, groups;
  std::map<std::string, int> namesakes;
  std::map<std::string, std::string> name_of_machine;
  for (const Whereabouts& rank : ranks) {
    const std::string machine = rank.host + '\n' + rank.machine;
    if (!name_of_machine.contains(machine)) {
      const int count = ++namesakes[rank.host];
      name_of_machine[machine] = count == 1 ? rank.host : fmt::format("{} ({})", rank.host, count);
    }
    const std::string& host = name_of_machine[machine];
    const std::string behind = switches.empty() ? rank.tree : switch_of(rank.host, switches);
    Placement placement;
    placement.host = number_of(hosts, places.hosts, machine, host);
    if (!rank.rails.empty())
      placement.rail = number_of(rails, places.rails, machine + '\n' + rank.rails, fmt::format("{} of {}", rank.rails, host));
    placement.group = number_of(groups, places.groups, behind, behind);
    places.ranks.push_back(placement);
  }
  return places;
}

}  // namespace gigabar::tool::matrix
