// SPDX-License-Identifier: Apache-2.0
// An archive, made and read. What is read may come from anybody: its files are a tree in memory, built with bounds on everything.
#include "platform/system_archive.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/json.hpp"
#include "base/options.hpp"
#include "base/shown.hpp"
#include "driver/archive/archive.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxArchiveNodes = std::size_t{1} << 19;  // files and the folders above them
constexpr std::uint32_t kMaxErrno = 4095;                       // of Linux

constexpr const char* kAnswersEntry = "gigabar-answers.json";
constexpr const char* kMachineEntry = "gigabar-machine.json";
constexpr json::Limits kLimits{.whole = "the document",
                               .is_exact = false,
                               .depth = 16,
                               .values = std::size_t{1} << 20,
                               .entries = std::size_t{1} << 20,
                               .text_bytes = kMaxArchiveBytes};

// What gigabar-machine.json has, when it is written.
struct MachineEntry {
  std::string remark, date;
  std::map<std::string, std::string> unreadable;
  std::map<std::string, NodeFacts> devices;
};

}  // namespace

template <>
struct json::Fields<NodeFacts> {
  static void each(auto& field, auto& node) {
    field("mode", node.mode, Between{0, 07777});
    field("major", node.device_major);
    field("minor", node.device_minor);
    field("can_read", node.can_read);
    field("can_write", node.can_write);
    field("open_errno", node.open_errno, Between{0, kMaxErrno});
  }
};

template <>
struct json::Fields<MachineEntry> {
  static void each(auto& field, auto& machine) {
    field.constant("format", std::string_view("gigabar-machine"));
    field.constant("version", std::uint64_t{1});
    field("remark", machine.remark);
    field("date", machine.date);
    field("unreadable", machine.unreadable);
    field("devices", machine.devices);
  }
};

namespace {

// ---- reading

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

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x20; });
}

