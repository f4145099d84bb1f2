// SPDX-License-Identifier: Apache-2.0
// The files of an archive: a tree in memory, built with bounds on everything, since the archive may come from anybody.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/shown.hpp"
#include "platform/archive_parts.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxArchiveNodes = std::size_t{1} << 19;  // files and the folders above them

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return {};
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char letter : text) {
    const std::size_t digit = kDigits.find(letter);
    if (digit == std::string_view::npos) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return bytes;
}

// Absolute, without "." and "..", empty parts or control characters, within Linux's limits.
bool is_clean_path(std::string_view path) {
  if (path.size() < 2 || path.size() > kMaxPathBytes || path.front() != '/') return false;
  std::size_t depth = 0;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes || ++depth > kMaxDepth) return false;
    path.remove_prefix(part.size());
    if (path == "/") return false;
  }
  return true;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x20; });
}

enum class Kind : std::uint8_t { folder, file, unreadable, link, device };

struct Node {
  Kind kind = Kind::folder;
  std::string text;  // content, reason (of a folder: why it could not be listed) or target
  NodeFacts facts;   // of a device
  std::map<std::string, std::uint32_t, std::less<>> children;
};

using Nodes = std::vector<Node>;

// Builds the tree. Throws json::Problem.
class Builder {
 public:
  Builder() : nodes_(1) {}

  void add_document(const json::Value& document) {
    constexpr std::array<std::pair<const char*, Kind>, 4> kSections{
        {{"files", Kind::file}, {"unreadable", Kind::unreadable}, {"links", Kind::link}, {"devices", Kind::device}}};
    for (const auto& [section, kind] : kSections) {
      const auto found = document.member(section);
      const auto take = [&, its = kind](const std::string& path, const json::Value& value) {
        add(path, value.place(), node_of(its, value));
      };
      if (found) found->each_member(": ", take);
    }
    const auto folders = document.member("folders");
    const std::size_t count = folders ? folders->entry_count() : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const json::Value folder = folders->entry(i);
      if (!folder.is_text()) folders->refuse("holds something that is not a text");
      add(folder.text(), "folders: " + shown(folder.text()), {});
    }
  }

  void add_entry(tar::Entry&& entry) {
    const Kind kind = entry.kind == tar::Kind::file ? Kind::file : entry.kind == tar::Kind::link ? Kind::link : Kind::folder;
    const std::string path = "/" + entry.path;
    if (!is_clean_path(path) || has_control_characters(path)) {
      throw json::Problem{shown(entry.path), "has a part that is '.' or '..', is empty or overlong, or has control characters"};
    }
    add(path, shown(entry.path), {kind, std::move(entry.text), {}, {}});
  }

  Nodes take() { return std::move(nodes_); }

 private:
  // A folder that could not be listed is `unreadable`, and there as a folder or by what it holds.
  static bool may_be_folder(const Node& node) { return node.kind == Kind::folder || node.kind == Kind::unreadable; }

  static Node node_of(Kind kind, const json::Value& value) {
    if (kind == Kind::device) return {kind, {}, device_of(value), {}};
    if (kind == Kind::unreadable && value.text().empty()) return {kind, "not readable", {}, {}};
    return {kind, kind == Kind::file ? content_of(value) : value.text(), {}, {}};
  }

  static std::string content_of(const json::Value& value) {
    if (value.is_text()) return value.text();
    const auto encoded = value.is_object() ? value.member("base64") : std::nullopt;
    if (!encoded || !encoded->is_text()) value.refuse(R"(is neither a text nor {"base64": "..."})");
    std::optional<std::string> bytes = from_base64(encoded->text());
    if (!bytes) value.refuse("is not base64");
    return std::move(*bytes);
  }

  static NodeFacts device_of(const json::Value& value) {
    NodeFacts facts;
    try {
      json::read(value, facts);
    } catch (const json::Problem&) {
      value.refuse("has a mode, major, minor, can_read, can_write or open_errno of the wrong type or size");
    }
    facts.kind = NodeKind::character_device;
    return facts;
  }

  void add(const std::string& path, const std::string& place, Node node) {
    const auto refuse = [&](const char* cause) { throw json::Problem{place, cause}; };
    if (!is_clean_path(path) || has_control_characters(path)) {
      refuse("is not an absolute path without '.', '..', empty or overlong parts");
    }
    const bool is_link = node.kind == Kind::link;
    if (is_link && (node.text.empty() || node.text.size() > kMaxPathBytes || has_control_characters(node.text))) {
      refuse("is no target of a link");
    }
    std::vector<std::string> ahead;
    put_ahead(ahead, path);
    std::uint32_t at = 0;
    bool is_new = false;
    for (; !ahead.empty(); ahead.pop_back()) {
      if (!may_be_folder(nodes_[at])) refuse("lies below something that is not a folder");
      nodes_[at].kind = Kind::folder;
      const auto next = static_cast<std::uint32_t>(nodes_.size());
      const auto [child, inserted] = nodes_[at].children.try_emplace(std::move(ahead.back()), next);
      is_new = inserted;
      at = child->second;
      if (!inserted) continue;
      if (nodes_.size() >= kMaxArchiveNodes) refuse("is one file too many");
      nodes_.emplace_back();
    }
    if (is_new) {
      nodes_[at] = std::move(node);
    } else if (may_be_folder(node) && may_be_folder(nodes_[at])) {
      nodes_[at].kind = Kind::folder;
      if (!node.text.empty()) nodes_[at].text = std::move(node.text);
    } else {
      refuse("is there twice, or is a file and a folder");
    }
  }

  Nodes nodes_;
};

