// SPDX-License-Identifier: Apache-2.0
#include "platform/host_memory.hpp"

#include <algorithm>
#include <vector>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

// In "cpu,memory".
bool is_listed(std::string_view list, std::string_view name) {
  return text(',', list, ',').find(text(',', name, ',')) != std::string::npos;
}

// A mounted hierarchy of control groups that may limit memory, and where this process is in it.
struct Hierarchy {
  bool is_version_2 = false;
  std::string mount_point;  // under the root in use
  std::string root;         // the group that is mounted there
  std::string group;        // this process's
};

// "/sys/fs/cgroup" of the machine is below the root that tests may have moved.
std::string under_root(std::string_view path) {
  return path.starts_with("/sys/") ? text(platform_roots().sys, path.substr(4)) : std::string(path);
}

// Lines of /proc/self/cgroup: "0::/group" is version 2's, "4:memory:/group" one of version 1.
std::optional<std::string> group_in(std::string_view groups, bool is_version_2) {
  for (const std::string_view line : words_of(groups, "\n")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (is_version_2 ? controllers.empty() && line.starts_with("0:") : is_listed(controllers, "memory"))
      return std::string(line.substr(second + 1));
  }
  return {};
}

// A line of mountinfo: "31 23 0:28 /root /mount/point options... [fields]... - type source options".
std::optional<Hierarchy> hierarchy_of(std::string_view line, std::string_view groups) {
  const std::vector<std::string_view> words = words_of(line);
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 5 || words.end() - dash < 4) return {};
  const bool is_version_2 = dash[1] == "cgroup2";
  if (!is_version_2 && (dash[1] != "cgroup" || !is_listed(dash[3], "memory"))) return {};
  const auto group = group_in(groups, is_version_2);
  return group ? std::optional(Hierarchy{is_version_2, under_root(words[4]), std::string(words[3]), *group}) : std::nullopt;
}

std::vector<Hierarchy> hierarchies() {
  const auto mounts = read_small_file(platform_roots().proc + "/self/mountinfo", 16 << 20);
  const auto groups = read_small_file(platform_roots().proc + "/self/cgroup");
  std::vector<Hierarchy> found;
  if (!mounts || !groups) return found;
  for (const std::string_view line : words_of(*mounts, "\n")) {
    if (auto hierarchy = hierarchy_of(line, *groups)) found.push_back(std::move(*hierarchy));
  }
  return found;
}

// What the group in `folder` leaves; nothing when it sets no limit.
std::optional<std::uint64_t> room_of_group(const std::string& folder, bool is_version_2) {
  std::optional<std::uint64_t> limit = number_in_file(folder + (is_version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (is_version_2) {
    // Above memory.high nobody is killed, but a process that pins its pages is stalled for good.
    const auto high = number_in_file(folder + "/memory.high");
    if (high) limit = std::min(limit.value_or(UINT64_MAX), *high);
  }
  const auto used = number_in_file(folder + (is_version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return {};
  // Shared memory is not on these lists.
  const std::string statistics = read_small_file(folder + "/memory.stat").value_or("");
  const std::string prefix = is_version_2 ? "" : "total_";
  const std::uint64_t cached = number_behind(statistics, prefix + "active_file").value_or(0) +
                               number_behind(statistics, prefix + "inactive_file").value_or(0);
  const std::uint64_t kept = *used - std::min(cached, *used);
  return *limit - std::min(kept, *limit);
}

// This process's group and all above it that can be seen.
void limit_by_groups(const Hierarchy& hierarchy, AvailableHostMemory& available) {
  const std::string root = hierarchy.root == "/" ? "" : hierarchy.root;
  // A group outside of what is mounted (a container's) is below the mounted one; that one is then asked.
  const bool is_below = hierarchy.group.starts_with(root + "/") && hierarchy.group.find("/..") == std::string::npos;
  std::string relative = is_below ? hierarchy.group.substr(root.size()) : "";
  while (relative.ends_with('/')) relative.pop_back();
  for (;;) {
    const std::string folder = hierarchy.mount_point + relative;
    const auto room = room_of_group(folder, hierarchy.is_version_2);
    if (room && *room < available.bytes) available = {*room, "memory control group " + folder};
    if (relative.empty()) return;
    relative.resize(relative.rfind('/'));
  }
}

}  // namespace

std::optional<std::uint64_t> number_behind(std::string_view content, std::string_view key) {
  for (const std::string_view line : words_of(content, "\n")) {
    const std::vector<std::string_view> words = words_of(line, " \t:");
    const auto found = std::ranges::find(words, key);
    if (found == words.end()) continue;
    const auto value = words.end() - found > 1 ? parse_number(found[1], 0, UINT64_MAX >> 10) : std::nullopt;
    return value && words.end() - found > 2 && found[2] == "kB" ? std::optional(*value << 10) : value;
  }
  return {};
}

std::string word_in_file(const std::string& path) {
  const std::string content = read_small_file(path).value_or("");
  const std::vector<std::string_view> words = words_of(content);
  return words.empty() ? std::string() : std::string(words.front());
}

std::optional<std::uint64_t> number_in_file(const std::string& path) {
  return parse_number(word_in_file(path), 0, UINT64_MAX);  // "max" is no number
}

AvailableHostMemory available_host_memory() {
  AvailableHostMemory available;
  if (const auto content = read_small_file(platform_roots().proc + "/meminfo")) {
    if (const auto bytes = number_behind(*content, "MemAvailable")) available = {*bytes, "the machine"};
  }
  for (const Hierarchy& hierarchy : hierarchies()) limit_by_groups(hierarchy, available);
  return available;
}

}  // namespace gigabar::inline v0
