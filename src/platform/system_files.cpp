// SPDX-License-Identifier: Apache-2.0
#include "platform/system_files.hpp"

#include "platform/device_nodes.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::string_view kWhiteSpace(" \t\r\n\v\f\0", 7);

}  // namespace

std::optional<std::string> SystemFiles::word(const std::string& path) const {
  const FileText text = read(path);
  if (!text.is_present()) return {};
  const std::size_t first = text.content.find_first_not_of(kWhiteSpace);
  if (first == std::string::npos) return std::string();
  return text.content.substr(first, text.content.find_last_not_of(kWhiteSpace) - first + 1);
}

std::optional<int> SystemFiles::open_errno(const std::string& path) const {
  const NodeFacts node = facts(path);
  if (!is_live()) return node.open_errno;
  return try_to_open(path, node, driver_of_node(*this, path));
}

std::optional<std::string> SystemFiles::link_name(const std::string& path) const {
  std::optional<std::string> real = real_path(path);
  if (real) real->erase(0, real->rfind('/') + 1);
  return real;
}

void put_ahead(std::vector<std::string>& ahead, std::string_view path) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!part.empty() && part != ".") ahead.emplace_back(part);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
}

std::string path_of(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += "/" + part;
  return path.empty() ? "/" : path;
}

}  // namespace gigabar::inline v0