class ArchivePosition {
 public:
  explicit ArchivePosition(const Nodes& nodes) : nodes_(&nodes) {}

  const Node& folder() const { return (*nodes_)[above_.empty() ? 0 : above_.back()]; }
  const Node& leaf() const { return (*nodes_)[leaf_]; }

  Entry enter(const std::string& part, std::string& detail) {
    const auto& children = folder().children;
    const auto found = children.find(part);
    if (found == children.end()) return Entry::missing;
    const Node& node = (*nodes_)[found->second];
    if (node.kind == Kind::link) {
      detail = node.text;
      return Entry::link;
    }
    if (node.kind == Kind::folder) {
      above_.push_back(found->second);
      return Entry::folder;
    }
    leaf_ = found->second;
    if (node.kind == Kind::unreadable) detail = node.text;
    return Entry::leaf;
  }
  void leave() { above_.pop_back(); }
  void restart() { above_.clear(); }

 private:
  const Nodes* nodes_;
  std::vector<std::uint32_t> above_;
  std::uint32_t leaf_ = 0;
};

class ArchiveSource final : public WalkedSource<ArchivePosition, Nodes> {
 public:
  using WalkedSource::WalkedSource;

  FileText read(const std::string& path, std::size_t most_bytes) const override {
    const auto [at, end] = go(path);
    if (!end.is_there()) return {end.state, {}, end.reason};
    if (end.is_folder || at.leaf().kind == Kind::device) return {FileState::refused, {}, "not a regular file"};
    const Node& node = at.leaf();
    if (node.kind == Kind::unreadable) return {FileState::unreadable, {}, node.text};
    if (node.text.size() > most_bytes) return {FileState::refused, {}, text("larger than ", counted(most_bytes, "byte"))};
    return {FileState::present, node.text, {}};
  }

  FolderNames list(const std::string& folder) const override {
    const auto [at, end] = go(folder);
    if (!end.is_there()) return {{}, end.reason};
    if (!end.is_folder) return {{}, at.leaf().kind == Kind::unreadable ? at.leaf().text : std::string()};
    FolderNames listed{{}, at.folder().text};
    for (const auto& child : at.folder().children) {
      if (listed.names.size() == kMaxNames) break;
      listed.names.push_back(child.first);
    }
    return listed;
  }

  NodeFacts facts(const std::string& path) const override {
    const auto [at, end] = go(path);
    if (!end.is_there()) return {};
    if (!end.is_folder && at.leaf().kind == Kind::device) return at.leaf().facts;
    NodeFacts facts;
    facts.kind = end.is_folder ? NodeKind::folder : NodeKind::file;
    facts.can_read = end.is_folder ? at.folder().text.empty() : at.leaf().kind == Kind::file;
    return facts;
  }
};

}  // namespace

Result<SystemFiles> SystemFiles::of_archive(std::string_view archive) {
  Builder builder;
  ArchiveParts parts;
  parts.document = [&](const json::Value& document) { builder.add_document(document); };
  parts.entry = [&](tar::Entry&& entry) { builder.add_entry(std::move(entry)); };
  if (Result<void> visited = visit_archive(archive, parts); !visited) return std::move(visited).error();
  return SystemFiles(std::make_shared<ArchiveSource>(builder.take()));
}

}  // namespace gigabar::inline v0
