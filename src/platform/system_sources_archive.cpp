// SPDX-License-Identifier: Apache-2.0
// The files of an archive: a tree in memory, built with bounds on everything, since the text may come from anybody.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "platform/system_sources.hpp"

namespace gigabar {
namespace {

constexpr unsigned kMaxLevels = 16;                             // of JSON
constexpr std::size_t kMaxValues = std::size_t{1} << 20;        // of JSON
constexpr std::uint32_t kMaxErrno = 4095;                       // of Linux
constexpr std::size_t kMaxArchiveNodes = std::size_t{1} << 19;  // files and the folders above them

// Counts levels and values before the parser sees the text: it keeps memory for each, and some 100 bytes for two of text.
bool is_within_bounds(std::string_view json) {
  unsigned level = 0;
  std::size_t values = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char letter = json[i];
    if (is_in_string) {
      if (letter == '\\') ++i;
      is_in_string = letter != '"';
      continue;
    }
    is_in_string = letter == '"';
    if (letter == '{' || letter == '[') ++level;
    if ((letter == '}' || letter == ']') && level > 0) --level;
    if (letter == ',' || letter == '{' || letter == '[') ++values;
    if (level > kMaxLevels || values > kMaxValues) return false;
  }
  return true;
}

int digit_of(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  if (letter == '+') return 62;
  return letter == '/' ? 63 : -1;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char letter : text) {
    const int digit = digit_of(letter);
    if (digit < 0) return {};
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
  std::string text;  // content, reason or target
  NodeFacts facts;   // of a device
  std::map<std::string, std::uint32_t, std::less<>> children;
};

using Nodes = std::vector<Node>;

// Builds the tree from the sections of the document.
class Builder {
 public:
  Builder() : nodes_(1) {}

  Result<void> add_files(const nlohmann::json& document) {
    return for_each(document, "files", [this](const std::string& path, const std::string& key, const nlohmann::json& value) {
      return add_file(path, key, value);
    });
  }
  Result<void> add_texts(const nlohmann::json& document, const char* section, Kind kind) {
    return for_each(document, section,
                    [this, kind](const std::string& path, const std::string& key, const nlohmann::json& value) -> Result<void> {
                      if (!value.is_string()) return bad_archive(key, "is not a text");
                      Node node;
                      node.kind = kind;
                      node.text = value.get<std::string>();
                      const bool is_link = kind == Kind::link;
                      if (is_link && (node.text.empty() || node.text.size() > kMaxPathBytes || has_control_characters(node.text))) {
                        return bad_archive(key, "is no target of a link");
                      }
                      return add(path, key, std::move(node));
                    });
  }
  Result<void> add_devices(const nlohmann::json& document) {
    return for_each(document, "devices", [this](const std::string& path, const std::string& key, const nlohmann::json& value) {
      return add_device(path, key, value);
    });
  }
  Result<void> add_folders(const nlohmann::json& document) {
    const auto found = document.find("folders");
    if (found == document.end()) return {};
    if (!found->is_array()) return bad_archive("folders", "is not a list");
    for (const nlohmann::json& folder : *found) {
      if (!folder.is_string()) return bad_archive("folders", "holds something that is not a text");
      const auto& path = folder.get_ref<const std::string&>();
      if (Result<void> added = add(path, "folders: " + shown(path), Node{}); !added) return added;
    }
    return {};
  }

  Nodes take() { return std::move(nodes_); }

 private:
  template <class Add>
  static Result<void> for_each(const nlohmann::json& document, const char* section, const Add& add) {
    const auto found = document.find(section);
    if (found == document.end()) return {};
    if (!found->is_object()) return bad_archive(section, "is not an object of paths");
    for (const auto& [path, value] : found->items()) {
      if (Result<void> added = add(path, text(section, ": ", shown(path)), value); !added) return added;
    }
    return {};
  }