// Absolute, without "." and "..", empty parts or control characters, within Linux's limits.
bool is_clean_path(std::string_view path) {
  if (path.size() < 2 || path.size() > kMaxPathBytes || path.front() != '/' || has_control_characters(path)) return false;
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

// A thing of an archive, without its path, and what is in it when it is a folder: its text is then why it could not be listed.
struct Node final : SourceFolder {
  Captured thing{Captured::Kind::folder, {}, {}, {}};
  std::map<std::string, std::shared_ptr<Node>, std::less<>> children;

  Found find(const std::string& part) const override {
    const auto child = children.find(part);
    if (child == children.end()) return {};
    const Captured& found = child->second->thing;
    if (found.kind == Captured::Kind::link) return {Entry::link, found.text, {}};
    if (found.kind == Captured::Kind::folder) return {Entry::folder, {}, child->second};
    return {Entry::leaf, found.kind == Captured::Kind::hidden ? found.text : std::string(), {}};
  }
  FolderNames list() const override {
    FolderNames listed{{}, thing.text};
    for (const auto& child : children) {
      if (listed.names.size() == kMaxNames) break;
      listed.names.push_back(child.first);
    }
    return listed;
  }
  FileText read(const std::string& leaf, std::size_t most_bytes) const override {
    const Captured& file = children.at(leaf)->thing;
    if (file.kind == Captured::Kind::device) return {FileState::refused, {}, "not a regular file"};
    if (file.text.size() > most_bytes) return {FileState::refused, {}, text("larger than ", counted(most_bytes, "byte"))};
    return {FileState::present, file.text, {}};
  }
  NodeFacts facts(const std::string& leaf) const override {
    const Captured& told = leaf.empty() ? thing : children.at(leaf)->thing;
    if (told.kind == Captured::Kind::device) return told.facts;
    NodeFacts facts;
    facts.kind = leaf.empty() ? NodeKind::folder : NodeKind::file;
    facts.can_read = leaf.empty() ? told.text.empty() : told.kind == Captured::Kind::file;
    return facts;
  }
};

// Builds the tree and fills the head. All but read() throw json::Problem.
class Reader {
 public:
  ArchiveHead head{{}, {}, no_answers()};
  ArchiveCounts counts;
  std::shared_ptr<Node> root = std::make_shared<Node>();

  Result<void> read(std::string_view archive) {
    try {
      if (tar::is_tar(archive)) return read_tar(archive);
      if (!archive.substr(std::min(archive.find_first_not_of(" \t\r\n"), archive.size())).starts_with('{')) {
        return make_error(Status::bad_file, "read archive", "", "it is neither a tar file nor JSON",
                          "unpack it where it is compressed; else copy the file whole, or capture the machine again");
      }
      json::parse(archive, kLimits, [this](const json::Value& document) {
        read_document(document);
        if (const auto answers = document.member("answers")) head.answers = read_answers(*answers);
      });
      return {};
    } catch (const json::Problem& problem) {
      return make_error(Status::bad_file, "read archive", "'" + problem.place + "'", problem.cause,
                        "copy the file whole, or capture the machine again");
    }
  }

 private:
  Result<void> read_tar(std::string_view archive) {
    std::optional<std::string> machine, answers;
    const auto keep = [&](std::optional<std::string>& kept, const char* name, tar::Entry&& entry) {
      if (entry.kind != tar::Kind::file) throw json::Problem{name, "is no file"};
      if (kept) throw json::Problem{name, "is there twice"};
      kept = std::move(entry.text);
    };
    Result<void> done = tar::read(archive, [&](tar::Entry&& entry) {
      // The last one says that nothing was cut.
      if (machine && entry.path != kMachineEntry) throw json::Problem{kMachineEntry, "is not the last entry"};
      if (entry.path == kMachineEntry) {
        keep(machine, kMachineEntry, std::move(entry));
      } else if (entry.path == kAnswersEntry) {
        keep(answers, kAnswersEntry, std::move(entry));
      } else {
        add_entry(std::move(entry));
      }
    });
    if (!done) return done;
    if (!machine) throw json::Problem{kMachineEntry, "is missing: the archive was cut, or holds no captured machine"};
    json::parse(*machine, kLimits, [this](const json::Value& document) { read_document(document); });
    if (answers) json::parse(*answers, kLimits, [this](const json::Value& value) { head.answers = read_answers(value); });
    return {};
  }

  // gigabar-machine.json, or the whole document.
  void read_document(const json::Value& document) {
    json::FieldReader field(document);
    field.constant("format", "gigabar-machine");
    field.constant("version", 1);
    add_files(document);
    if (const auto remark = document.member("remark")) json::read(*remark, head.remark);
    if (const auto date = document.member("date")) json::read(*date, head.date);
  }

  void add_files(const json::Value& document) {
    using enum Captured::Kind;
    constexpr std::array<std::pair<const char*, Captured::Kind>, 4> kSections{
        {{"files", file}, {"unreadable", hidden}, {"links", link}, {"devices", device}}};
    for (const auto& [section, kind] : kSections) {
      const auto found = document.member(section);
      const auto take = [&, its = kind](const std::string& path, const json::Value& value) {
        add(captured(its, path, value), value.place());
      };
      if (found) found->each_member(": ", take);
    }
    const auto folders = document.member("folders");
    const std::size_t count = folders ? folders->entry_count() : 0;
    for (std::size_t i = 0; i < count; ++i) {
      const json::Value folder = folders->entry(i);
      if (!folder.is_text()) folders->refuse("holds something that is not a text");
      add({Captured::Kind::folder, folder.text(), {}, {}}, "folders: " + shown(folder.text()));
    }
  }

  void add_entry(tar::Entry&& entry) {
    using enum Captured::Kind;
    const Captured::Kind kind = entry.kind == tar::Kind::file ? file : entry.kind == tar::Kind::link ? link : folder;
    const std::string path = "/" + entry.path;
    if (!is_clean_path(path)) {
      throw json::Problem{shown(entry.path), "has a part that is '.' or '..', is empty or overlong, or has control characters"};
    }
    counts.files += kind == file ? 1 : 0;
    counts.links += kind == link ? 1 : 0;
    add({kind, path, std::move(entry.text), {}}, shown(entry.path));
  }

  // A folder that could not be listed is hidden, and there as a folder or by what it holds.
  static bool may_be_folder(const Captured& thing) {
    return thing.kind == Captured::Kind::folder || thing.kind == Captured::Kind::hidden;
  }

  static Captured captured(Captured::Kind kind, const std::string& path, const json::Value& value) {
    using enum Captured::Kind;
    if (kind == device) return {kind, path, {}, device_of(value)};
    if (kind == hidden && value.text().empty()) return {kind, path, "not readable", {}};
    return {kind, path, kind == file ? content_of(value) : value.text(), {}};
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

  void add(Captured found, const std::string& place) {
    const auto refuse = [&](const char* cause) { throw json::Problem{place, cause}; };
    const std::string path = std::move(found.path);
    if (!is_clean_path(path)) {
      refuse("is not an absolute path without '.', '..', empty or overlong parts");
    }
    if (found.kind == Captured::Kind::hidden && found.text == "permission denied") ++counts.denied;
    const bool is_link = found.kind == Captured::Kind::link;
    if (is_link && (found.text.empty() || found.text.size() > kMaxPathBytes || has_control_characters(found.text))) {
      refuse("is no target of a link");
    }
    Node* at = root.get();
    bool is_new = false;
    for (const std::string_view part : words_of(path, "/")) {
      if (!may_be_folder(at->thing)) refuse("lies below something that is not a folder");
      at->thing.kind = Captured::Kind::folder;
      std::shared_ptr<Node>& child = at->children[std::string(part)];
      is_new = child == nullptr;
      if (is_new) {
        if (node_count_ >= kMaxArchiveNodes) refuse("is one file too many");
        ++node_count_;
        child = std::make_shared<Node>();
      }
      at = child.get();
    }
    if (is_new) {
      at->thing = std::move(found);
    } else if (may_be_folder(found) && may_be_folder(at->thing)) {
      at->thing.kind = Captured::Kind::folder;
      if (!found.text.empty()) at->thing.text = std::move(found.text);
    } else {
      refuse("is there twice, or is a file and a folder");
    }
  }

  std::size_t node_count_ = 1;
};

// ---- writing

// What is captured, as a tar file's entries; what tar cannot say goes to `machine`.
std::vector<tar::Entry> captured_entries(const SystemFiles& files, MachineEntry& machine) {
  std::vector<tar::Entry> entries;
  std::set<std::string> folders, above;
  const auto has_content = [&above](const std::string& path) {
    for (std::size_t slash = path.rfind('/'); slash != 0 && slash != std::string::npos; slash = path.rfind('/', slash - 1)) {
      if (!above.insert(path.substr(0, slash)).second) return;
    }
  };
  visit_captured(files, [&](Captured&& found) {
    using enum Captured::Kind;
    if (found.kind != folder) has_content(found.path);
    switch (found.kind) {
      case file: entries.push_back({tar::Kind::file, found.path.substr(1), std::move(found.text)}); break;
      case link: entries.push_back({tar::Kind::link, found.path.substr(1), std::move(found.text)}); break;
      case hidden: machine.unreadable[found.path] = std::move(found.text); break;
      case device: machine.devices[found.path] = found.facts; break;
      case folder: folders.insert(found.path); break;
    }
  });
  // The folders that nothing else tells of.
  for (const std::string& path : folders) has_content(path);
  for (const std::string& path : folders) {
    if (!above.contains(path)) entries.push_back({tar::Kind::folder, path.substr(1), {}});
  }
  return entries;
}

}  // namespace

Result<std::string> write_archive(const SystemFiles& files, const ArchiveHead& head, std::size_t max_bytes) {
  MachineEntry machine{head.remark, head.date, {}, {}};
  std::vector<tar::Entry> entries = captured_entries(files, machine);
  entries.push_back({tar::Kind::file, kAnswersEntry, to_json(head.answers)});
  entries.push_back({tar::Kind::file, kMachineEntry, json::to_text(machine, kLimits)});
  Result<std::string> archive = tar::write(entries);
  if (archive && archive->size() > max_bytes) {
    return make_error(Status::not_supported, "write archive", "",
                      text("it would have ", counted(archive->size(), "byte"), ", more than the ", max_bytes, " that can be read"),
                      "report this machine");
  }
  return archive;
}

Result<Archive> read_archive(std::string_view archive) {
  Reader reader;
  if (Result<void> done = reader.read(archive); !done) return std::move(done).error();
  return Archive{SystemFiles(std::move(reader.root)), std::move(reader.head), reader.counts};
}

Result<SystemFiles> SystemFiles::of_archive(std::string_view archive) {
  Result<Archive> read = read_archive(archive);
  if (!read) return std::move(read).error();
  return std::move(read->files);
}

}  // namespace gigabar::inline v0