  Result<void> add_file(const std::string& path, const std::string& key, const nlohmann::json& value) {
    Node node;
    node.kind = Kind::file;
    if (value.is_string()) {
      node.text = value.get<std::string>();
      return add(path, key, std::move(node));
    }
    const auto encoded = value.is_object() ? value.find("base64") : value.end();
    if (!value.is_object() || encoded == value.end() || !encoded->is_string()) {
      return bad_archive(key, R"(is neither a text nor {"base64": "..."})");
    }
    std::optional<std::string> bytes = from_base64(encoded->get_ref<const std::string&>());
    if (!bytes) return bad_archive(key, "is not base64");
    node.text = std::move(*bytes);
    return add(path, key, std::move(node));
  }

  Result<void> add_device(const std::string& path, const std::string& key, const nlohmann::json& value) {
    if (!value.is_object()) return bad_archive(key, "is not an object");
    Node node;
    node.kind = Kind::device;
    node.facts.kind = NodeKind::character_device;
    bool is_good = true;
    const auto number = [&](const char* name, std::uint32_t most) -> std::uint32_t {
      const auto found = value.find(name);
      if (found == value.end()) return 0;
      is_good = is_good && found->is_number_unsigned() && found->get<std::uint64_t>() <= most;
      return is_good ? found->get<std::uint32_t>() : 0;
    };
    const auto truth = [&](const char* name) {
      const auto found = value.find(name);
      if (found == value.end()) return false;
      is_good = is_good && found->is_boolean();
      return is_good && found->get<bool>();
    };
    node.facts.mode = number("mode", 07777);
    node.facts.device_major = number("major", UINT32_MAX);
    node.facts.device_minor = number("minor", UINT32_MAX);
    node.facts.can_read = truth("can_read");
    node.facts.can_write = truth("can_write");
    if (value.contains("open_errno")) node.facts.open_errno = static_cast<int>(number("open_errno", kMaxErrno));
    if (!is_good) return bad_archive(key, "has a mode, major, minor, can_read, can_write or open_errno of the wrong type or size");
    return add(path, key, std::move(node));
  }

  Result<void> add(const std::string& path, const std::string& key, Node node) {
    if (!is_clean_path(path) || has_control_characters(path)) {
      return bad_archive(key, "is not an absolute path without '.', '..', empty or overlong parts");
    }
    std::vector<std::string> ahead;
    put_ahead(ahead, path);
    std::uint32_t at = 0;
    bool is_new = false;
    for (; !ahead.empty(); ahead.pop_back()) {
      if (nodes_[at].kind != Kind::folder) return bad_archive(key, "lies below something that is not a folder");
      const auto next = static_cast<std::uint32_t>(nodes_.size());
      const auto [child, inserted] = nodes_[at].children.try_emplace(std::move(ahead.back()), next);
      is_new = inserted;
      at = child->second;
      if (!inserted) continue;
      if (nodes_.size() >= kMaxArchiveNodes) return bad_archive(key, "is one file too many");
      nodes_.emplace_back();
    }
    if (is_new) {
      nodes_[at] = std::move(node);
    } else if (node.kind != Kind::folder || nodes_[at].kind != Kind::folder) {
      return bad_archive(key, "is there twice, or is a file and a folder");
    }
    return {};
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
    return Entry::leaf;
  }
  void leave() { above_.pop_back(); }
  void restart() { above_.clear(); }

 private:
  const Nodes* nodes_;
  std::vector<std::uint32_t> above_;
  std::uint32_t leaf_ = 0;
};

bool is_there(const WalkEnd& end) { return end.state == FileState::present; }

}  // namespace

class SystemFiles::ArchiveSource final : public SystemFiles::Source {
 public:
  explicit ArchiveSource(Nodes nodes) : nodes_(std::move(nodes)) {}

  FileText read(const std::string& path, std::size_t most_bytes) const override {
    ArchivePosition at(nodes_);
    const WalkEnd end = walk(at, path);
    if (!is_there(end)) return {end.state, {}, end.reason};
    if (end.is_folder || at.leaf().kind == Kind::device) return {FileState::refused, {}, "not a regular file"};
    const Node& node = at.leaf();
    if (node.kind == Kind::unreadable) return {FileState::unreadable, {}, node.text};
    if (node.text.size() > most_bytes) return {FileState::refused, {}, text("larger than ", counted(most_bytes, "byte"))};
    return {FileState::present, node.text, {}};
  }

  std::vector<std::string> names(const std::string& folder) const override {
    ArchivePosition at(nodes_);
    const WalkEnd end = walk(at, folder);
    if (!is_there(end) || !end.is_folder) return {};
    std::vector<std::string> names;
    for (const auto& child : at.folder().children) {
      if (names.size() == kMaxNames) break;
      names.push_back(child.first);
    }
    return names;
  }

  NodeFacts facts(const std::string& path) const override {
    ArchivePosition at(nodes_);
    const WalkEnd end = walk(at, path);
    if (!is_there(end)) return {};
    if (!end.is_folder && at.leaf().kind == Kind::device) return at.leaf().facts;
    NodeFacts facts;
    facts.kind = end.is_folder ? NodeKind::folder : NodeKind::file;
    facts.can_read = end.is_folder || at.leaf().kind == Kind::file;
    return facts;
  }

  std::optional<std::string> real_path(const std::string& path) const override {
    ArchivePosition at(nodes_);
    const WalkEnd end = walk(at, path);
    if (!is_there(end)) return {};
    return path_of(end.parts);
  }

  std::optional<std::string> link_target(const std::string& path) const override {
    ArchivePosition at(nodes_);
    return walk(at, path, false).link_target;
  }

 private:
  Nodes nodes_;
};

Result<SystemFiles> SystemFiles::of_archive(std::string_view json) {
  Result<nlohmann::json> document = parse_archive(json);
  if (!document) return std::move(document).error();
  Builder builder;
  Result<void> added = builder.add_files(*document);
  if (added) added = builder.add_texts(*document, "unreadable", Kind::unreadable);
  if (added) added = builder.add_texts(*document, "links", Kind::link);
  if (added) added = builder.add_devices(*document);
  if (added) added = builder.add_folders(*document);
  if (!added) return std::move(added).error();
  return SystemFiles(std::make_shared<ArchiveSource>(builder.take()));
}

Result<nlohmann::json> parse_bounded(std::string_view json, const std::string& operation) {
  const auto bad = [&](std::string cause) {
    return make_error(Status::bad_file, operation, text(counted(json.size(), "byte"), " of JSON"), std::move(cause),
                      "capture the machine again, and copy the file whole");
  };
  if (json.size() > kMaxArchiveBytes) return bad(text("is larger than ", kMaxArchiveBytes, " bytes"));
  if (!is_within_bounds(json)) {
    return bad(text("has more than ", kMaxLevels, " levels or more than ", kMaxValues, " values"));
  }
  nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded()) return bad("is not JSON, or is truncated");
  return document;
}

Result<nlohmann::json> parse_archive(std::string_view json) {
  Result<nlohmann::json> document = parse_bounded(json, "read archive");
  if (!document) return document;
  if (!document->is_object()) return bad_archive("the document", "is not an object");
  const auto format = document->find("format");
  if (format == document->end() || *format != "gigabar-machine") return bad_archive("format", "is not \"gigabar-machine\"");
  const auto version = document->find("version");
  if (version == document->end() || *version != 1) return bad_archive("version", "is not 1, the only one this Gigabar knows");
  return document;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 120;
  std::string line(text.substr(0, kMost));
  std::replace_if(
      line.begin(), line.end(),
      [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || static_cast<unsigned char>(letter) > 0x7e; }, '?');
  if (text.size() > kMost) line += "...";
  return line;
}

Error bad_archive(const std::string& key, std::string cause) {
  return make_error(Status::bad_file, "read archive", "'" + key + "'", std::move(cause), "capture the machine again");
}

}  // namespace gigabar
